"""The figures: what each one shows and how it is drawn, in a wide and a narrow layout.

Every figure is a pure function of the inputs; saving and recolouring is `ninegrid.report.svg`.
Numbers shown here stand in tables on the page as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from ninegrid.report.canvas import (
    AFTER,
    BEFORE,
    INK,
    PAPER,
    Layout,
    curve,
    legend,
    say,
    step_axis,
    tidy,
)
from ninegrid.report.inputs import DECODINGS, ReportInputs, Rows, column
from ninegrid.report.palette import outcome_colours, readable_on
from ninegrid.report.reward_figure import reward, reward_label
from ninegrid.report.text import number, percent, visible, words

HEALTH = (
    (
        "train/informative_groups",
        "informative groups",
        "share whose samples differ in reward; others teach nothing",
    ),
    (
        "rollout/decision_entropy",
        "entropy of the decision",
        "in nats: how open the choice still is; near 0, a habit",
    ),
    ("train/grad_norm", "gradient norm", "before it is clipped; spikes are a warning"),
    ("train/clip_fraction", "clip fraction", "share of ratios where the objective's clipping acts"),
)
"""Column, title and explanation of the small multiples."""


@dataclass(frozen=True)
class Plot:
    """One figure: its file name, what it says to someone who cannot see it, how it is drawn."""

    name: str
    label: str
    draw: Callable[[Layout], Figure]


def plots(inputs: ReportInputs, steps: Rows) -> list[Plot]:
    """Every figure of the report, in the order of the page."""
    return [
        Plot("reward", reward_label(inputs, steps), lambda layout: reward(inputs, steps, layout)),
        Plot("outcomes", _outcomes_label(inputs), lambda layout: outcomes(inputs, layout)),
        Plot("length", _length_label(inputs), lambda layout: length(inputs, steps, layout)),
        Plot("health", _health_label(steps), lambda layout: health(steps, layout)),
    ]


# --- outcomes ---------------------------------------------------------------------------------


def outcomes(inputs: ReportInputs, layout: Layout) -> Figure:
    """Share of each outcome before and after, worst at the left."""
    legend_rows = -(-len(inputs.outcomes) // (2 if layout.narrow else 4))
    foot = 0.42 + legend_rows * layout.font * 1.75 / 72
    height = 2.5 + foot
    figure = layout.figure(height)
    axes = figure.subplots()
    figure.subplots_adjust(**layout.inches(0.72 if layout.narrow else 1.15, 0.3, 0.1, foot, height))
    tidy(axes, layout)
    colours = _colours(inputs)
    places = (0.0, 0.85, 2.05, 2.9)
    rows = [(d, w) for d in DECODINGS for w in ("before", "after")]
    for y, (decoding, when) in zip(places, rows, strict=True):
        metrics = inputs.baseline_metrics if when == "before" else inputs.retest_metrics
        shares = {o: float(metrics[decoding]["outcomes"][o]["rate"]) for o in inputs.outcomes}
        _stack(axes, y, shares, colours, layout)
    split = "\n" if layout.narrow else " "
    axes.set_yticks(places, [f"{d}{split}{w}" for d, w in rows], fontsize=layout.font, color=INK)
    axes.set_ylim(places[-1] + 0.5, -0.5)
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.grid(False)
    axes.spines["left"].set_visible(False)
    handles: list[Artist] = [Patch(facecolor=colours[o], label=visible(words(o))) for o in inputs.outcomes]
    legend(figure, handles, layout, 2 if layout.narrow else 4)
    return figure


def _stack(axes: Axes, y: float, shares: dict[str, float], colours: dict[str, str], layout: Layout) -> None:
    start, smallest = 0.0, 0.1 if layout.narrow else 0.045
    for outcome, share in shares.items():
        if share > 0:
            axes.barh(y, share, 0.72, left=start, color=colours[outcome], edgecolor=PAPER, linewidth=1)
        if share >= smallest:
            axes.text(
                start + share / 2,
                y,
                percent(share, 0),
                ha="center",
                va="center",
                fontsize=layout.font,
                color=readable_on(colours[outcome]),
            )
        start += share


def _colours(inputs: ReportInputs) -> dict[str, str]:
    weakest = next(iter(inputs.milestones.values()), ())
    return outcome_colours(inputs.outcomes, frozenset(weakest))


def _outcomes_label(inputs: ReportInputs) -> str:
    parts = []
    for decoding in DECODINGS:
        before, after = (m[decoding]["outcomes"] for m in (inputs.baseline_metrics, inputs.retest_metrics))
        rates = ", ".join(
            f"{words(o)} {percent(before[o]['rate'], 0)} to {percent(after[o]['rate'], 0)}"
            for o in inputs.outcomes
        )
        parts.append(f"{decoding}: {rates}")
    return f"Share of each outcome before and after. {'; '.join(parts)}."


# --- response length --------------------------------------------------------------------------


def length(inputs: ReportInputs, steps: Rows, layout: Layout) -> Figure:
    """How long held-out replies are before and after, and the mean length while training."""
    height = 5.2 if layout.narrow else 2.9
    figure = layout.figure(height)
    shape = (2, 1) if layout.narrow else (1, 2)
    first, second = figure.subplots(*shape)
    foot = 0.85 if not layout.narrow else 0.95
    figure.subplots_adjust(wspace=0.2, hspace=0.62, **layout.inches(0.72, 0.12, 0.4, foot, height))
    tidy(first, layout, "held-out replies, sampled")
    tidy(second, layout, "mean while training")
    _length_histogram(first, inputs, layout)
    x, values = column(steps, "step"), column(steps, "rollout/response_len_mean")
    if any(v is not None for v in values):
        curve(second, x, values, AFTER)
        step_axis(second, x, layout)
        second.set_ylabel("tokens", fontsize=layout.font)
    else:
        say(second, "no training steps", layout)
    legend(
        figure, [Patch(facecolor=BEFORE, label="before"), Patch(facecolor=AFTER, label="after")], layout, 2
    )
    return figure


def _length_histogram(axes: Axes, inputs: ReportInputs, layout: Layout) -> None:
    sides = ((inputs.baseline_episodes, BEFORE, -0.5), (inputs.retest_episodes, AFTER, 0.0))
    counts = [Counter(int(e["n_tokens"]) for e in eps if e["decoding"] == "sampled") for eps, _, _ in sides]
    seen = [n for c in counts for n in c]
    if not seen:
        return say(axes, "no sampled replies", layout)
    low, high = min(seen), max(seen)
    bin_width = -(-(high - low + 1) // 24)
    for tally, (_, colour, shift) in zip(counts, sides, strict=True):
        bins = Counter(dict.fromkeys(range(low, high + 1, bin_width), 0))
        for n, times in tally.items():
            bins[low + (n - low) // bin_width * bin_width] += times
        total = sum(tally.values()) or 1
        centre = (bin_width - 1) / 2
        places = [b + centre + (shift + 0.25) * 0.86 * bin_width for b in bins]
        axes.bar(places, [n / total for n in bins.values()], 0.42 * bin_width, color=colour)
    axes.set_xlabel("tokens in the reply", fontsize=layout.font)
    axes.set_ylabel("share of replies", fontsize=layout.font)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.xaxis.set_major_locator(MaxNLocator(7, integer=True))


def _length_label(inputs: ReportInputs) -> str:
    lengths = inputs.comparison["sampled"]["response_len"]
    return (
        f"Length of held-out replies: {number(lengths['before'], 1)} tokens before, "
        f"{number(lengths['after'], 1)} after, on average; and mean length while training."
    )


# --- training health --------------------------------------------------------------------------


def health(steps: Rows, layout: Layout) -> Figure:
    """Four small multiples that show whether training worked as it should."""
    height = 7.6 if layout.narrow else 4.2
    figure = layout.figure(height)
    grid = figure.subplots(*((4, 1) if layout.narrow else (2, 2)), sharex=True)
    figure.subplots_adjust(wspace=0.2, hspace=0.42, **layout.inches(0.55, 0.12, 0.4, 0.5, height))
    cells = list(grid.flat)
    x = column(steps, "step")
    for axes, (name, title, _) in zip(cells, HEALTH, strict=True):
        tidy(axes, layout, title)
        values = column(steps, name)
        if not any(v is not None for v in values):
            say(axes, "not recorded" if steps else "no training steps", layout)
            continue
        curve(axes, x, values, AFTER)
        known = [v for v in values if v is not None]
        axes.set_ylim(min(0.0, *known), 1.08 * max(known) if max(known) > 0 else None)
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}".replace("-", "−")))
    for axes in cells[-1:] if layout.narrow else cells[-2:]:
        if steps:
            step_axis(axes, x, layout)
    return figure


def _health_label(steps: Rows) -> str:
    parts = []
    for name, title, _ in HEALTH:
        known = [v for v in column(steps, name) if v is not None]
        course = f"{number(known[0])} at first, {number(known[-1])} at last" if known else "not recorded"
        parts.append(f"{title}: {course}")
    return f"Training health over {len(steps)} steps. {'; '.join(parts)}."
