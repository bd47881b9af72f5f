"""Cells set beside each other: those that differ by their seed alone are one setting; settings are ranked.

They are ranked by the task's fixed score, sampled, which no reward weight changes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ninegrid.experiments.results import SEED_KEY, Result
from ninegrid.experiments.spread import Spread, spreads

RANKED_BY = "sampled/score"


@dataclass(frozen=True)
class Setting:
    """One setting of a sweep: what tells it from the others, and its results, one for each seed."""

    values: tuple[tuple[str, Any], ...]
    results: tuple[Result, ...]

    @property
    def spreads(self) -> dict[str, Spread]:
        """Quantity -> its mean and spread over the seeds."""
        return spreads(self.results)

    @property
    def score(self) -> float:
        """What it is ranked by, the mean over its seeds."""
        return self.spreads[RANKED_BY].mean

    def interval(self) -> tuple[float, float] | None:
        """Of the score: over seeds (Student's t) if there are several, else over boards; None without one."""
        if len(self.results) > 1:
            found = self.spreads[RANKED_BY]
            return None if found.low is None or found.high is None else (found.low, found.high)
        figures = self.results[0].figures["sampled"]
        return None if figures.low is None or figures.high is None else (figures.low, figures.high)


def rank(results: Sequence[Result]) -> list[Setting]:
    """The settings of the results, best score first; equals stay in the order given."""
    groups: dict[str, list[Result]] = {}
    values: dict[str, tuple[tuple[str, Any], ...]] = {}
    for result in distinct(results):
        setting = tuple((key, value) for key, value in result.values.items() if key != SEED_KEY)
        name = json.dumps(setting)
        values[name] = setting
        groups.setdefault(name, []).append(result)
    settings = [Setting(values[name], tuple(members)) for name, members in groups.items()]
    return sorted(settings, key=lambda setting: -setting.score)


def to_compare(results: Sequence[Result], most: int = 4) -> list[str]:
    """An experiment of each of the best settings, best first: what to give to ``stages.compare``."""
    return [setting.results[0].experiment for setting in rank(results)[:most]]


def distinct(results: Sequence[Result]) -> list[Result]:
    """Each result once: a search may ask for the same settings again, which is no other seed."""
    return list({result.digest: result for result in results}.values())
