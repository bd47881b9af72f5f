"""Reference players: what simple ways of playing earn, worked out exactly and not by trying.

A player is a probability for each of the squares 1 to 9; it may choose a taken one.  Not here: what
a choice amounts to (``task``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ninegrid.tasks.tictactoe.board import SQUARES, Board, best_squares, free_squares


@dataclass(frozen=True)
class Player:
    """A way of playing X, with its name and one sentence for charts and reports.

    ``choices`` gives the probability of each square that may be chosen; they sum to 1.
    """

    label: str
    description: str
    choices: Callable[[Board], Mapping[int, float]]


def evenly(squares: tuple[int, ...]) -> dict[int, float]:
    """Each of the squares with the same probability."""
    return {square: 1 / len(squares) for square in squares}


PLAYERS: Mapping[str, Player] = {
    "uniform": Player(
        "any square",
        "Picks one of the nine squares at random, taken or not.",
        lambda board: evenly(tuple(SQUARES)),
    ),
    "centre": Player(
        "always the centre",
        "Picks square 5 on every board, taken or not.",
        lambda board: {5: 1.0},
    ),
    "random_legal": Player(
        "random legal",
        "Picks one of the free squares at random.",
        lambda board: evenly(free_squares(board)),
    ),
    "first_empty": Player(
        "first free square",
        "Picks the free square with the lowest number.",
        lambda board: {free_squares(board)[0]: 1.0},
    ),
    "minimax": Player(
        "perfect play",
        "Wins at once where it can, and otherwise picks a move that minimax calls optimal.",
        lambda board: evenly(best_squares(board)),
    ),
}
"""Weakest first, by the published table over all boards of the default settings."""
