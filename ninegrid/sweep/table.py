"""The sweep as text for a terminal, and as rows for ``sweep.csv``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ninegrid.experiments.results import DECODINGS, Result
from ninegrid.experiments.spread import measured, references
from ninegrid.experiments.terminal import interval, signed, table
from ninegrid.sweep.cells import shown
from ninegrid.sweep.rank import Setting

COLUMNS = ("sampled/score", "sampled/change", "greedy/score")
"""Shown for every setting besides the milestones, as means over its seeds."""


def csv_rows(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One row a cell: the settings that differ, every quantity, and the intervals of its own."""
    return [
        {**result.values, **measured(result), "experiment": result.experiment, "revision": result.revision}
        for result in results
    ]


def tables(settings: Sequence[Setting]) -> str:
    """Two tables: the settings, best first, and what they are set beside.

    The interval is Student's t over seeds where a setting has several, else that over boards.
    """
    keys = [key for key, _ in settings[0].values]
    milestones = [f"sampled/{name}" for name in settings[0].results[0].figures["sampled"].milestones]
    level = f"{settings[0].results[0].confidence:.0%}"
    columns = [*COLUMNS, *milestones]
    head = [
        "rank",
        *keys,
        "seeds",
        *(c.replace("/", " ") for c in columns),
        f"sampled score, {level}",
        "over",
    ]
    rows = [_row(place, setting, columns) for place, setting in enumerate(settings, start=1)]
    beside = [
        [label.replace("_", " "), *(signed(scores[d]) for d in DECODINGS)]
        for label, scores in references(settings[0].results)
    ]
    return "\n\n".join([table(head, rows), table(["beside", *(f"{d} score" for d in DECODINGS)], beside)])


def _row(place: int, setting: Setting, columns: Sequence[str]) -> list[str]:
    found, ends = setting.spreads, setting.interval()
    return [
        str(place),
        *(shown(value) for _, value in setting.values),
        str(len(setting.results)),
        *(signed(found[column].mean) for column in columns),
        interval(*ends) if ends else "-",
        "seeds" if len(setting.results) > 1 else "boards",
    ]
