"""The picture of docs/learning.md: how trainings with different settings went, from their kept step tables.

Run as ``python -m benchmarks.learning``: reads ``docs/learning/*.csv``, writes ``docs/images/learning.png``
and measures nothing.
"""

from __future__ import annotations

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
RANDOM_LEGAL, BEST = 0.48, 0.92
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
    """Reward and entropy of the decision of every run, as moving means over `WINDOW` steps."""
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    _curves(left, tables, REWARD, "mean training reward")
    for level, label in ((RANDOM_LEGAL, "random legal play"), (BEST, "perfect play")):
        left.axhline(level, color="#777777", linewidth=1, linestyle=":")
        left.annotate(
            label, (1, level), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=8
        )
    left.set_ylim(-0.8, 1)
    _curves(right, tables, ENTROPY, "entropy of the chosen square, nats")
    right.set_ylim(0, None)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, dpi=150)


def _curves(axes: Axes, tables: dict[str, pd.DataFrame], column: str, label: str) -> None:
    for colour, (name, table) in zip(cycle(COLOURS), tables.items(), strict=False):
        smooth = table[column].rolling(WINDOW, min_periods=1).mean()
        style = "-" if name.startswith("lines") else "--"
        axes.plot(table["step"], smooth, style, color=colour, label=name, linewidth=1.8)
    axes.set_xlabel("step")
    axes.set_ylabel(label)
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    draw(kept(), PICTURE)
