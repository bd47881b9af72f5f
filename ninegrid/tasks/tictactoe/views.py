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


def _lines_through(board: Board, cells: Sequence[str], square: int) -> list[str]:
    """The marks of each line through ``square``, X before O."""
    lines = [[s for s in line if board[s - 1] != FREE] for line in LINES if square in line]
    ordered = (sorted(line, key=lambda s: board[s - 1], reverse=True) for line in lines if line)
    return ["".join(cells[s - 1] for s in line) for line in ordered]


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
}
