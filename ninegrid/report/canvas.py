"""Shared ground of the figures: the two layouts, and the small pieces each figure is made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ninegrid.report.palette import ROLES
from ninegrid.report.stats import smooth, smoothing_window

Series = Sequence[float | None]
INK, MUTED, PAPER, BEFORE, AFTER, REWARD = (
    ROLES[role][0] for role in ("ink", "muted", "paper", "before", "after", "reward")
)


@dataclass(frozen=True)
class Layout:
    """Where a figure is read.  ``width`` in inches, ``font`` in points."""

    name: str
    width: float
    font: float

    @property
    def narrow(self) -> bool:
        return self.name == "narrow"

    def figure(self, height: float) -> Figure:
        """An empty figure of this width and ``height`` inches."""
        return Figure(figsize=(self.width, height), facecolor="none")

    def inches(self, left: float, right: float, top: float, bottom: float, height: float) -> dict[str, float]:
        """Margins in inches as the fractions that ``subplots_adjust`` takes."""
        return {
            "left": left / self.width,
            "right": 1 - right / self.width,
            "top": 1 - top / height,
            "bottom": bottom / height,
        }


WIDE = Layout("wide", 9.4, 8.5)
NARROW = Layout("narrow", 4.3, 9.5)


def tidy(axes: Axes, layout: Layout, title: str = "") -> None:
    """Font sizes, no tick stubs, an optional title at the left."""
    axes.tick_params(labelsize=layout.font, length=0, pad=4)
    axes.set_facecolor("none")
    if title:
        axes.set_title(title, fontsize=layout.font + 1, fontweight="bold", pad=8)


def curve(axes: Axes, x: Series, values: Series, colour: str) -> None:
    """Each step as a light point, and the smoothed line over them."""
    axes.plot(_gaps(x), _gaps(values), "o", color=colour, alpha=0.45, markersize=2.6, markeredgewidth=0)
    line = smooth(values, smoothing_window(len(values)))
    axes.plot(_gaps(x), _gaps(line), color=colour, linewidth=1.8)


def _gaps(values: Series) -> list[float]:
    """Missing values as NaN, which matplotlib leaves out of a line."""
    return [math.nan if v is None else v for v in values]


def step_axis(axes: Axes, x: Series, layout: Layout) -> None:
    """Whole training steps along the bottom."""
    axes.set_xlabel("training step", fontsize=layout.font)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    if len(x) == 1 and x[0] is not None:
        axes.set_xlim(x[0] - 1, x[0] + 1)


def say(axes: Axes, text: str, layout: Layout) -> None:
    """A sentence where there is nothing to plot, and no scale that would suggest there were."""
    axes.text(
        0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", fontsize=layout.font, color=MUTED
    )
    axes.tick_params(labelleft=False, labelbottom=False)
    axes.grid(False)


def legend(
    figure: Figure, handles: Sequence[Artist], layout: Layout, columns: int, bottom: float = 0.0
) -> None:
    """A legend along the foot of the figure, read row by row."""
    figure.legend(
        handles=row_major(handles, columns),
        loc="lower left",
        bbox_to_anchor=(0.0, bottom),
        ncols=columns,
        fontsize=layout.font,
        handlelength=1.6,
        columnspacing=1.6,
        labelspacing=0.45,
        borderaxespad=0.4,
    )


def row_major(handles: Sequence[Artist], columns: int) -> list[Artist]:
    """Reorder so that matplotlib, which fills column by column, shows them row by row."""
    rows = -(-len(handles) // columns)
    full = len(handles) - (rows - 1) * columns
    lengths = [rows if c < full else rows - 1 for c in range(columns)]
    return [handles[r * columns + c] for c in range(columns) for r in range(lengths[c])]


def spread(values: Sequence[float], gap: float) -> list[float]:
    """Nearest places for labels at ``values`` (any order) that are at least ``gap`` apart.

    Labels that collide form a block around their common mean; blocks that then collide merge.
    """
    order = sorted(range(len(values)), key=lambda i: (values[i], i))
    blocks: list[list[int]] = []
    for i in order:
        blocks.append([i])
        while (
            len(blocks) > 1 and _start(blocks[-1], values, gap) - _end(blocks[-2], values, gap) < gap - 1e-9
        ):
            last = blocks.pop()
            blocks[-1].extend(last)
    places = [0.0] * len(values)
    for block in blocks:
        start = _start(block, values, gap)
        for k, i in enumerate(block):
            places[i] = start + k * gap
    return places


def _start(block: Sequence[int], values: Sequence[float], gap: float) -> float:
    return sum(values[i] for i in block) / len(block) - gap * (len(block) - 1) / 2


def _end(block: Sequence[int], values: Sequence[float], gap: float) -> float:
    return _start(block, values, gap) + gap * (len(block) - 1)
