"""Openings: unfinished boards from which whole games are played, drawn by random play.

Boards are told in the player's eyes: its own marks are X, whoever moved first.  Where O is one ahead, the
player follows.  Not here: boards for single moves (``generate``), on which X always moved first.
"""

from __future__ import annotations

import random
from functools import cache
from typing import Literal

from ninegrid.tasks.tictactoe.board import (
    EMPTY_BOARD,
    Board,
    X,
    free_squares,
    is_finished,
    marks,
    place,
    swapped,
    to_move,
)

Start = Literal["first", "second", "both"]
"""Whether the player moved, or moves, first."""


def seen(board: Board, mark: str) -> Board:
    """The board in the eyes of the player with ``mark``."""
    return board if mark == X else swapped(board)


def plays(start: Start, played: int) -> bool:
    """Whether the player whose turn it is after ``played`` moves is one that is asked for."""
    return start == "both" or (played % 2 == 0) == (start == "first")


@cache
def all_openings(fewest: int, most: int, start: Start) -> tuple[Board, ...]:
    """Every opening after ``fewest`` to ``most`` moves, by number of marks and then in text order."""
    boards: list[Board] = []
    level = {EMPTY_BOARD}
    for played in range(most + 1):
        if played >= fewest and plays(start, played):
            boards += sorted(level)
        after = {place(board, square) for board in level for square in free_squares(board)}
        level = {board for board in after if not is_finished(board)}
    return tuple(seen(board, to_move(board)) for board in boards)


def draw_openings(count: int, seed: int, fewest: int, most: int, start: Start) -> list[Board]:
    """Draw until ``count`` distinct openings are found, in order of drawing.

    The number of moves is uniform among those that are asked for, each move uniform among the free squares;
    the same seed gives the same openings.

    Raises:
        ValueError: fewer than ``count`` exist, so the draw would never end.
    """
    exist = len(all_openings(fewest, most, start))
    if count > exist:
        raise ValueError(f"{count} distinct openings asked for, {exist} exist for {fewest} to {most} moves")
    lengths = [played for played in range(fewest, most + 1) if plays(start, played)]
    rng = random.Random(seed)
    kept: dict[Board, None] = {}
    while len(kept) < count:
        board = _played(rng, rng.choice(lengths))
        if not is_finished(board):
            kept.setdefault(seen(board, to_move(board)))
    return list(kept)


def _played(rng: random.Random, moves: int) -> Board:
    board = EMPTY_BOARD
    while marks(board) < moves and not is_finished(board):
        board = place(board, rng.choice(free_squares(board)))
    return board
