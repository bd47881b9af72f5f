"""The figure of the reward: how it rose while training, and what the held-out boards say of it."""

from __future__ import annotations

import textwrap

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ninegrid.report.canvas import (
    AFTER,
    BEFORE,
    MUTED,
    PAPER,
    REWARD,
    Layout,
    curve,
    legend,
    spread,
    step_axis,
    tidy,
)
from ninegrid.report.inputs import DECODINGS, ReportInputs, Rows, column
from ninegrid.report.stats import Mean, clustered_mean, smoothing_window
from ninegrid.report.text import number, visible


def held_out(inputs: ReportInputs) -> dict[tuple[str, str], Mean]:
    """(when, decoding) -> mean score with its clustered interval."""
    sides = {"before": inputs.baseline_episodes, "after": inputs.retest_episodes}
    found = {
        (when, decoding): clustered_mean(
            [e for e in episodes if e["decoding"] == decoding], "score", inputs.confidence
        )
        for when, episodes in sides.items()
        for decoding in DECODINGS
    }
    return {key: mean for key, mean in found.items() if mean is not None}


def reward(inputs: ReportInputs, steps: Rows, layout: Layout) -> Figure:
    """Training curve, held-out means before and after, reference players as lines."""
    height = 4.6 if layout.narrow else 4.2
    figure = layout.figure(height)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1.6, 1) if layout.narrow else (3.2, 1))
    margins = layout.inches(
        0.62, 1.05 if layout.narrow else 1.75, 0.42, 1.15 if layout.narrow else 0.95, height
    )
    figure.subplots_adjust(wspace=0.06, **margins)
    tidy(left, layout, "training boards" if not layout.narrow else "training")
    tidy(right, layout, "held-out")
    _training_curve(left, inputs, steps, layout)
    _held_out_marks(right, held_out(inputs), layout)
    _player_lines(figure, (left, right), inputs, layout, height * (margins["top"] - margins["bottom"]))
    legend(figure, _reward_legend(inputs, len(steps)), layout, 2 if layout.narrow else 5)
    return figure


def _training_curve(axes: Axes, inputs: ReportInputs, steps: Rows, layout: Layout) -> None:
    x = column(steps, "step")
    score = column(steps, "rollout/score_mean")
    if not any(v is not None for v in score):
        axes.set_xticks([])
        axes.text(0.5, 0.05, "no training steps", transform=axes.transAxes, ha="center", fontsize=layout.font)
        return
    if inputs.reward_differs:
        curve(axes, x, column(steps, "rollout/rewards_mean"), REWARD)
    curve(axes, x, score, AFTER)
    step_axis(axes, x, layout)
    label = "mean score, mean reward" if inputs.reward_differs else "mean score"
    axes.set_ylabel(label, fontsize=layout.font)


def _held_out_marks(axes: Axes, means: dict[tuple[str, str], Mean], layout: Layout) -> None:
    places = {"before": 0, "after": 1}
    for decoding, shift in (("sampled", -0.11), ("greedy", 0.11)):
        seen = [(places[w] + shift, means[w, decoding], w) for w in places if (w, decoding) in means]
        axes.plot(
            [x for x, _, _ in seen], [m.value for _, m, _ in seen], color=MUTED, linewidth=0.8, alpha=0.7
        )
        for x, mean, when in seen:
            colour = AFTER if when == "after" else BEFORE
            if mean.low is not None and mean.high is not None:
                axes.plot([x, x], [mean.low, mean.high], color=colour, linewidth=2.2, solid_capstyle="butt")
            face = colour if decoding == "sampled" else PAPER
            marker = "o" if decoding == "sampled" else "D"
            axes.plot(
                [x],
                [mean.value],
                marker,
                color=colour,
                markerfacecolor=face,
                markersize=6,
                markeredgewidth=1.5,
            )
    axes.set_xlim(-0.5, 1.5)
    axes.set_xticks([0, 1], list(places), fontsize=layout.font)
    axes.spines["left"].set_visible(False)


def _player_lines(
    figure: Figure, pair: tuple[Axes, Axes], inputs: ReportInputs, layout: Layout, height: float
) -> None:
    left, right = pair
    players = list(inputs.players.values())
    values = [float(p["expected"]) for p in players]
    low, high = left.get_ylim()
    low, high = min([low, *values]), max([high, *values])
    pad = 0.04 * (high - low or 1)
    left.set_ylim(low - pad, high + pad)
    span = high - low + 2 * pad
    labels = [
        _wrapped(f"{visible(p['label'])} {number(v, 2)}", layout)
        for p, v in zip(players, values, strict=True)
    ]
    lines = max((label.count("\n") + 1 for label in labels), default=1)
    gap = span * (layout.font * 1.3 * lines + 2) / 72 / height
    for label, value, place in zip(labels, values, spread(values, gap), strict=True):
        for axes in pair:
            axes.axhline(value, color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
        right.annotate(
            label,
            xy=(1, value),
            xytext=(1.07, place),
            xycoords=("axes fraction", "data"),
            textcoords=("axes fraction", "data"),
            fontsize=layout.font - (0.5 if layout.narrow else 0),
            color=MUTED,
            va="center",
            linespacing=1.15,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": MUTED, "linewidth": 0.7, "shrinkA": 0, "shrinkB": 0},
        )


def _wrapped(label: str, layout: Layout) -> str:
    return "\n".join(textwrap.wrap(label, 13 if layout.narrow else 26))


def _reward_legend(inputs: ReportInputs, n: int) -> list[Artist]:
    handles: list[Artist] = []
    if n:
        label = f"score, mean of {smoothing_window(n)} steps"
        handles.append(Line2D([], [], color=AFTER, linewidth=1.8, label=label))
        handles.append(
            Line2D(
                [],
                [],
                color=AFTER,
                marker="o",
                linestyle="",
                alpha=0.35,
                markersize=4,
                label="score, one step",
            )
        )
    if n and inputs.reward_differs:
        handles.append(Line2D([], [], color=REWARD, linewidth=1.8, label="reward in force"))
    handles.append(
        Line2D([], [], color=AFTER, marker="o", linestyle="", markersize=6, label="held-out, sampled")
    )
    handles.append(
        Line2D(
            [],
            [],
            color=AFTER,
            marker="D",
            markerfacecolor=PAPER,
            linestyle="",
            markersize=5.5,
            label="held-out, greedy",
        )
    )
    return handles


def reward_label(inputs: ReportInputs, steps: Rows) -> str:
    means = held_out(inputs)
    said = ", ".join(f"{d} {w} {number(m.value, 2)}" for (w, d), m in means.items())
    players = ", ".join(f"{p['label']} {number(p['expected'], 2)}" for p in inputs.players.values())
    known = [v for v in column(steps, "rollout/score_mean") if v is not None]
    course = (
        f"from {number(known[0], 2)} to {number(known[-1], 2)} in {len(steps)} steps" if known else "no steps"
    )
    return f"Mean score while training, {course}. Held-out: {said}. Reference players: {players}."
