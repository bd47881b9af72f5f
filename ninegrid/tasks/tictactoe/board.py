"""The rules of tic-tac-toe: boards, lines, symmetries and perfect play.

Not here: how boards are drawn at random (``generate``) and what a model is told (``task``).

A board is a text of nine characters, ``X``, ``O`` or ``.``, row by row; squares are numbered 1 to 9
in that order, everywhere.
"""

from __future__ import annotations

from functools import cache

Board = str

X, O, FREE = "X", "O", "."  # noqa: E741
EMPTY_BOARD: Board = FREE * 9
SQUARES = range(1, 10)

LINES = (
    (1, 2, 3),
    (4, 5, 6),
    (7, 8, 9),
    (1, 4, 7),
    (2, 5, 8),
    (3, 6, 9),
    (1, 5, 9),
    (3, 5, 7),
)

_SWAPPED = str.maketrans(X + O, O + X)
_TURNED = (7, 4, 1, 8, 5, 2, 9, 6, 3)  # what each square shows after a quarter turn clockwise
_MIRRORED = (3, 2, 1, 6, 5, 4, 9, 8, 7)


def _all_symmetries() -> tuple[tuple[int, ...], ...]:
    found: list[tuple[int, ...]] = []
    for start in (tuple(SQUARES), _MIRRORED):
        turned = start
        for _ in range(4):
            found.append(turned)
            turned = tuple(turned[square - 1] for square in _TURNED)
    return tuple(found)


SYMMETRIES = _all_symmetries()
"""The four rotations and their mirrors; entry i of each is the square that moves to square i + 1."""


def transform(board: Board, symmetry: tuple[int, ...]) -> Board:
    """The board after a rotation or mirror."""
    return "".join(board[square - 1] for square in symmetry)


def canonical(board: Board) -> Board:
    """The name of a board's symmetry class: the first of its eight images in text order."""
    return min(transform(board, symmetry) for symmetry in SYMMETRIES)


def marks(board: Board) -> int:
    """How many squares are taken."""
    return 9 - board.count(FREE)


def to_move(board: Board) -> str:
    """Whose turn it is; X moves first."""
    return X if board.count(X) == board.count(O) else O


def swapped(board: Board) -> Board:
    """The board with X for O and O for X."""
    return board.translate(_SWAPPED)


def begun_by_x(board: Board) -> Board:
    """The board as the rules count it, by which X began: marks are swapped where O is ahead."""
    return swapped(board) if board.count(O) > board.count(X) else board


def free_squares(board: Board) -> tuple[int, ...]:
    """The squares that may be chosen, ascending."""
    return tuple(square for square in SQUARES if board[square - 1] == FREE)


def place(board: Board, square: int) -> Board:
    """The board after the player to move takes a free ``square``."""
    if board[square - 1] != FREE:
        raise ValueError(f"square {square} of {board} is taken")
    return board[: square - 1] + to_move(board) + board[square:]


@cache
def has_line(board: Board, mark: str) -> bool:
    """Whether ``mark`` holds a whole line."""
    return any(all(board[square - 1] == mark for square in line) for line in LINES)


@cache
def is_finished(board: Board) -> bool:
    """Whether somebody has a line or no square is free."""
    return FREE not in board or has_line(board, X) or has_line(board, O)


@cache
def value(board: Board) -> int:
    """How the game ends for X when both play perfectly: 1 won, 0 drawn, -1 lost.

    The number of moves it takes does not count.
    """
    if has_line(board, X):
        return 1
    if has_line(board, O):
        return -1
    if FREE not in board:
        return 0
    after = [value(place(board, square)) for square in free_squares(board)]
    return max(after) if to_move(board) == X else min(after)


@cache
def optimal_squares(board: Board) -> tuple[int, ...]:
    """The squares that keep what the player to move can reach by perfect play, ascending.

    A slower forced win is as good as a fast one, and on a lost board every free square is optimal.
    """
    target = value(board)
    return tuple(square for square in free_squares(board) if value(place(board, square)) == target)


@cache
def winning_squares(board: Board) -> tuple[int, ...]:
    """The squares that complete a line of the player to move at once, ascending."""
    mark = to_move(board)
    return tuple(square for square in free_squares(board) if has_line(place(board, square), mark))


@cache
def threatened_squares(board: Board) -> tuple[int, ...]:
    """The free squares on which the other player would complete a line, ascending."""
    other = O if to_move(board) == X else X
    return tuple(s for s in free_squares(board) if has_line(board[: s - 1] + other + board[s:], other))


@cache
def best_squares(board: Board) -> tuple[int, ...]:
    """The squares that earn the most: those that win at once, or else the optimal ones."""
    return winning_squares(board) or optimal_squares(board)
