"""Whole games as a small SVG: below each other, for each a board with its moves in the order of play.

Like `draw_board` it brings no colour of its own and tells nothing by colour alone: a move carries its number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from ninegrid.tasks.tictactoe.board import FREE, SQUARES, Board, O, X
from ninegrid.tasks.tictactoe.draw import CELL, EDGE, centre, css_name, grid_lines, ink, mark_text

GAP = 10  # between two boards
TITLE = 20  # height of a board's name above it


def draw_games(board: Board, games: Mapping[str, Sequence[int]]) -> str:
    """Draw a game for each name.

    Args:
        board: the opening in the policy's eyes: it plays X and is to move.
        games: the squares taken, the policy's first.
    """
    side = 3 * CELL + 2 * EDGE
    width, height = side, len(games) * (side + TITLE + GAP) - GAP
    boards = [
        f'<g transform="translate(0 {i * (side + TITLE + GAP)})">{_game(board, name, moves, side)}</g>'
        for i, (name, moves) in enumerate(games.items())
    ]
    told = [f"{name}: squares {', '.join(map(str, moves)) or 'none'}." for name, moves in games.items()]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tictactoe" role="img" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}" font-family="sans-serif" text-anchor="middle">'
        f"<title>Games of tic-tac-toe, the policy plays X</title><desc>{escape(' '.join(told))}</desc>"
        f"{''.join(boards)}</svg>"
    )


def _game(board: Board, name: str, moves: Sequence[int], side: int) -> str:
    label = (
        f'<text class="call call-{css_name(name)}" x="{side // 2}" y="12" font-size="12" '
        f'style="fill:{ink(name)}">{escape(name)}</text>'
    )
    numbers = {square: number for number, square in enumerate(moves, start=1)}
    squares = "".join(_square(board, square, numbers.get(square)) for square in SQUARES)
    return f'{label}<g transform="translate(0 {TITLE})">{grid_lines()}{squares}</g>'


def _square(board: Board, square: int, number: int | None) -> str:
    """An opening mark is faint; a mark of the game carries the number of its move."""
    if number is None:
        return "" if board[square - 1] == FREE else mark_text(square, board[square - 1], opacity=0.45)
    x, y = centre(square)
    return mark_text(square, X if number % 2 else O) + (
        f'<text class="number" x="{x + CELL // 2 - 9}" y="{y - CELL // 2 + 14}" font-size="10" '
        f'fill="currentColor" fill-opacity="0.7">{number}</text>'
    )
