"""Boards for the policy to move on, drawn by random play.

The eight rules of a draw:

1. start from the empty board of three by three squares, free squares written ``.``;
2. X moves first, then they take turns;
3. the number of random moves is uniform from ``fewest`` to ``most`` (0 to 6 by default);
4. each move is uniform among the free squares;
5. stop when somebody has a line or the board is full;
6. where O is to move at the end, O makes one more random move;
7. keep the board only if it is X's turn, the game is not over and it was not drawn before;
8. the same seed gives the same boards in the same order.

Not here: the split into training and held-out boards, which is the same for every task.
"""

from __future__ import annotations

import random
from functools import cache

from ninegrid.tasks.tictactoe.board import EMPTY_BOARD, Board, X, free_squares, is_finished, place, to_move


def draw_boards(count: int, seed: int, fewest: int, most: int) -> list[Board]:
    """Draw until ``count`` distinct boards are found, in order of drawing.

    Raises:
        ValueError: fewer than ``count`` exist, so the draw would never end.
    """
    exist = len(all_boards(fewest, most))
    if count > exist:
        raise ValueError(f"{count} distinct boards asked for, {exist} exist for {fewest} to {most} moves")
    rng = random.Random(seed)
    kept: dict[Board, None] = {}
    while len(kept) < count:
        board = _draw(rng, fewest, most)
        if to_move(board) == X and not is_finished(board):
            kept.setdefault(board)
    return list(kept)


def _draw(rng: random.Random, fewest: int, most: int) -> Board:
    """One game of random moves; it may be over."""
    board = EMPTY_BOARD
    for _ in range(rng.randint(fewest, most)):
        if is_finished(board):
            return board
        board = place(board, rng.choice(free_squares(board)))
    if to_move(board) != X and not is_finished(board):
        board = place(board, rng.choice(free_squares(board)))
    return board


@cache
def all_boards(fewest: int, most: int) -> tuple[Board, ...]:
    """Every board that a draw can keep, by number of marks and then in text order."""
    boards: list[Board] = []
    level = {EMPTY_BOARD}
    for played in range(most + most % 2 + 1):
        if played % 2 == 0 and played >= fewest:
            boards += sorted(level)
        level = {after for board in level for after in _unfinished_after(board)}
    return tuple(boards)


def _unfinished_after(board: Board) -> list[Board]:
    after = (place(board, square) for square in free_squares(board))
    return [board for board in after if not is_finished(board)]
