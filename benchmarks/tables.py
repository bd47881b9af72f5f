"""Markdown: tables and the section that a benchmark prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Table:
    """A Markdown table; the first column is aligned left, the others right."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def text(self) -> str:
        rule = ["---", *["---:"] * (len(self.head) - 1)]
        for row in self.rows:
            if len(row) != len(self.head):
                raise ValueError(f"a row of {len(row)} cells under {len(self.head)} columns: {row}")
        return "\n".join(f"| {' | '.join(cells)} |" for cells in (self.head, rule, *self.rows))


@dataclass(frozen=True)
class Report:
    """What a benchmark found.

    Attributes:
        title: a few words.
        about: what was measured and what was not, a paragraph; how its lines are broken is not kept.
        tables: in the order in which they are read.
        notes: one line each, below the tables.
    """

    title: str
    about: str
    tables: Sequence[Table]
    notes: Sequence[str] = field(default_factory=tuple)

    def text(self, name: str) -> str:
        notes = "\n".join(f"* {note}" for note in self.notes)
        about = " ".join(self.about.split())
        parts = [f"## {name}: {self.title}", about, *(table.text() for table in self.tables), notes]
        return "\n\n".join(part for part in parts if part) + "\n"


def gib(n_bytes: float) -> str:
    """A size in GiB, with the digits of a table."""
    return f"{n_bytes / 2**30:.2f}"


def percent(share: float) -> str:
    """A share as a whole percentage."""
    return f"{share:.0%}"
