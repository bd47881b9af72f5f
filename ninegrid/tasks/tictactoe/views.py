"""How a board is laid out as rows of text, whatever its squares are called and its marks look like.

Not here: what stands in a square and between two parts of a row (``wording``), which perturbations
change; so every perturbation goes with every view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ninegrid.tasks.tictactoe.board import FREE, LINES, Board, free_squares

Rows = list[Sequence[str]]


@dataclass(frozen=True)
class View:
    """A way to show a board.

    Attributes:
        rows: the board and the texts of its squares 1 to 9 -> rows of parts.
        instructions: the system message that goes with it; may hold the fields of a `Wording`.
        reworded: the same in other words.
    """

    rows: Callable[[Board, Sequence[str]], Rows]
    instructions: str
    reworded: str


def grid(board: Board, cells: Sequence[str]) -> Rows:
    """Three rows of three, as on paper."""
    return [cells[row : row + 3] for row in (0, 3, 6)]


def squares(board: Board, cells: Sequence[str]) -> Rows:
    """A row for each free square: its name, then the marks of each line through it that has any."""
    return [
        [f"{cells[square - 1]}:", *_lines_through(board, cells, square)] for square in free_squares(board)
    ]


def lines(board: Board, cells: Sequence[str]) -> Rows:
    """A row for each line with a free square: its marks, X before O, then the names of its free squares."""
    open_lines = [line for line in LINES if any(board[s - 1] == FREE for s in line)]
    return [_line(board, cells, line) for line in open_lines]


def _line(board: Board, cells: Sequence[str], line: Sequence[int]) -> list[str]:
    marks = "".join(cells[s - 1] for s in _marked(board, line))
    return [*([marks] if marks else []), *(cells[s - 1] for s in line if board[s - 1] == FREE)]


def _marked(board: Board, line: Sequence[int]) -> list[int]:
    """The squares of a line that hold a mark, X before O."""
    return sorted((s for s in line if board[s - 1] != FREE), key=lambda s: board[s - 1], reverse=True)


def _lines_through(board: Board, cells: Sequence[str], square: int) -> list[str]:
    """The marks of each line through ``square``, X before O."""
    marked = (_marked(board, line) for line in LINES if square in line)
    return ["".join(cells[s - 1] for s in line) for line in marked if line]


VIEWS: Mapping[str, View] = {
    "grid": View(
        grid,
        instructions=(
            "You play {mark} in tic-tac-toe. Free squares show their {noun}. "
            "Call {tool} with the {noun} of the best free square."
        ),
        reworded=(
            "This is a game of noughts and crosses, and it is your turn with {mark}. Every square that "
            "nobody has taken carries its {noun}. Pick the strongest of them: answer by calling {tool}."
        ),
    ),
    "squares": View(
        squares,
        instructions=(
            "You play {mark} in tic-tac-toe. Each free square is listed with the marks on the lines through "
            "it: {mark}{mark} can be won there, {other}{other} must be stopped there. "
            "Call {tool} with the {noun} of the best free square."
        ),
        reworded=(
            "This is a game of noughts and crosses, and it is your turn with {mark}. You see the {noun} of "
            "every square that nobody has taken, and what stands in line with it: fill {mark}{mark} and you "
            "win, leave {other}{other} and you lose. Pick the strongest: answer by calling {tool}."
        ),
    ),
    "lines": View(
        lines,
        instructions=(
            "You play {mark} in tic-tac-toe. Each line of the board is listed: its marks, then its free "
            "squares. After {mark}{mark} stands the square that wins, after {other}{other} the square that "
            "stops {other}. Call {tool} with the {noun} of the best free square."
        ),
        reworded=(
            "This is a game of noughts and crosses, and it is your turn with {mark}. You see what stands in "
            "every row, column and diagonal, and then the {noun} of each square that nobody has taken there: "
            "fill {mark}{mark} and you win, leave {other}{other} and you lose. Pick the strongest square: "
            "answer by calling {tool}."
        ),
    ),
}
"""How a board can be shown.  What each is worth to a policy that learns is in docs/learning.md."""
