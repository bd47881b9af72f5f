"""The few statistics that the tables show.  A median with its range: runs are too few for more."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest of some measurements."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """The spread of ``values``, of which there must be at least one."""
        numbers = [float(value) for value in values]
        if not numbers:
            raise ValueError("nothing was measured")
        return cls(statistics.median(numbers), min(numbers), max(numbers), len(numbers))

    def text(self, digits: int = 2) -> str:
        """``median (low–high)``; the median alone where there is one measurement."""
        median = f"{self.median:.{digits}f}"
        return median if self.count == 1 else f"{median} ({self.low:.{digits}f}–{self.high:.{digits}f})"


def mean(values: Iterable[float]) -> float:
    """The arithmetic mean."""
    return statistics.fmean(values)


def ratio(over: float, under: float) -> float:
    """How many times ``under`` goes into ``over``; both must be positive, as durations and sizes are."""
    if not (over > 0 and under > 0):
        raise ValueError(f"no ratio of {over} and {under}: both must be positive")
    return over / under
