"""The picture of a sweep: a heat map over two axes, a curve over one of numbers, else a row a setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from ninegrid.experiments.drawing import BASELINE_LINE, PLAYER_LINE, dot, mark, reference_lines
from ninegrid.experiments.spread import references
from ninegrid.report.canvas import AFTER, BEFORE, INK, MUTED, WIDE, Layout, legend, spread, tidy
from ninegrid.report.palette import readable_on
from ninegrid.report.svg import drawing_rules, png, standalone, svg
from ninegrid.report.text import number, visible, words
from ninegrid.sweep.cells import shown
from ninegrid.sweep.rank import Setting

ROW_INCHES = 0.3
COLOURS = "cividis"
"""Of the heat map: even in lightness, and the same to readers who do not tell red from green."""
SCORE = "held-out score, sampled"


def draw_sweep(name: str, settings: Sequence[Setting]) -> tuple[str, bytes]:
    """The picture as a file of SVG and one of PNG; equal results give equal bytes.

    Args:
        settings: ranked, best first; not empty.
    """
    axes = [key for key, _ in settings[0].values]
    best = f"{_name(settings[0])}, {number(settings[0].score)}"
    label = f"Held-out score of {len(settings)} settings of {name}. Best: {best}."
    with drawing_rules("sweep"):
        if len(axes) == 2:
            figure = _heat_map(settings, WIDE)
        elif len(axes) == 1 and all(_is_number(setting.values[0][1]) for setting in settings):
            figure = _curve(settings, WIDE)
        else:
            figure = _rows(settings, WIDE)
        return standalone(svg(figure, "sweep"), visible(label)), png(figure)


def _heat_map(settings: Sequence[Setting], layout: Layout) -> Figure:
    """Score by colour and number: the first axis downwards, the second to the right."""
    (down, _), (right, _) = settings[0].values
    y_values, x_values = (_ordered([s.values[axis][1] for s in settings]) for axis in (0, 1))
    height = 1.5 + 0.55 * len(y_values)
    figure = layout.figure(height)
    axes = figure.subplots()
    figure.subplots_adjust(**layout.inches(1.6, 0.3, 0.35, 1.15, height))
    tidy(axes, layout, SCORE)
    axes.grid(False)
    scale = Normalize(min(s.score for s in settings), max(s.score for s in settings))
    for setting in settings:
        x, y = x_values.index(setting.values[1][1]), y_values.index(setting.values[0][1])
        colour = to_hex(matplotlib.colormaps[COLOURS](scale(setting.score)))
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor="none"))
        axes.text(x, y, _cell_text(setting), ha="center", va="center", color=readable_on(colour),
                  fontsize=layout.font)  # fmt: skip
    axes.set_xlim(-0.5, len(x_values) - 0.5)
    axes.set_ylim(len(y_values) - 0.5, -0.5)
    axes.set_xticks(range(len(x_values)), [visible(shown(v)) for v in x_values], fontsize=layout.font)
    axes.set_yticks(range(len(y_values)), [visible(shown(v)) for v in y_values], fontsize=layout.font)
    axes.set_xlabel(visible(right), fontsize=layout.font)
    axes.set_ylabel(visible(down), fontsize=layout.font)
    for side in axes.spines.values():
        side.set_visible(False)
    figure.text(0.012, 0.1 / height, visible(_beside(settings)), fontsize=layout.font, color=MUTED, wrap=True)
    return figure


def _cell_text(setting: Setting) -> str:
    ends = setting.interval()
    text = number(setting.score)
    return f"{text}\n{number(ends[0])} to {number(ends[1])}" if ends else text


def _beside(settings: Sequence[Setting]) -> str:
    """The baseline and the players in words, since a heat map has no place for lines."""
    shown_scores = (f"{words(label)} {number(scores['sampled'])}" for label, scores in _references(settings))
    return "beside: " + ", ".join(shown_scores)


def _curve(settings: Sequence[Setting], layout: Layout) -> Figure:
    """Score over the axis: a dot for each seed, and a line through the means with their intervals."""
    height = 3.6
    figure = layout.figure(height)
    axes = figure.subplots()
    figure.subplots_adjust(**layout.inches(0.75, 1.9, 0.3, 1.0, height))
    tidy(axes, layout)
    ordered = sorted(settings, key=lambda setting: setting.values[0][1])
    x = [setting.values[0][1] for setting in ordered]
    axes.plot(x, [setting.score for setting in ordered], "o-", color=INK, linewidth=1.6, markersize=5)
    for setting in ordered:
        value, ends = setting.values[0][1], setting.interval()
        if ends:
            axes.plot([value, value], ends, color=INK, linewidth=2.2, solid_capstyle="butt")
        for result in setting.results:
            axes.plot([value], [result.figures["sampled"].score], "o", color=AFTER, markersize=4, alpha=0.7)
    _level_lines(axes, settings, layout)
    axes.set_xticks(x, [shown(value) for value in x])
    axes.set_xlabel(visible(settings[0].values[0][0]), fontsize=layout.font)
    axes.set_ylabel(SCORE, fontsize=layout.font)
    legend(figure, _handles(settings), layout, 3)
    return figure


def _level_lines(axes: Axes, settings: Sequence[Setting], layout: Layout) -> None:
    """A dashed line for each player, a solid one for the baseline, named at the right."""
    shown_scores = [(label, scores["sampled"]) for label, scores in _references(settings)]
    seen = [*axes.get_ylim(), *(score for _, score in shown_scores)]
    pad = 0.03 * (max(seen) - min(seen))
    axes.set_ylim(min(seen) - pad, max(seen) + pad)
    places = spread([score for _, score in shown_scores], 2 * pad)
    for (label, score), place in zip(shown_scores, places, strict=True):
        style = BASELINE_LINE if label == "baseline" else PLAYER_LINE
        axes.axhline(score, **style)
        axes.annotate(
            visible(words(label)),
            xy=(1.01, place),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=layout.font - 1,
            color=style["color"],
            annotation_clip=False,
        )


def _rows(settings: Sequence[Setting], layout: Layout) -> Figure:
    """A row for each setting, best first: its seeds, their mean and its interval."""
    height = 1.75 + ROW_INCHES * len(settings)
    figure = layout.figure(height)
    axes = figure.subplots()
    figure.subplots_adjust(**layout.inches(3.6, 0.6, 0.95, 0.8, height))
    tidy(axes, layout)
    axes.grid(False)
    for y, setting in enumerate(settings):
        _setting_row(axes, y, setting)
    axes.set_yticks(range(len(settings)), [visible(_name(s)) for s in settings], fontsize=layout.font - 1)
    axes.set_ylim(len(settings) - 0.4, -0.6)
    axes.set_xlabel(SCORE, fontsize=layout.font)
    figure.canvas.draw()  # fixes the limits that labels are spread within
    reference_lines(axes, _references(settings), "sampled", layout)
    legend(figure, _handles(settings), layout, 3)
    return figure


def _setting_row(axes: Axes, y: float, setting: Setting) -> None:
    low, high = setting.interval() or (None, None)
    mark(axes, y, setting.score, low, high, INK, 6)
    if len(setting.results) > 1:
        for result in setting.results:
            mark(axes, y, result.figures["sampled"].score, None, None, AFTER, 4)


def _references(settings: Sequence[Setting]) -> list[tuple[str, Any]]:
    return list(references(settings[0].results))


def _handles(settings: Sequence[Setting]) -> list[Artist]:
    several = any(len(setting.results) > 1 for setting in settings)
    means = dot(
        INK,
        6,
        "mean, t interval over seeds (of one seed: over boards)"
        if several
        else "score, interval over boards",
    )
    seeds = [Line2D([], [], color=AFTER, marker="o", linestyle="", markersize=4, label="one seed")]
    return [means, *(seeds if several else []), Line2D([], [], color=BEFORE, linewidth=1.4, label="baseline")]


def _name(setting: Setting) -> str:
    named = (f"{key.rpartition('.')[2]}={shown(value)}" for key, value in setting.values)
    return "  ".join(named) or "the only one"


def _ordered(values: Sequence[Any]) -> list[Any]:
    """Distinct values: numbers by size, others as they come in the alphabet."""
    distinct = [value for i, value in enumerate(values) if value not in values[:i]]
    return sorted(distinct) if all(map(_is_number, distinct)) else sorted(distinct, key=str)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
