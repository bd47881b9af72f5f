"""A board as a small SVG, with named choices marked on it.

It stands alone or inside a page: no colour of its own (``currentColor``, which a page may override by
class or by the CSS variables ``--call-NAME``), no ids, no style sheet, and a title and description for
screen readers.  A choice carries its name and a dash pattern, so nothing is told by colour alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from itertools import cycle

from ninegrid.tasks.tictactoe.board import FREE, SQUARES, Board

CELL = 64  # side of a square
EDGE = 4  # room around the board
NOTE = 18  # height of a line of text below it
DASHES = ("none", "5 3", "2 2")


def draw_board(board: Board, choices: Mapping[str, int | None]) -> str:
    """Draw ``board``; each choice is a square from 1 to 9, or None for no valid call."""
    missing = [name for name, square in choices.items() if square is None]
    width = 3 * CELL + 2 * EDGE
    height = width + NOTE * len(missing)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tictactoe" role="img" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}" font-family="sans-serif" text-anchor="middle">',
        "<title>Tic-tac-toe board, X to move</title>",
        f"<desc>{escape(_description(board, choices))}</desc>",
        grid_lines(),
        *(_square(board, square) for square in SQUARES),
        *_choices(choices),
        *(_note(name, width, line) for line, name in enumerate(missing)),
        "</svg>",
    ]
    return "".join(parts)


def _description(board: Board, choices: Mapping[str, int | None]) -> str:
    rows = "; ".join(" ".join(board[row : row + 3].replace(FREE, "-")) for row in (0, 3, 6))
    told = [
        f"{name}: {'no valid call' if square is None else f'square {square}'}"
        for name, square in choices.items()
    ]
    return f"Rows: {rows}. " + "".join(f"{line}. " for line in told).strip()


def grid_lines() -> str:
    """The four lines between the squares."""
    near, far = EDGE, EDGE + 3 * CELL
    lines = "".join(f"M{EDGE + i * CELL} {near}V{far}M{near} {EDGE + i * CELL}H{far}" for i in (1, 2))
    return f'<path class="grid" d="{lines}" fill="none" stroke="currentColor" stroke-opacity="0.5"/>'


def _square(board: Board, square: int) -> str:
    mark = board[square - 1]
    x, y = centre(square)
    if mark == FREE:
        return (
            f'<text class="number" x="{x}" y="{y + 4}" font-size="12" fill="currentColor" '
            f'fill-opacity="0.7">{square}</text>'
        )
    return mark_text(square, mark)


def mark_text(square: int, mark: str, opacity: float = 1.0) -> str:
    """A mark on its square."""
    x, y = centre(square)
    faint = "" if opacity == 1.0 else f' fill-opacity="{opacity}"'
    return (
        f'<text class="mark mark-{mark.lower()}" x="{x}" y="{y + 12}" font-size="34" '
        f'font-weight="bold" fill="currentColor"{faint}>{mark}</text>'
    )


def _choices(choices: Mapping[str, int | None]) -> list[str]:
    """A frame around each chosen square, with the names of those who chose it."""
    chosen: dict[int, list[str]] = {}
    for name, square in choices.items():
        if square is not None:
            chosen.setdefault(square, []).append(name)
    dash = dict(zip(choices, cycle(DASHES), strict=False))
    return [
        _frame(square, names[0], dash[names[0]]) + _labels(square, names) for square, names in chosen.items()
    ]


def _frame(square: int, name: str, dash: str) -> str:
    x, y = centre(square)
    side = CELL - 6
    return (
        f'<rect class="call call-{css_name(name)}" x="{x - side // 2}" y="{y - side // 2}" width="{side}" '
        f'height="{side}" rx="5" fill="none" stroke-width="2" stroke-dasharray="{dash}" '
        f'style="stroke:{ink(name)}"/>'
    )


def _labels(square: int, names: list[str]) -> str:
    """The first name at the top of the square, the others upwards from its bottom."""
    x, y = centre(square)
    lines = [y - CELL // 2 + 14, *(y + CELL // 2 - 8 - 10 * i for i in range(len(names) - 1))]
    return "".join(
        f'<text class="call call-{css_name(name)}" x="{x}" y="{line}" font-size="10" '
        f'style="fill:{ink(name)}">{escape(name)}</text>'
        for name, line in zip(names, lines, strict=True)
    )


def _note(name: str, width: int, line: int) -> str:
    return (
        f'<text class="call call-{css_name(name)}" x="{width // 2}" y="{width + NOTE * line + 12}" '
        f'font-size="11" style="fill:{ink(name)}">{escape(name)}: no valid call</text>'
    )


def centre(square: int) -> tuple[int, int]:
    """The middle of a square."""
    row, column = divmod(square - 1, 3)
    return EDGE + column * CELL + CELL // 2, EDGE + row * CELL + CELL // 2


def ink(name: str) -> str:
    """The colour of a named choice."""
    return f"var(--call-{css_name(name)}, currentColor)"


def css_name(name: str) -> str:
    """A name as part of a CSS class or variable."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unnamed"
