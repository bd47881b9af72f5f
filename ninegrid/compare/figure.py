"""The two figures: each loop's score with its interval, and the courses of their trainings on one another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ninegrid.compare.loop import Loop
from ninegrid.experiments.drawing import dot, mark, reference_lines
from ninegrid.report.canvas import AFTER, BEFORE, Layout, legend, say, step_axis, tidy
from ninegrid.report.figures import Plot
from ninegrid.report.inputs import DECODINGS, column
from ninegrid.report.stats import clustered_mean, smooth, smoothing_window
from ninegrid.report.text import number, visible

HUES = ("#0173b2", "#d55e01", "#019e73", "#cc79a8", "#e69f01", "#56b4ea", "#000001")
"""Okabe and Ito's colours, each a hair off a role's, so that dark mode leaves them as they are."""
DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
"""Told apart without colour; a pair of hue and dash repeats after 28 loops."""
COURSES = (
    ("rollout/score_mean", "score on training examples, mean of a step"),
    ("rollout/decision_entropy", "entropy of the decision, nats"),
)
ROW = 0.34


def plots(loops: Sequence[Loop]) -> list[Plot]:
    """Both figures with their descriptions."""
    scores = "; ".join(
        f"{loop.name} {number(loop.comparison['sampled']['score']['after'])}" for loop in loops
    )
    return [
        Plot("scores", f"Held-out score, sampled: {scores}.", lambda layout: draw_scores(loops, layout)),
        Plot(
            "courses",
            f"Score and entropy in the course of {len(loops)} trainings.",
            lambda layout: draw_courses(loops, layout),
        ),
    ]


def draw_scores(loops: Sequence[Loop], layout: Layout) -> Figure:
    """A row for each loop, a panel for each decoding."""
    panel = 0.5 + ROW * len(loops)
    height = 2 * panel + 3.0 if layout.narrow else panel + 1.9
    figure = layout.figure(height)
    grid = figure.subplots(*((2, 1) if layout.narrow else (1, 2)), sharey=True, sharex=True)
    figure.subplots_adjust(
        wspace=0.08, hspace=1.2 / panel, **layout.inches(1.7 if layout.narrow else 2.2, 0.3, 1.0, 0.9, height)
    )
    panels = list(grid.flat)
    for axes, decoding in zip(panels, DECODINGS, strict=True):
        tidy(axes, layout)
        axes.grid(False)
        for y, loop in enumerate(loops):
            confidence = loop.comparison["bootstrap"]["confidence"]
            of_decoding = [e for e in loop.episodes if e["decoding"] == decoding]
            mean = clustered_mean(of_decoding, "score", confidence)
            if mean is not None:
                mark(axes, y, mean.value, mean.low, mean.high, AFTER, 5)
        axes.set_yticks(range(len(loops)), [visible(loop.name) for loop in loops], fontsize=layout.font)
        axes.set_ylim(len(loops) - 0.4, -0.6)
        axes.set_xlabel(f"held-out score, {decoding}", fontsize=layout.font)
    figure.canvas.draw()  # fixes the limits that labels are spread within
    for axes, decoding in zip(panels, DECODINGS, strict=True):
        reference_lines(axes, _beside(loops[0]), decoding, layout)
    baseline = Line2D([], [], color=BEFORE, linewidth=1.4, label="untrained, as the first loop asks it")
    legend(
        figure,
        [dot(AFTER, 5, "trained, interval over examples"), baseline],
        layout,
        1 if layout.narrow else 2,
    )
    return figure


def _beside(loop: Loop) -> list[tuple[str, dict[str, float]]]:
    untrained = {d: loop.comparison[d]["score"]["before"] for d in DECODINGS}
    players = {name: dict.fromkeys(DECODINGS, score) for name, score in loop.comparison["players"].items()}
    return [("baseline", untrained), *players.items()]


def draw_courses(loops: Sequence[Loop], layout: Layout) -> Figure:
    """Each training as a line, smoothed."""
    rows = -(-len(loops) // (1 if layout.narrow else 3))
    foot = 0.75 + 0.2 * rows
    height = (5.4 if layout.narrow else 2.7) + foot
    figure = layout.figure(height)
    grid = figure.subplots(*((2, 1) if layout.narrow else (1, 2)))
    figure.subplots_adjust(wspace=0.2, hspace=0.45, **layout.inches(0.7, 0.12, 0.4, foot, height))
    for axes, (name, title) in zip(grid.flat, COURSES, strict=True):
        tidy(axes, layout, title)
        drawn = False
        for i, loop in enumerate(loops):
            values = column(loop.steps, name)
            line = smooth(values, smoothing_window(len(values)))
            known = [
                (x, y) for x, y in zip(column(loop.steps, "step"), line, strict=True) if None not in (x, y)
            ]
            if known:
                axes.plot(*zip(*known, strict=True), **_look(i), linewidth=1.6)
                drawn = True
        if drawn:
            step_axis(axes, [], layout)
        else:
            say(axes, "no training steps", layout)
    handles: list[Artist] = [
        Line2D([], [], **_look(i), label=visible(loop.name)) for i, loop in enumerate(loops)
    ]
    legend(figure, handles, layout, 1 if layout.narrow else 3)
    return figure


def _look(index: int) -> dict[str, Any]:
    return {"color": HUES[index % len(HUES)], "linestyle": DASHES[index // len(HUES) % len(DASHES)]}
