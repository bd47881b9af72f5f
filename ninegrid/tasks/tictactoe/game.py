"""Whole games of tic-tac-toe: the policy moves by tool calls until the game ends.

A run begins with an opening, asked like a single board.  Each move is a call of ``choose_square``; its
result is the board after the opponent's answer, on which the policy moves again.  Words, tool and views are
those of `TicTacToe`, of which this is the other reading: an example is worth what the game ends in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal

from ninegrid.config import require
from ninegrid.errors import DataError
from ninegrid.tasks.protocol import (
    CallOutcome,
    Consultation,
    Example,
    Judgement,
    Observation,
    Perturbation,
    Step,
    ToolCall,
    WorkedExample,
)
from ninegrid.tasks.tictactoe.board import (
    Board,
    O,
    X,
    begun_by_x,
    best_squares,
    free_squares,
    is_finished,
    place,
    to_move,
    value,
)
from ninegrid.tasks.tictactoe.draw_games import draw_games
from ninegrid.tasks.tictactoe.openings import Start, all_openings, draw_openings, plays, seen
from ninegrid.tasks.tictactoe.opponents import (
    Match,
    Move,
    best_response,
    draw_square,
    mixed_move,
    perfect_move,
    random_move,
    result,
)
from ninegrid.tasks.tictactoe.players import PLAYERS
from ninegrid.tasks.tictactoe.task import (
    MoveOutcome,
    TicTacToe,
    board_of,
    example_of,
    move_outcome,
    read_grid,
)

Opponent = Literal["random", "minimax", "mixed", "self"]
BEST_RESPONSE = "best_response"


class GameOutcome(StrEnum):
    """How a game ended, apart from replies that held no acceptable call; worst first."""

    OCCUPIED = "occupied"
    """The policy chose a taken square."""
    LOSS = "loss"
    """The opponent completed a line."""
    DRAW = "draw"
    """The board is full and nobody has a line."""
    WIN = "win"
    """The policy completed a line."""


class TicTacToeGame(TicTacToe):
    """A game from an opening to its end.

    Args:
        min_moves: fewest random moves before the policy's first one, 0 to ``max_moves``.
        max_moves: most of them, up to 8.
        view: how a board is shown; see `TicTacToe`.
        start: whether the policy is who moves ``first``, ``second``, or ``both`` in turn.
        mark: the policy's mark, X or O, whoever moves first.
        opponent: ``random``, ``minimax`` (perfect play), ``mixed`` (each move perfect with probability
            ``skill``, else random), or ``self``: the policy itself, asked about the board from the other
            side; where it replies with no free square, a random one is taken.
        skill: of a ``mixed`` opponent, 0 to 1.

    Raises:
        OutOfRange: for settings that leave no opening, and unknown names.
    """

    name = "tictactoe_game"
    outcomes: Sequence[str] = tuple(str(outcome) for outcome in (*CallOutcome, *GameOutcome))
    milestones: Mapping[str, frozenset[str]] = {
        "legal": frozenset({"loss", "draw", "win"}),
        "not_lost": frozenset({"draw", "win"}),
        "won": frozenset({"win"}),
    }
    score: Mapping[str, float] = {**dict.fromkeys(outcomes, 0.0), "draw": 0.5, "win": 1.0}
    """A game's result as tournaments count it: a game that is not played to its end is lost."""
    max_turns = 5
    step_outcomes: Sequence[str] = (MoveOutcome.LEGAL.value, MoveOutcome.OPTIMAL.value, MoveOutcome.WIN.value)

    def __init__(
        self,
        min_moves: int = 0,
        max_moves: int = 4,
        view: str = "grid",
        start: Start = "both",
        mark: Literal["X", "O"] = "X",
        opponent: Opponent = "random",
        skill: float = 0.5,
    ) -> None:
        super().__init__(min_moves, max_moves, view)
        require(0 <= skill <= 1, "skill", skill, "0 to 1")
        exist = any(plays(start, played) for played in range(min_moves, max_moves + 1))
        require(exist, "start", start, f"one that {min_moves} to {max_moves} moves leave the turn to")
        self.start: Start = start
        self.opponent: Opponent = opponent
        self.skill = skill
        moves: Mapping[Opponent, Move] = {
            "random": random_move,
            "minimax": perfect_move,
            "mixed": mixed_move(skill),
        }
        self.opponent_move = moves.get(opponent)
        if mark == O:
            self.wording = replace(self.wording, marks=(O, X))
            self.tools = self.wording.tools()

    @property
    def environment(self) -> Mapping[str, Any]:
        """See `Interactive.environment`."""
        return {"opponent": self.opponent, **({"skill": self.skill} if self.opponent == "mixed" else {})}

    def begin(self, example: Example, draws: Sequence[float]) -> Run:
        """See `Interactive.begin`."""
        return Run(self, example, draws)

    def available(self) -> int:
        return len(all_openings(self.min_moves, self.max_moves, self.start))

    def generate(self, count: int, seed: int) -> list[Example]:
        boards = draw_openings(count, seed, self.min_moves, self.max_moves, self.start)
        return [example_of(f"opening-{i:05d}", board) for i, board in enumerate(boards)]

    def worked_examples(self) -> Sequence[WorkedExample]:
        """Those of single moves, each gone on by one move of both if the game is not over."""
        return [replace(worked, after=self._gone_on(worked)) for worked in super().worked_examples()]

    def judge(self, example: Example, call: ToolCall) -> Judgement:
        """What a first move leads to if both play perfectly from there on."""
        board, square = begun_by_x(board_of(example)), self.wording.square(call)
        if square not in free_squares(board):
            return Judgement(GameOutcome.OCCUPIED.value, call, {"square": square})
        worth = value(place(board, square)) * (1 if to_move(board) == X else -1)
        outcome = (GameOutcome.LOSS, GameOutcome.DRAW, GameOutcome.WIN)[worth + 1]
        return Judgement(outcome.value, call, {"square": square})

    def legal_outcomes(self, example: Example) -> Sequence[str]:
        """None: what a move is worth hangs on the moves after it."""
        return ()

    def players(self) -> Mapping[str, Mapping[str, str]]:
        known = dict(super().players())
        if self.opponent_move is not None:
            text = "Knows how the opponent chooses, and gets the most out of it."
            known[BEST_RESPONSE] = {"label": "best response", "description": text}
        return known

    def expected_outcomes(self, player: str, example: Example) -> Mapping[str, float]:
        """Exact, over every course that a game can take; against ``self`` the player meets itself."""
        return self._matches[player].outcomes(begun_by_x(board_of(example)))

    def kind(self, example: Example) -> str:
        board = begun_by_x(board_of(example))
        worth = value(board) * (1 if to_move(board) == X else -1)
        hope = ("lost against perfect play", "drawn by perfect play", "won by perfect play")[worth + 1]
        return f"{'moves first' if to_move(board) == X else 'moves second'}, {hope}"

    def draw_runs(self, example: Example, runs: Mapping[str, Mapping[str, Any]]) -> str:
        """See `Interactive.draw_runs`."""
        return draw_games(board_of(example), {name: facts.get("moves", []) for name, facts in runs.items()})

    def _read(self, rows: Any) -> Board:
        return _read_opening(rows)

    def _gone_on(self, worked: WorkedExample) -> Sequence[WorkedExample]:
        board = place(begun_by_x(board_of(worked.example)), self.wording.square(worked.call))
        if is_finished(board):
            return ()
        board = place(board, best_squares(board)[0])
        if is_finished(board):
            return ()
        later = example_of(f"{worked.example.id}-later", seen(board, to_move(board)))
        return (WorkedExample(later, self.wording.call(best_squares(board)[0])),)

    def _unseen_boards(self) -> Mapping[str, Perturbation]:
        return {}

    @cached_property
    def _matches(self) -> Mapping[str, Match]:
        ways: dict[str, Move] = {name: player.choices for name, player in PLAYERS.items()}
        if self.opponent_move is not None:
            ways[BEST_RESPONSE] = best_response(self.opponent_move)
        return {name: Match(way, self.opponent_move) for name, way in ways.items()}


