"""Players that need no model: perfect play, and random legal moves."""

from __future__ import annotations

import random
import time

from ninegrid.play.game import Answer, Decoding, Game
from ninegrid.tasks.tictactoe import TicTacToe
from ninegrid.tasks.tictactoe.board import SQUARES, begun_by_x, best_squares
from ninegrid.tasks.tictactoe.players import PLAYERS

REFERENCE = {"perfect": "minimax", "random": "random_legal"}
"""Names on the page -> names among the task's reference players."""


class ReferencePlayer:
    """Draws from the choices of one of the task's reference players; it writes no reply.

    Args:
        task: judges the move.
        player: its name among the task's players; it has to choose free squares.
    """

    def __init__(self, task: TicTacToe, player: str) -> None:
        self._task, self._player = task, PLAYERS[player]

    def answer(self, game: Game, decoding: Decoding) -> Answer:
        """A move on the game's board."""
        started = time.perf_counter()
        board = begun_by_x(game.board)
        choices = self._player.choices(board)
        square = random.choices(list(choices), list(choices.values()))[0]
        example = self._task.position(f"play-{game.id}", game.board)
        judged = self._task.judge(example, self._task.wording.call(square))
        return Answer(
            board=game.board,
            decoding=decoding,
            attempt=game.attempts,
            outcome=judged.outcome,
            why=None,
            call=None,
            best=best_squares(board),
            square=square,
            chances=tuple(choices.get(s, 0.0) for s in SQUARES),
            seconds=time.perf_counter() - started,
        )
