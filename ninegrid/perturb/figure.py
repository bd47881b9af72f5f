"""The figure: for each perturbation the score before and after training, beside the unperturbed ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ninegrid.report.canvas import AFTER, BEFORE, INK, PAPER, Layout, legend, tidy
from ninegrid.report.figures import Plot
from ninegrid.report.inputs import DECODINGS
from ninegrid.report.text import number, visible, words

Json = Mapping[str, Any]

ROW = 0.34
"""Inches for each row."""
LOOKS = {"untrained": (BEFORE, "D", 0.16), "trained": (AFTER, "o", -0.16)}
"""Colour, marker and place in the row; the marker tells them apart without colour."""
DASHES = {"untrained": (0, (1, 1.5)), "trained": (0, (5, 2.5))}
MARKED = "*"
"""Behind the name of a perturbation with boards of its own."""


def perturbed_plot(record: Json) -> Plot:
    """The figure with its description."""
    return Plot("perturbed", _label(record), lambda layout: perturbed(record, layout))


def perturbed(record: Json, layout: Layout) -> Figure:
    """A panel for each decoding, a row for each perturbation."""
    rows = len(record["perturbations"])
    panel = ROW * rows + 0.2
    height = (2 * panel + 2.0) if layout.narrow else panel + 1.5
    figure = layout.figure(height)
    shape = (2, 1) if layout.narrow else (1, 2)
    panels = figure.subplots(*shape, sharex=True, sharey=True)
    margins = layout.inches(1.75, 0.15, 0.4, 1.1, height)
    figure.subplots_adjust(wspace=0.06, hspace=0.6 / panel, **margins)
    for axes, decoding in zip(panels.flat, DECODINGS, strict=True):
        tidy(axes, layout, decoding)
        _rows(axes, record, decoding, layout)
    legend(figure, _legend(record), layout, 2)
    return figure


def _rows(axes: Axes, record: Json, decoding: str, layout: Layout) -> None:
    plain = record["unperturbed"][decoding]
    for policy, (colour, _, _) in LOOKS.items():
        axes.axvline(plain[policy]["score"]["mean"], color=colour, linewidth=1.2, linestyle=DASHES[policy])
    for y, found in enumerate(record["perturbations"].values()):
        for policy, (colour, marker, shift) in LOOKS.items():
            _mark(axes, y + shift, found[decoding][policy]["score"], colour, marker)
    names = [
        visible(words(name)) + ("" if found["paired"] else MARKED)
        for name, found in record["perturbations"].items()
    ]
    axes.set_yticks(range(len(names)), names, fontsize=layout.font, color=INK)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(True, axis="x")
    axes.grid(False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("mean score", fontsize=layout.font)
    axes.xaxis.set_major_locator(MaxNLocator(5))


def _mark(axes: Axes, y: float, score: Json, colour: str, marker: str) -> None:
    if score["low"] is not None and score["high"] is not None:
        axes.plot([score["low"], score["high"]], [y, y], color=colour, linewidth=2, solid_capstyle="butt")
    face = colour if marker == "o" else PAPER
    axes.plot([score["mean"]], [y], marker, color=colour, markerfacecolor=face, markersize=5.5)


def _legend(record: Json) -> list[Artist]:
    dots: list[Artist] = [
        Line2D(
            [],
            [],
            color=colour,
            marker=marker,
            linestyle="",
            markersize=5.5,
            markerfacecolor=colour if marker == "o" else PAPER,
            label=policy,
        )
        for policy, (colour, marker, _) in LOOKS.items()
    ]
    lines: list[Artist] = [
        Line2D([], [], color=colour, linewidth=1.2, linestyle=DASHES[policy], label=f"{policy}, unperturbed")
        for policy, (colour, _, _) in LOOKS.items()
    ]
    if all(found["paired"] for found in record["perturbations"].values()):
        return [*dots, *lines]
    return [*dots, *lines, Line2D([], [], linestyle="", label=f"{MARKED} boards of its own")]


def _label(record: Json) -> str:
    parts = []
    for decoding in DECODINGS:
        told = [("unperturbed", record["unperturbed"]), *record["perturbations"].items()]
        scores = "; ".join(f"{words(name)} {_scores(found[decoding])}" for name, found in told)
        parts.append(f"{decoding}: {scores}")
    return f"Mean score of the untrained and the trained policy. {'. '.join(parts)}."


def _scores(side: Json) -> str:
    return " and ".join(number(side[policy]["score"]["mean"], 2) for policy in LOOKS)
