"""A game between a person and a player: the moves, whose turn it is, and what the player replied.

The player always holds X, as the policy did in training, and the person O; either may begin.  Not here: how
a reply comes about (``players``) and how a game is drawn.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from ninegrid.tasks.tictactoe.board import (
    EMPTY_BOARD,
    LINES,
    Board,
    O,
    X,
    free_squares,
    is_finished,
    marks,
)

Mark = Literal["X", "O"]
Decoding = Literal["greedy", "sampled"]


@dataclass(frozen=True)
class Answer:
    """What a player made of one board.

    Attributes:
        board: what it was asked about.
        decoding: how a policy's reply was decoded.
        attempt: how often it had been asked about this board before.
        prompt, prompt_sha256, prompt_tokens: the exact prompt; None for a player that reads none.
        reply: raw text without the stop token; None for a player that writes none.
        tokens: its ids as sampled.
        n_tokens, finish: of the reply.
        outcome, why, call, best: the judgement.
        named: the square of a call that fits the schema, taken or free.
        square: the same if it is free, or None where no move came out of the reply.
        chances: probability of each of the squares 1 to 9; of a policy, that its reply is that call.  None
            until they are worked out, which takes as long as the reply itself.
        seconds: from question to answer.
    """

    board: Board
    decoding: Decoding
    attempt: int
    outcome: str
    why: str | None
    call: Mapping[str, Any] | None
    best: tuple[int, ...]
    square: int | None
    seconds: float
    chances: tuple[float, ...] | None = None
    named: int | None = None
    prompt: str | None = None
    prompt_sha256: str | None = None
    prompt_tokens: int = 0
    reply: str | None = None
    tokens: tuple[int, ...] = ()
    n_tokens: int = 0
    finish: str = "stop"

    @property
    def anything_else(self) -> float:
        """The probability that is on none of the nine squares, once `chances` are known."""
        return max(0.0, 1.0 - sum(self.chances or ()))


@dataclass(frozen=True)
class Move:
    """A mark on a square; ``by`` says whose it is: "you", "reply", or "random" in place of a reply."""

    mark: Mark
    square: int
    by: Literal["you", "reply", "random"]


@dataclass(frozen=True)
class Game:
    """A game so far; moves make new ones.

    Attributes:
        id: random, short; names the game's episodes and seeds its draws.
        opponent: name of the player that holds X.
        first: who moves first on ``start``.
        start: the board it began on.
        moves: since then.
        answers: every reply that the player gave, also those that led to no move.
    """

    opponent: str
    first: Mark = "X"
    start: Board = EMPTY_BOARD
    moves: tuple[Move, ...] = ()
    answers: tuple[Answer, ...] = ()
    id: str = field(default_factory=lambda: secrets.token_hex(4))

    @property
    def board(self) -> Board:
        squares = list(self.start)
        for move in self.moves:
            squares[move.square - 1] = move.mark
        return "".join(squares)

    @property
    def turn(self) -> Mark | None:
        """Whose turn it is; None when the game is over."""
        if is_finished(self.board):
            return None
        other: Mark = "O" if self.first == "X" else "X"
        return self.first if len(self.moves) % 2 == 0 else other

    @property
    def line(self) -> tuple[int, int, int] | None:
        """The squares of a completed line."""
        marks = {line: {self.board[square - 1] for square in line} for line in LINES}
        return next((line for line, found in marks.items() if found in ({X}, {O})), None)

    @property
    def winner(self) -> Mark | None:
        line = self.line
        return None if line is None else ("X" if self.board[line[0] - 1] == X else "O")

    @property
    def last(self) -> Answer | None:
        """The last reply."""
        return self.answers[-1] if self.answers else None

    @property
    def failed(self) -> Answer | None:
        """The last reply to the present board, if no move came out of it."""
        last = self.last
        return last if last is not None and last.board == self.board and self.turn == X else None

    @property
    def attempts(self) -> int:
        """How often the player has been asked about the present board."""
        return sum(answer.board == self.board for answer in self.answers)

    def back_at(self, board: Board) -> Game:
        """The game when it stood at ``board``, one of its own, before any reply to it."""
        answers = tuple(answer for answer in self.answers if marks(answer.board) < marks(board))
        return replace(self, moves=self.moves[: marks(board) - marks(self.start)], answers=answers)

    def human(self, square: int) -> Game:
        """The game after your move.

        Raises:
            ValueError: it is not your turn, or the square is taken.
        """
        return self._moved(Move("O", square, "you"))

    def answered(self, answer: Answer) -> Game:
        """The game after a reply to the present board, with its move if there is one."""
        if answer.board != self.board or self.turn != X:
            raise ValueError(f"a reply to {answer.board}, but {self.turn} is to move on {self.board}")
        noted = replace(self, answers=(*self.answers, answer))
        return noted if answer.square is None else noted._moved(Move("X", answer.square, "reply"))

    def weighed(self, board: Board, chances: tuple[float, ...]) -> Game:
        """The game with the probabilities of its replies to ``board``."""
        answers = (replace(a, chances=chances) if a.board == board else a for a in self.answers)
        return replace(self, answers=tuple(answers))

    def substituted(self, square: int) -> Game:
        """The game after a random move in place of a reply."""
        return self._moved(Move("X", square, "random"))

    def _moved(self, move: Move) -> Game:
        if self.turn != move.mark:
            raise ValueError(f"{move.mark} is not to move on {self.board}")
        if move.square not in free_squares(self.board):
            raise ValueError(f"square {move.square} of {self.board} is taken")
        return replace(self, moves=(*self.moves, move))


def prompt_hash(prompt: str) -> str:
    """The sha256 of a prompt's UTF-8 bytes, in hex."""
    return hashlib.sha256(prompt.encode()).hexdigest()


def to_json(game: Game) -> dict[str, Any]:
    """A game as plain data."""
    return asdict(game)


def from_json(raw: Mapping[str, Any]) -> Game:
    """A game from `to_json`.

    Raises:
        TypeError, KeyError, ValueError: ``raw`` is no game.
    """
    moves = tuple(Move(**move) for move in raw["moves"])
    answers = tuple(_answer(answer) for answer in raw["answers"])
    return Game(**{**raw, "moves": moves, "answers": answers})


def _answer(raw: Mapping[str, Any]) -> Answer:
    chances = None if raw["chances"] is None else tuple(raw["chances"])
    given = {**raw, "best": tuple(raw["best"]), "tokens": tuple(raw["tokens"]), "chances": chances}
    return Answer(**given)
