"""Opponents for whole games, and what a game against one of them is worth, worked out exactly.

An opponent is a probability for each free square.  Not here: the policy as its own opponent, whose moves only
the policy knows (``game``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from itertools import accumulate

from ninegrid.tasks.tictactoe.board import (
    Board,
    X,
    free_squares,
    has_line,
    is_finished,
    place,
    to_move,
)
from ninegrid.tasks.tictactoe.players import PLAYERS, evenly

Choices = Mapping[int, float]
Move = Callable[[Board], Choices]
"""The board on which somebody is to move -> probability of each square that may be chosen."""

WIN, DRAW, LOSS, OCCUPIED = "win", "draw", "loss", "occupied"
RESULT = {LOSS: 0.0, DRAW: 0.5, WIN: 1.0}
"""A game's result as tournaments count it."""


random_move: Move = PLAYERS["random_legal"].choices
perfect_move: Move = PLAYERS["minimax"].choices


def mixed_move(skill: float) -> Move:
    """Perfect with probability ``skill``, else random, decided anew at every move."""

    def choose(board: Board) -> Choices:
        best = perfect_move(board)
        return {
            square: skill * best.get(square, 0.0) + (1 - skill) * chance
            for square, chance in random_move(board).items()
        }

    return choose


def draw_square(choices: Choices, uniform: float) -> int:
    """The square at which the running sum of the probabilities first exceeds the uniform."""
    squares = sorted(choices)
    sums = accumulate(choices[square] for square in squares)
    # Rounding may leave the last sum short of 1.
    return next((s for s, until in zip(squares, sums, strict=True) if uniform < until), squares[-1])


def result(board: Board, mark: str) -> str:
    """How a finished game ended for ``mark``."""
    other = "O" if mark == X else X
    if has_line(board, mark):
        return WIN
    return LOSS if has_line(board, other) else DRAW


class Match:
    """A player against an opponent: exact probabilities of how their games end.

    Args:
        player: may choose a taken square, which ends the game as `OCCUPIED`.
        opponent: chooses free squares only; None for the player itself, whose every choice of a taken square
            is replaced by a random free one when it plays the other side.
    """

    def __init__(self, player: Move, opponent: Move | None) -> None:
        self._player, self._opponent = player, opponent
        self._known: dict[tuple[Board, str], Mapping[str, float]] = {}

    def outcomes(self, board: Board) -> Mapping[str, float]:
        """Outcome -> probability, for the side that is to move on an unfinished board."""
        return self._expect(board, to_move(board))

    def _expect(self, board: Board, mark: str) -> Mapping[str, float]:
        if is_finished(board):
            return {result(board, mark): 1.0}
        if (board, mark) not in self._known:
            mine = to_move(board) == mark
            choices = self._player(board) if mine else self._replies(board)
            expected: dict[str, float] = {}
            for square, chance in choices.items():
                if not chance:
                    continue
                after = {OCCUPIED: 1.0}
                if square in free_squares(board):
                    after = dict(self._expect(place(board, square), mark))
                for outcome, probability in after.items():
                    expected[outcome] = expected.get(outcome, 0.0) + chance * probability
            self._known[board, mark] = expected
        return self._known[board, mark]

    def _replies(self, board: Board) -> Choices:
        if self._opponent is not None:
            return self._opponent(board)
        wished = self._player(board)
        free = free_squares(board)
        astray = sum(chance for square, chance in wished.items() if square not in free)
        return {square: wished.get(square, 0.0) + astray / len(free) for square in free}


def best_response(opponent: Move) -> Move:
    """The player that gets the most out of this opponent, by the exact expectation of `RESULT`.

    Against an opponent that errs it is more than perfect play, which only makes sure of what the board is
    worth.
    """

    @cache
    def worth(board: Board, mark: str) -> float:
        if is_finished(board):
            return RESULT[result(board, mark)]
        if to_move(board) == mark:
            return max(worth(place(board, square), mark) for square in free_squares(board))
        return sum(p * worth(place(board, square), mark) for square, p in opponent(board).items())

    def choose(board: Board) -> Choices:
        mark = to_move(board)
        after = {square: worth(place(board, square), mark) for square in free_squares(board)}
        most = max(after.values())
        return evenly(tuple(square for square, value in after.items() if value > most - 1e-12))

    return choose
