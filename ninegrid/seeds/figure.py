"""The picture of the seeds: a dot with its interval for each, their mean, and lines to compare with."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ninegrid.report.canvas import AFTER, BEFORE, INK, MUTED, WIDE, Layout, legend, spread, tidy
from ninegrid.report.svg import drawing_rules, png, standalone, svg
from ninegrid.report.text import number, visible, words
from ninegrid.seeds.results import DECODINGS, SeedResult
from ninegrid.seeds.spread import Spread, references, spreads

ROW_INCHES = 0.3


def draw_seeds(name: str, results: Sequence[SeedResult]) -> tuple[str, bytes]:
    """The picture as a file of SVG and one of PNG; equal results give equal bytes."""
    with drawing_rules("seeds"):
        figure = _figure(results, WIDE)
        return standalone(svg(figure, "seeds"), _label(name, results)), png(figure)


def _label(name: str, results: Sequence[SeedResult]) -> str:
    found = spreads(results)
    means = ", ".join(f"{d} {number(found[f'{d}/score'].mean)}" for d in DECODINGS)
    return visible(f"Held-out score of {name} over {len(results)} seeds. Mean: {means}.")


def _figure(results: Sequence[SeedResult], layout: Layout) -> Figure:
    height = 1.75 + ROW_INCHES * (len(results) + 1)
    figure = layout.figure(height)
    panels = figure.subplots(1, len(DECODINGS), sharey=True, sharex=True)
    figure.subplots_adjust(wspace=0.08, **layout.inches(0.75, 0.2, 0.95, 0.8, height))
    for axes, decoding in zip(panels, DECODINGS, strict=True):
        tidy(axes, layout)
        axes.grid(False)
        _rows(axes, results, decoding)
        axes.set_yticks(
            range(len(results) + 1), [*(f"seed {r.seed}" for r in results), "mean"], fontsize=layout.font
        )
        axes.set_ylim(len(results) + 0.6, -0.6)
        axes.set_xlabel(f"held-out score, {decoding}", fontsize=layout.font)
    figure.canvas.draw()  # fixes the limits that labels are spread within
    for axes, decoding in zip(panels, DECODINGS, strict=True):
        _lines(axes, results, decoding, layout)
    legend(figure, _handles(), layout, 3)
    return figure


def _rows(axes: Axes, results: Sequence[SeedResult], decoding: str) -> None:
    for y, result in enumerate(results):
        found = result.figures[decoding]
        _mark(axes, y, found.score, found.low, found.high, AFTER, 5)
    mean: Spread = spreads(results)[f"{decoding}/score"]
    _mark(axes, len(results), mean.mean, mean.low, mean.high, INK, 7)


def _mark(
    axes: Axes, y: float, value: float, low: float | None, high: float | None, colour: str, points: int
) -> None:
    if low is not None and high is not None:
        axes.plot([low, high], [y, y], color=colour, linewidth=2.2, solid_capstyle="butt")
    axes.plot([value], [y], "o", color=colour, markersize=points)


def _lines(axes: Axes, results: Sequence[SeedResult], decoding: str, layout: Layout) -> None:
    """A dashed line for each player, a solid one for the baseline, named above the panel."""
    shown = [(label, scores[decoding]) for label, scores in references(results)]
    low, high = axes.get_xlim()
    low, high = min([low, *(v for _, v in shown)]), max([high, *(v for _, v in shown)])
    pad = 0.04 * (high - low or 1)
    axes.set_xlim(low - pad, high + pad)
    places = spread([value for _, value in shown], (high - low + 2 * pad) * 0.055)
    for (label, value), place in zip(shown, places, strict=True):
        baseline = label == "baseline"
        colour = BEFORE if baseline else MUTED
        axes.axvline(
            value,
            color=colour,
            linewidth=1.4 if baseline else 0.9,
            linestyle="-" if baseline else (0, (4, 3)),
        )
        axes.annotate(
            visible(words(label)),
            xy=(value, 1),
            xytext=(place, 1.06),
            xycoords=("data", "axes fraction"),
            textcoords=("data", "axes fraction"),
            rotation=35,
            fontsize=layout.font - 1,
            color=colour,
            annotation_clip=False,
        )


def _handles() -> list[Artist]:
    return [
        _dot(AFTER, 5, "one seed, interval over boards"),
        _dot(INK, 7, "mean, t interval over seeds"),
        Line2D([], [], color=BEFORE, linewidth=1.4, label="baseline"),
    ]


def _dot(colour: str, points: int, label: str) -> Line2D:
    return Line2D([], [], color=colour, marker="o", linewidth=2.2, markersize=points, label=label)
