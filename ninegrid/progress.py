"""Progress lines with the time left, on standard error.

One line per report instead of a redrawn bar: stages run under DVC, in containers and in logs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping


class Progress:
    """Counts finished units of a known total and estimates the time left.

    Args:
        label: what is counted, first on every line.
        total: how many units there are.
        done: units that were already finished (a resumed run); they do not enter the estimate.
        every: seconds between lines; the first and the last unit are always shown.
    """

    def __init__(self, label: str, total: int, done: int = 0, every: float = 0.0) -> None:
        self._label, self._total, self._every = label, total, every
        self._start_done = self._done = done
        self._start = time.monotonic()
        self._shown = float("-inf")

    def advance(self, detail: str = "", units: int = 1) -> None:
        """Count ``units`` as finished and, when it is time, print a line with ``detail``."""
        self._done += units
        now = time.monotonic()
        if self._done < self._total and now - self._shown < self._every:
            return
        self._shown = now
        pace = (now - self._start) / max(1, self._done - self._start_done)
        left = clock(pace * (self._total - self._done))
        tail = f"  {detail}" if detail else ""
        print(
            f"{self._label} {self._done}/{self._total}{tail}  {pace:.2f} s each  ETA {left}", file=sys.stderr
        )
        sys.stderr.flush()


def interval_text(change: Mapping[str, float | None]) -> str:
    """The interval of a change in brackets; there is none when all boards are of one class."""
    low, high = change["low"], change["high"]
    return "[one class: no interval]" if low is None or high is None else f"[{low:+.3f}, {high:+.3f}]"


def say(message: str) -> None:
    """Print one line about what is going on to standard error."""
    print(message, file=sys.stderr, flush=True)


def clock(seconds: float) -> str:
    """Seconds as ``m:ss`` or ``h:mm:ss``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
