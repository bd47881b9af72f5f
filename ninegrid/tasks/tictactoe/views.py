"""How a board is laid out as rows of text, whatever its squares are called and its marks look like.

Not here: what stands in a square and between two of them (``wording``), which perturbations change; so
every perturbation goes with every view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

View = Callable[[Sequence[str]], Sequence[Sequence[str]]]
"""The texts of the squares 1 to 9 -> the rows that show them."""


def grid(cells: Sequence[str]) -> list[Sequence[str]]:
    """Three rows of three, as on paper."""
    return [cells[row : row + 3] for row in (0, 3, 6)]


VIEWS: Mapping[str, View] = {"grid": grid}
