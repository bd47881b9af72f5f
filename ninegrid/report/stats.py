"""The few statistics the report needs beside those it is given."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist
from typing import Any

Json = Mapping[str, Any]


class Direction(StrEnum):
    """What the interval of a change allows to be said."""

    UP = "up"
    """The whole interval lies above 0."""
    DOWN = "down"
    """The whole interval lies below 0."""
    UNCLEAR = "unclear"
    """The interval includes 0, or there is none."""
    SAME = "same"
    """Change and interval are exactly 0."""


def direction(change: Json | None) -> Direction:
    """Read ``{"change", "low", "high"}``; an end that only touches 0 does not exclude it."""
    if change is None or change.get("low") is None or change.get("high") is None:
        return Direction.UNCLEAR
    low, high = change["low"], change["high"]
    if low > 0:
        return Direction.UP
    if high < 0:
        return Direction.DOWN
    return Direction.SAME if low == high == change["change"] == 0 else Direction.UNCLEAR


@dataclass(frozen=True)
class Mean:
    """A mean with its interval; ``low`` and ``high`` are None where one group gives no spread."""

    value: float
    low: float | None
    high: float | None

    def against(self, reference: float) -> Direction:
        """Where the interval lies relative to an exactly known ``reference``."""
        if self.low is None or self.high is None:
            return Direction.UNCLEAR
        difference = self.value - reference
        return direction({"change": difference, "low": self.low - reference, "high": self.high - reference})


def clustered_mean(episodes: Iterable[Json], key: str, confidence: float) -> Mean | None:
    """Mean of ``episodes[key]``, its standard error clustered by ``group``.

    The cluster-robust variance of a mean: residuals are summed within a group before they are
    squared, times G / (G - 1); the interval is the normal one.  None if there is no episode.
    """
    pairs = [(str(e["group"]), float(e[key])) for e in episodes]
    if not pairs:
        return None
    mean = math.fsum(v for _, v in pairs) / len(pairs)
    residuals: dict[str, float] = defaultdict(float)
    for group, value in pairs:
        residuals[group] += value - mean
    groups = len(residuals)
    if groups < 2:
        return Mean(mean, None, None)
    variance = math.fsum(r * r for r in residuals.values()) / len(pairs) ** 2 * groups / (groups - 1)
    half = NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(variance)
    return Mean(mean, mean - half, mean + half)


def smoothing_window(n: int) -> int:
    """An odd window that grows with the run: about a tenth of ``n`` steps, at least 3."""
    return 2 * max(1, n // 20) + 1


def smooth(values: Sequence[float | None], window: int) -> list[float | None]:
    """Centred moving mean over ``window`` entries, shorter at the ends, blind to None."""
    half = window // 2
    result: list[float | None] = []
    for i in range(len(values)):
        near = [v for v in values[max(0, i - half) : i + half + 1] if v is not None]
        result.append(math.fsum(near) / len(near) if near else None)
    return result