class Run:
    """A game that is being played; a `Course`.

    Attributes:
        steps: what each legal move of the policy was worth by itself, as `TicTacToe` judges it.
    """

    def __init__(self, game: TicTacToeGame, example: Example, draws: Sequence[float]) -> None:
        self._game, self._example = game, example
        self._draws = iter(draws)
        self._board = begun_by_x(board_of(example))
        self._mark = to_move(self._board)
        self._moves: list[int] = []
        self._strayed = 0
        self.steps: list[str] = []

    def step(self, call: ToolCall) -> Step:
        """See `Course.step`."""
        square = self._game.wording.square(call)
        if square not in free_squares(self._board):
            return Judgement(GameOutcome.OCCUPIED.value, call, self._facts(square))
        self.steps.append(move_outcome(self._board, square))
        self._place(square)
        if is_finished(self._board):
            return self._over()
        if self._game.opponent_move is None:
            name = f"{self._example.id}-other-{len(self._moves)}"
            return Consultation(example_of(name, seen(self._board, to_move(self._board))))
        return self._replied(draw_square(self._game.opponent_move(self._board), next(self._draws)))

    def answer(self, call: ToolCall | None) -> Step:
        """See `Course.answer`."""
        square = None if call is None else self._game.wording.square(call)
        if square not in free_squares(self._board):
            self._strayed += 1
            square = draw_square(random_move(self._board), next(self._draws))
        return self._replied(square)

    def fail(self, judgement: Judgement) -> Judgement:
        """See `Course.fail`."""
        return replace(judgement, facts={**judgement.facts, **self._facts()})

    def _replied(self, square: int) -> Step:
        self._place(square)
        if is_finished(self._board):
            return self._over()
        return Observation(self._game.wording.show(seen(self._board, self._mark)))

    def _place(self, square: int) -> None:
        self._board = place(self._board, square)
        self._moves.append(square)

    def _over(self) -> Judgement:
        return Judgement(result(self._board, self._mark), facts=self._facts())

    def _facts(self, chosen: int | None = None) -> dict[str, Any]:
        """The squares in the order of play, the policy's first, and at which of its moves the run ended.

        Args:
            chosen: the taken square that ended it.
        """
        own = len(self._moves[::2])
        over = is_finished(self._board)
        facts: dict[str, Any] = {"moves": list(self._moves), "move": own if over else own + 1}
        if chosen is not None:
            facts["square"] = chosen
        if self._strayed:
            facts["opponent_strayed"] = self._strayed
        return facts


def _read_opening(rows: Any) -> Board:
    """Check the board of a data file.

    Raises:
        DataError: it is not an unfinished board on which X is to move, having moved first or second.
    """
    board = read_grid(rows)
    if board.count(O) - board.count(X) not in (0, 1):
        raise DataError(
            f"board {board} holds {board.count(X)} X and {board.count(O)} O, expected as many O or one more"
        )
    if is_finished(board):
        raise DataError(f"board {board} is finished, expected one on which X is to move")
    return board
