"""Tic-tac-toe behind the task protocol: what the policy sees, may call, and what its move was worth.

Not here: the rules (``board``), how boards are drawn (``generate``), the words in which the game is told
(``wording``, ``views``), and rewards in force, which are a setting.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from ninegrid.config import require
from ninegrid.errors import DataError
from ninegrid.tasks.protocol import (
    CallOutcome,
    Example,
    Json,
    Judgement,
    Perturbation,
    ToolCall,
    WorkedExample,
)
from ninegrid.tasks.tictactoe.board import (
    FREE,
    SQUARES,
    Board,
    O,
    X,
    begun_by_x,
    best_squares,
    canonical,
    free_squares,
    is_finished,
    marks,
    optimal_squares,
    threatened_squares,
    to_move,
    value,
    winning_squares,
)
from ninegrid.tasks.tictactoe.draw import draw_board
from ninegrid.tasks.tictactoe.generate import all_boards, draw_boards
from ninegrid.tasks.tictactoe.perturbations import REWORDINGS
from ninegrid.tasks.tictactoe.players import PLAYERS
from ninegrid.tasks.tictactoe.views import VIEWS
from ninegrid.tasks.tictactoe.wording import Wording


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


class TicTacToe:
    """One move of X on a board after some random moves.

    Args:
        min_moves: fewest random moves before the policy is asked, 0 to ``max_moves``.
        max_moves: most random moves, up to 8; after nine the board is full.
        view: how a board is shown: ``grid``, in three rows; ``squares``, each free square with the
            marks on the lines through it; or ``lines``, each line with its marks and its free squares.

    Raises:
        OutOfRange: for numbers of moves that leave no board to move on, and for an unknown view.
    """

    name = "tictactoe"
    wording = Wording()
    tools: Sequence[Json] = wording.tools()
    outcomes: Sequence[str] = tuple(str(outcome) for outcome in (*CallOutcome, *MoveOutcome))
    milestones: Mapping[str, frozenset[str]] = {
        "legal": frozenset({"legal", "optimal", "win"}),
        "optimal": frozenset({"optimal", "win"}),
    }
    decision: str | None = wording.argument
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

    def __init__(self, min_moves: int = 0, max_moves: int = 6, view: str = "grid") -> None:
        require(0 <= max_moves <= 8, "max_moves", max_moves, "0 to 8")
        require(0 <= min_moves <= max_moves, "min_moves", min_moves, f"0 to max_moves = {max_moves}")
        self.min_moves = min_moves
        self.max_moves = max_moves
        require(view in VIEWS, "view", view, " or ".join(VIEWS))
        self.wording = Wording(view=view)

    def available(self) -> int:
        return len(all_boards(self.min_moves, self.max_moves))

    def generate(self, count: int, seed: int) -> list[Example]:
        boards = draw_boards(count, seed, self.min_moves, self.max_moves)
        return [example_of(f"generated-{i:05d}", board) for i, board in enumerate(boards)]

    def parse(self, line: Json) -> Example:
        if set(line) != {"id", "board"}:
            raise DataError(f"keys {', '.join(sorted(map(str, line))) or '(none)'}, expected id, board")
        if not isinstance(line["id"], str) or not line["id"]:
            raise DataError(f"id = {line['id']!r}, expected a text that is not empty")
        return example_of(line["id"], self._read(line["board"]))

    def position(self, name: str, board: Board) -> Example:
        """An example of any unfinished board on which X is to move, also of a game that O began.

        The generator draws no board on which O is ahead, and `parse` refuses it: it belongs to no data file.

        Raises:
            DataError: X is not to move on ``board``, or it is finished.
        """
        if board.count(O) - board.count(X) not in (0, 1) or is_finished(board):
            raise DataError(f"board {board}, expected an unfinished one on which X is to move")
        return example_of(name, board)

    def worked_examples(self) -> Sequence[WorkedExample]:
        return [
            WorkedExample(example_of(f"worked-{i}", board), self.wording.call(square))
            for i, (board, square) in enumerate(self.wording.worked, start=1)
        ]

    def system(self) -> str:
        return self.wording.system()

    def user(self, example: Example) -> str:
        return self.wording.show(board_of(example))

    def judge(self, example: Example, call: ToolCall) -> Judgement:
        board, square = begun_by_x(board_of(example)), self.wording.square(call)
        facts = {"square": square, "best": list(best_squares(board))}
        return Judgement(move_outcome(board, square), call, facts)

    def legal_outcomes(self, example: Example) -> Sequence[str]:
        board = begun_by_x(board_of(example))
        return [move_outcome(board, square) for square in free_squares(board)]

    def candidate_calls(self, example: Example) -> Sequence[ToolCall]:
        return [self.wording.call(square) for square in SQUARES]

    def players(self) -> Mapping[str, Mapping[str, str]]:
        return {
            name: {"label": player.label, "description": player.description}
            for name, player in PLAYERS.items()
        }

    def expected_outcomes(self, player: str, example: Example) -> Mapping[str, float]:
        board = begun_by_x(board_of(example))
        expected: dict[str, float] = {}
        for square, probability in PLAYERS[player].choices(board).items():
            outcome = move_outcome(board, square)
            expected[outcome] = expected.get(outcome, 0.0) + probability
        return expected

    def stratum(self, example: Example) -> str:
        return f"marks={marks(board_of(example))}"

    def kind(self, example: Example) -> str:
        board = begun_by_x(board_of(example))
        if winning_squares(board):
            return "win at once"
        if value(board) * (1 if to_move(board) == X else -1) < 0:
            return "lost already"
        if threatened_squares(board):
            return "must block"
        return "win by force" if value(board) else "keep the draw"

    def draw(self, example: Example, calls: Mapping[str, ToolCall | None]) -> str:
        """The board as the rules see it, its squares numbered 1 to 9, in whatever words it was told."""
        return draw_board(board_of(example), {name: self._chosen(call) for name, call in calls.items()})

    def perturbations(self) -> Mapping[str, Perturbation]:
        reworded = {
            name: Perturbation(rewording.description, self.worded(rewording.change(self.wording)))
            for name, rewording in REWORDINGS.items()
        }
        return {**reworded, **self._unseen_boards()}

    def worded(self, wording: Wording) -> TicTacToe:
        """The same task told in other words."""
        other = copy.copy(self)
        other.wording, other.tools, other.decision = wording, wording.tools(), wording.argument
        return other

    def _unseen_boards(self) -> Mapping[str, Perturbation]:
        """Boards of eight marks, unless the generator draws these too."""
        if self.max_moves > 6:
            return {}
        examples = [example_of(f"eight-marks-{i:03d}", board) for i, board in enumerate(all_boards(8, 8))]
        text = "Other boards, of eight marks, which the generator never draws: one square is free."
        return {"eight_marks": Perturbation(text, self, examples)}

    def _read(self, rows: Any) -> Board:
        return _read_board(rows)

    def _chosen(self, call: ToolCall | None) -> int | None:
        """The square that a call names, or None where it is no valid call (drawings show those too)."""
        return self.wording.square(call) if call is not None and self.wording.is_valid(call) else None


def move_outcome(board: Board, square: int) -> str:
    """What it is worth to take ``square`` for the player to move."""
    if square not in free_squares(board):
        return MoveOutcome.OCCUPIED.value
    if square in winning_squares(board):
        return MoveOutcome.WIN.value
    return (MoveOutcome.OPTIMAL if square in optimal_squares(board) else MoveOutcome.LEGAL).value


def example_of(name: str, board: Board) -> Example:
    """The example that shows ``board``."""
    rows = [list(board[row : row + 3]) for row in (0, 3, 6)]
    return Example(id=name, group=canonical(board), data={"board": rows})


def board_of(example: Example) -> Board:
    """The board that ``example`` shows."""
    return "".join(mark for row in example.data["board"] for mark in row)


def _read_board(rows: Any) -> Board:
    """Check the board of a data file.

    Raises:
        DataError: it is not a board on which X is to move.
    """
    board = read_grid(rows)
    if board.count(X) != board.count(O):
        raise DataError(
            f"board {board} holds {board.count(X)} X and {board.count(O)} O, expected as many of each"
        )
    if is_finished(board):
        raise DataError(f"board {board} is finished, expected one on which X is to move")
    return board


def read_grid(rows: Any) -> Board:
    """A board from three rows of three marks.

    Raises:
        DataError: it is something else.
    """
    if not _is_grid(rows):
        raise DataError(f'board = {rows!r}, expected three rows of three, each "X", "O" or "."')
    return "".join(mark for row in rows for mark in row)


def _is_grid(rows: Any) -> bool:
    return (
        isinstance(rows, list)
        and len(rows) == 3
        and all(isinstance(row, list) and len(row) == 3 for row in rows)
        and all(isinstance(mark, str) and mark in (X, O, FREE) for row in rows for mark in row)
    )
