"""What a report is written from: plain data, as it stands in the files of the stages."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ninegrid.errors import DataError

Json = Mapping[str, Any]
Rows = Sequence[Mapping[str, float | None]]
"""The training log, see `read_steps`."""
Draw = Callable[[Mapping[str, Json]], str]
DECODINGS = ("sampled", "greedy")


@dataclass(frozen=True)
class ReportInputs:
    """All that the page says comes from here.

    Attributes:
        model, task, algorithm: names for the title.
        n_train, n_heldout: distinct boards on each side of the split.
        seeds: name -> seed ("boards", "eval", "train").
        score_table: the task's weight-free table, outcome -> number.
        reward_table: the table in force while training; `length_penalty` is taken off per token.
        outcomes: worst first.
        milestones: name -> outcomes that count as at least this good, weakest first.
        players: name -> {"label", "description", "expected"}; ``expected`` is the player's exact
            mean score on the held-out boards.
        prompt: the rendered prompt of one example.
        draw: {"before": episode, "after": episode} -> SVG of the example and what became of it.
        baseline_metrics, retest_metrics, comparison: the stages' JSON objects.
        baseline_episodes, retest_episodes: one mapping a reply.
        steps: rows of steps.csv, or the path of that file.
        facts: further facts for "how it was measured", label -> text (decoding, precision, ...).
        warm_start: what the model was taught by before the steps ("SFT"), empty if by nothing.
        unit: what one example is called, singular and plural.
        audit: the reward audit's ``audit.json``; empty if there is none.
    """

    model: str
    task: str
    algorithm: str
    n_train: int
    n_heldout: int
    seeds: Mapping[str, int]
    score_table: Mapping[str, float]
    reward_table: Mapping[str, float]
    outcomes: Sequence[str]
    milestones: Mapping[str, Collection[str]]
    players: Mapping[str, Json]
    prompt: str
    draw: Draw
    baseline_metrics: Json
    retest_metrics: Json
    comparison: Json
    baseline_episodes: Sequence[Json]
    retest_episodes: Sequence[Json]
    steps: Sequence[Json] | Path
    length_penalty: float = 0.0
    facts: Mapping[str, str] = field(default_factory=dict)
    warm_start: str = ""
    unit: tuple[str, str] = ("board", "boards")
    audit: Json = field(default_factory=dict)

    @property
    def reward_differs(self) -> bool:
        """Whether the reward in force is anything but the score."""
        return self.length_penalty != 0 or dict(self.reward_table) != dict(self.score_table)

    @property
    def confidence(self) -> float:
        """Confidence of every interval on the page."""
        return float(self.comparison["bootstrap"]["confidence"])


def without_false_intervals(comparison: Json) -> Json:
    """The comparison with no interval where all replies belong to one group.

    A bootstrap over one group draws the same data every time; its interval has no width and would
    exclude 0 for any change at all.
    """
    return {
        key: _blank(side) if key in DECODINGS and side["groups"] < 2 else side
        for key, side in comparison.items()
    }


def _blank(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {k: None if k in ("low", "high") else _blank(v) for k, v in value.items()}


def read_steps(steps: Sequence[Json] | Path) -> list[dict[str, float | None]]:
    """Rows of numbers; an empty, missing or non-finite cell is None.

    Raises:
        DataError: the file cannot be read, or a cell is not a number.
    """
    if not isinstance(steps, Path):
        return [{key: _cell(value, key) for key, value in row.items()} for row in steps]
    try:
        with steps.open(encoding="utf-8", newline="") as file:
            return [{key: _cell(value, key) for key, value in row.items()} for row in csv.DictReader(file)]
    except OSError as error:
        raise DataError(f"cannot read {steps}: {error.strerror}", hint="run: dvc repro train_gspo") from error


def column(steps: Rows, name: str) -> list[float | None]:
    """One column of steps.csv; None where a row lacks it."""
    return [row.get(name) for row in steps]


def _cell(value: Any, column: str) -> float | None:
    if value is None or value == "":
        return None
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise DataError(f"steps.csv, column {column}: {value!r} is not a number") from error
    return number if math.isfinite(number) else None
