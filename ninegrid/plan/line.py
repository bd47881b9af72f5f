"""The nouns of a plan: lines of bytes, and the phases of a run that they add up to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """Some bytes and how they come about."""

    name: str
    n_bytes: int
    arithmetic: str


@dataclass(frozen=True)
class Phase:
    """All that is live in a part of a run at its worst."""

    name: str
    lines: tuple[Line, ...]

    @property
    def total(self) -> int:
        return sum(line.n_bytes for line in self.lines)
