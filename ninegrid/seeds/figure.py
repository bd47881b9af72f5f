"""The picture of the seeds: a dot with its interval for each, their mean, and lines to compare with."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ninegrid.experiments.drawing import dot, mark, reference_lines
from ninegrid.experiments.results import DECODINGS, Result, seed_of
from ninegrid.experiments.spread import Spread, references, spreads
from ninegrid.report.canvas import AFTER, BEFORE, INK, WIDE, Layout, legend, tidy
from ninegrid.report.svg import drawing_rules, png, standalone, svg
from ninegrid.report.text import number, visible

ROW_INCHES = 0.3


def draw_seeds(name: str, results: Sequence[Result]) -> tuple[str, bytes]:
    """The picture as a file of SVG and one of PNG; equal results give equal bytes."""
    with drawing_rules("seeds"):
        figure = _figure(results, WIDE)
        return standalone(svg(figure, "seeds"), _label(name, results)), png(figure)


def _label(name: str, results: Sequence[Result]) -> str:
    found = spreads(results)
    means = ", ".join(f"{d} {number(found[f'{d}/score'].mean)}" for d in DECODINGS)
    return visible(f"Held-out score of {name} over {len(results)} seeds. Mean: {means}.")


def _figure(results: Sequence[Result], layout: Layout) -> Figure:
    height = 1.75 + ROW_INCHES * (len(results) + 1)
    figure = layout.figure(height)
    panels = figure.subplots(1, len(DECODINGS), sharey=True, sharex=True)
    figure.subplots_adjust(wspace=0.08, **layout.inches(0.75, 0.2, 0.95, 0.8, height))
    for axes, decoding in zip(panels, DECODINGS, strict=True):
        tidy(axes, layout)
        axes.grid(False)
        _rows(axes, results, decoding)
        axes.set_yticks(
            range(len(results) + 1), [*(f"seed {seed_of(r)}" for r in results), "mean"], fontsize=layout.font
        )
        axes.set_ylim(len(results) + 0.6, -0.6)
        axes.set_xlabel(f"held-out score, {decoding}", fontsize=layout.font)
    figure.canvas.draw()  # fixes the limits that labels are spread within
    for axes, decoding in zip(panels, DECODINGS, strict=True):
        reference_lines(axes, references(results), decoding, layout)
    legend(figure, _handles(), layout, 3)
    return figure


def _rows(axes: Axes, results: Sequence[Result], decoding: str) -> None:
    for y, result in enumerate(results):
        found = result.figures[decoding]
        mark(axes, y, found.score, found.low, found.high, AFTER, 5)
    mean: Spread = spreads(results)[f"{decoding}/score"]
    mark(axes, len(results), mean.mean, mean.low, mean.high, INK, 7)


def _handles() -> list[Artist]:
    return [
        dot(AFTER, 5, "one seed, interval over boards"),
        dot(INK, 7, "mean, t interval over seeds"),
        Line2D([], [], color=BEFORE, linewidth=1.4, label="baseline"),
    ]
