"""The picture of docs/learning.md: how trainings with different settings went, from their kept step tables.

Run as ``python -m benchmarks.learning``: reads ``docs/learning/*.csv``, writes ``docs/images/learning.png``
and measures nothing.
"""

from __future__ import annotations

import re
from itertools import cycle
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ninegrid.project import project_root

KEPT = project_root() / "docs" / "learning"
PICTURE = project_root() / "docs" / "images" / "learning.png"

REWARD, ENTROPY = "rollout/rewards_mean", "rollout/decision_entropy"
WINDOW = 5
COLUMNS = {
    "views, 40 steps": ("default", "squares", "grid", "grid-gspo"),
    "view lines, 40 steps": (
        *("default", "credit-branch", "no-bonus"),
        *("sft-gspo-branch", "control-valid", "control-all-branch"),
    ),
    "view lines, more boards": ("default", "lines-12x24", "strong"),
    "view squares, more exploration": ("squares-12x24", "squares-12x24-steered", "squares-small-norm"),
}
"""The columns of the picture, and the settings in them: names of runs without their seed."""
LEVELS = {0.48: "random legal play", 0.92: "perfect play"}
COLOURS = ("#0072B2", "#56B4E9", "#009E73", "#D55E00", "#CC79A7", "#E69F00", "#000000")
"""Told apart with any kind of colour vision (Okabe and Ito)."""


def kept() -> dict[str, pd.DataFrame]:
    """The step tables by the name of their run.

    Raises:
        ValueError: one lacks a column; names the file.
    """
    tables = {path.stem: pd.read_csv(path) for path in sorted(KEPT.glob("*.csv"))}
    for name, table in tables.items():
        missing = {"step", REWARD, ENTROPY} - set(table.columns)
        if missing:
            raise ValueError(f"{KEPT / name}.csv has no column {', '.join(sorted(missing))}")
    return tables


def draw(tables: dict[str, pd.DataFrame], path: Path) -> None:
    """Reward and entropy of the decision of every setting, as moving means over `WINDOW` steps.

    A setting that was run with several seeds is one curve, their mean.
    """
    figure = Figure(figsize=(18, 7.2), layout="constrained")
    panels = figure.subplots(2, len(COLUMNS), sharex="col", sharey="row", squeeze=False)
    settings = over_seeds(tables)
    for column, (title, names) in zip(panels.T, COLUMNS.items(), strict=True):
        runs = {label: table for name in names for label, table in settings[name].items()}
        reward, entropy = column
        _curves(reward, runs, REWARD)
        for level in LEVELS:
            reward.axhline(level, color="#777777", linewidth=1, linestyle=":")
        _curves(entropy, runs, ENTROPY)
        reward.set_title(title)
        reward.legend(loc="lower right", frameon=False, fontsize=8)
        entropy.set_xlabel("step")
    for level, label in LEVELS.items():
        place = (1, level)
        panels[0, 2].annotate(
            label, place, xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=8
        )
    panels[0, 0].set(ylabel="mean training reward", ylim=(-1.05, 1))
    panels[1, 0].set(ylabel="entropy of the chosen square, nats", ylim=(0, None))
    figure.savefig(path, dpi=150)


def over_seeds(tables: dict[str, pd.DataFrame]) -> dict[str, dict[str, pd.DataFrame]]:
    """Setting -> label -> curve: the mean of its seeds, or each if they were stopped at different steps."""
    settings: dict[str, dict[str, pd.DataFrame]] = {}
    for name, table in tables.items():
        settings.setdefault(re.sub(r"-seed\d+$", "", name), {})[name] = table[["step", REWARD, ENTROPY]]
    for setting, seeds in settings.items():
        if len(seeds) > 1 and len({len(table) for table in seeds.values()}) == 1:
            mean = pd.concat(seeds.values()).groupby("step", as_index=False).mean()
            settings[setting] = {f"{setting} ({len(seeds)} seeds)": mean}
    return settings


def _curves(axes: Axes, tables: dict[str, pd.DataFrame], column: str) -> None:
    for colour, (name, table) in zip(cycle(COLOURS), tables.items(), strict=False):
        smooth = table[column].rolling(WINDOW, min_periods=1).mean()
        axes.plot(table["step"], smooth, color=colour, label=name, linewidth=1.6)
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    draw(kept(), PICTURE)
