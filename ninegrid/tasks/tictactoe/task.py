"""Tic-tac-toe behind the task protocol: what the policy sees, may call, and what its move was worth.

Not here: the rules (``board``), how boards are drawn (``generate``), and rewards in force, which are a
setting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from ninegrid.config import require
from ninegrid.errors import DataError
from ninegrid.tasks.protocol import CallOutcome, Example, Json, Judgement, ToolCall, WorkedExample
from ninegrid.tasks.tictactoe.board import (
    FREE,
    SQUARES,
    Board,
    O,
    X,
    best_squares,
    canonical,
    free_squares,
    is_finished,
    marks,
    optimal_squares,
    winning_squares,
)
from ninegrid.tasks.tictactoe.draw import draw_board
from ninegrid.tasks.tictactoe.generate import all_boards, draw_boards
from ninegrid.tasks.tictactoe.players import PLAYERS


class MoveOutcome(StrEnum):
    """What a valid call amounted to, worst first."""

    OCCUPIED = "occupied"
    """The square was taken."""
    LEGAL = "legal"
    """A free square that gives away what perfect play could reach."""
    OPTIMAL = "optimal"
    """A free square that keeps the result of perfect play (won, drawn or lost), however long it takes:
    a slower forced win counts, and on a lost board so does every free square."""
    WIN = "win"
    """A free square that completes a line of X now."""


TOOL: Json = {
    "type": "function",
    "function": {
        "name": "choose_square",
        "description": "Put X on a free square.",
        "parameters": {
            "type": "object",
            "properties": {
                "square": {
                    "type": "integer",
                    "minimum": SQUARES[0],
                    "maximum": SQUARES[-1],
                    "description": "The number of the square.",
                }
            },
            "required": ["square"],
            "additionalProperties": False,
        },
    },
}

SYSTEM = (
    "You play X in tic-tac-toe. Free squares show their number. "
    "Call choose_square with the number of the best free square."
)

WORKED = (
    ("...OO.XX.", 9),  # wins at once, though O threatens too
    ("O..XO.OXX", 3),  # the only move that does not lose: it blocks
    ("...O..X..", 5),  # wins by force, not at once
    ("OX....O.X", 4),  # blocks
)
"""The worked examples: boards of 4, 6, 2 and 4 marks, with four different answers."""


class TicTacToe:
    """One move of X on a board after some random moves.

    Args:
        min_moves: fewest random moves before the policy is asked, 0 to ``max_moves``.
        max_moves: most random moves, up to 8; after nine the board is full.

    Raises:
        OutOfRange: for numbers of moves that leave no board to move on.
    """

    name = "tictactoe"
    tools: Sequence[Json] = (TOOL,)
    outcomes: Sequence[str] = tuple(str(outcome) for outcome in (*CallOutcome, *MoveOutcome))
    milestones: Mapping[str, frozenset[str]] = {
        "legal": frozenset({"legal", "optimal", "win"}),
        "optimal": frozenset({"optimal", "win"}),
    }
    decision: str | None = "square"
    score: Mapping[str, float] = {
        "no_tool_call": -1.0,
        "wrong_tool": -1.0,
        "multiple_calls": -1.0,
        "invalid_arguments": -1.0,
        "occupied": -1.0,
        "legal": 0.0,
        "optimal": 0.8,
        "win": 1.0,
    }

    def __init__(self, min_moves: int = 0, max_moves: int = 6) -> None:
        require(0 <= max_moves <= 8, "max_moves", max_moves, "0 to 8")
        require(0 <= min_moves <= max_moves, "min_moves", min_moves, f"0 to max_moves = {max_moves}")
        self.min_moves = min_moves
        self.max_moves = max_moves

    def available(self) -> int:
        return len(all_boards(self.min_moves, self.max_moves))

    def generate(self, count: int, seed: int) -> list[Example]:
        boards = draw_boards(count, seed, self.min_moves, self.max_moves)
        return [_example(f"generated-{i:05d}", board) for i, board in enumerate(boards)]

    def parse(self, line: Json) -> Example:
        if set(line) != {"id", "board"}:
            raise DataError(f"keys {', '.join(sorted(map(str, line))) or '(none)'}, expected id, board")
        if not isinstance(line["id"], str) or not line["id"]:
            raise DataError(f"id = {line['id']!r}, expected a text that is not empty")
        return _example(line["id"], _read_board(line["board"]))

    def worked_examples(self) -> Sequence[WorkedExample]:
        return [
            WorkedExample(_example(f"worked-{i}", board), ToolCall("choose_square", {"square": square}))
            for i, (board, square) in enumerate(WORKED, start=1)
        ]

    def system(self) -> str:
        return SYSTEM

    def user(self, example: Example) -> str:
        board = _board(example)
        shown = [str(square) if board[square - 1] == FREE else board[square - 1] for square in SQUARES]
        return "\n".join(" ".join(shown[row : row + 3]) for row in (0, 3, 6))

    def judge(self, example: Example, call: ToolCall) -> Judgement:
        board, square = _board(example), call.arguments["square"]
        facts = {"square": square, "best": list(best_squares(board))}
        return Judgement(_outcome(board, square), call, facts)

    def legal_outcomes(self, example: Example) -> Sequence[str]:
        board = _board(example)
        return [_outcome(board, square) for square in free_squares(board)]

    def candidate_calls(self, example: Example) -> Sequence[ToolCall]:
        return [ToolCall(TOOL["function"]["name"], {"square": square}) for square in SQUARES]

    def players(self) -> Mapping[str, Mapping[str, str]]:
        return {
            name: {"label": player.label, "description": player.description}
            for name, player in PLAYERS.items()
        }

    def expected_outcomes(self, player: str, example: Example) -> Mapping[str, float]:
        board = _board(example)
        expected: dict[str, float] = {}
        for square, probability in PLAYERS[player].choices(board).items():
            outcome = _outcome(board, square)
            expected[outcome] = expected.get(outcome, 0.0) + probability
        return expected

    def stratum(self, example: Example) -> str:
        return f"marks={marks(_board(example))}"

    def draw(self, example: Example, calls: Mapping[str, ToolCall | None]) -> str:
        return draw_board(_board(example), {name: _chosen(call) for name, call in calls.items()})


def _outcome(board: Board, square: int) -> str:
    if square not in free_squares(board):
        return MoveOutcome.OCCUPIED.value
    if square in winning_squares(board):
        return MoveOutcome.WIN.value
    return (MoveOutcome.OPTIMAL if square in optimal_squares(board) else MoveOutcome.LEGAL).value


def _chosen(call: ToolCall | None) -> int | None:
    """The square that a call names, or None where it is no valid call (drawings show those too)."""
    square = None if call is None or call.name != "choose_square" else call.arguments.get("square")
    return square if type(square) is int and square in SQUARES else None


def _example(name: str, board: Board) -> Example:
    rows = [list(board[row : row + 3]) for row in (0, 3, 6)]
    return Example(id=name, group=canonical(board), data={"board": rows})


def _board(example: Example) -> Board:
    return "".join(mark for row in example.data["board"] for mark in row)


def _read_board(rows: Any) -> Board:
    """Check the board of a data file.

    Raises:
        DataError: it is not a board on which X is to move.
    """
    if not _is_grid(rows):
        raise DataError(f'board = {rows!r}, expected three rows of three, each "X", "O" or "."')
    board = "".join(mark for row in rows for mark in row)
    if board.count(X) != board.count(O):
        raise DataError(
            f"board {board} holds {board.count(X)} X and {board.count(O)} O, expected as many of each"
        )
    if is_finished(board):
        raise DataError(f"board {board} is finished, expected one on which X is to move")
    return board


def _is_grid(rows: Any) -> bool:
    return (
        isinstance(rows, list)
        and len(rows) == 3
        and all(isinstance(row, list) and len(row) == 3 for row in rows)
        and all(isinstance(mark, str) and mark in (X, O, FREE) for row in rows for mark in row)
    )
