"""What the pictures of several results have in common: a dot with its interval, and lines to compare with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ninegrid.report.canvas import BEFORE, MUTED, Layout, spread
from ninegrid.report.text import visible, words

BASELINE_LINE: dict[str, Any] = {"color": BEFORE, "linewidth": 1.4, "linestyle": "-"}
PLAYER_LINE: dict[str, Any] = {"color": MUTED, "linewidth": 0.9, "linestyle": (0, (4, 3))}
"""How matplotlib draws the scores that results are set beside."""


def mark(
    axes: Axes, y: float, value: float, low: float | None, high: float | None, colour: str, points: int
) -> None:
    """A dot at ``value`` in row ``y``, and its interval as a line if it has one."""
    if low is not None and high is not None:
        axes.plot([low, high], [y, y], color=colour, linewidth=2.2, solid_capstyle="butt")
    axes.plot([value], [y], "o", color=colour, markersize=points)


def reference_lines(
    axes: Axes, references: Sequence[tuple[str, Mapping[str, float]]], decoding: str, layout: Layout
) -> None:
    """A dashed line for each player, a solid one for the baseline, named above the panel."""
    shown = [(label, scores[decoding]) for label, scores in references]
    low, high = axes.get_xlim()
    low, high = min([low, *(v for _, v in shown)]), max([high, *(v for _, v in shown)])
    pad = 0.04 * (high - low or 1)
    axes.set_xlim(low - pad, high + pad)
    places = spread([value for _, value in shown], (high - low + 2 * pad) * 0.055)
    for (label, value), place in zip(shown, places, strict=True):
        style = BASELINE_LINE if label == "baseline" else PLAYER_LINE
        axes.axvline(value, **style)
        axes.annotate(
            visible(words(label)),
            xy=(value, 1),
            xytext=(place, 1.06),
            xycoords=("data", "axes fraction"),
            textcoords=("data", "axes fraction"),
            rotation=35,
            fontsize=layout.font - 1,
            color=style["color"],
            annotation_clip=False,
        )


def dot(colour: str, points: int, label: str) -> Line2D:
    """The legend's entry for what `mark` draws."""
    return Line2D([], [], color=colour, marker="o", linewidth=2.2, markersize=points, label=label)
