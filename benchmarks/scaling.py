"""How the cost of one of our steps grows with the samples of a board and with the boards of a batch.

Measured: whole steps of our trainer, every size from the same weights, one process for each start.  Not
measured: memory by size, and quality: more samples are not better by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.isolated import run_piece
from benchmarks.stats import Spread, ratio
from benchmarks.subject import LEARNED, UNTRAINED, Subject, describe_starts
from benchmarks.tables import Report, Table, gib
from ninegrid.progress import Progress

MINUTES = 12
TARGET = 1.6
ABOUT = """
Our step at growing sizes, every size from the same weights and with nothing to guess from yet. Start:
{starts}. A padded batch would hold every prompt and reply in full; distinct tokens are what is left when
beginnings are shared; scored are those that reached the gradient (boards whose replies were all worth the
same do not). Medians over the steps. With few samples, more steps find no board whose replies differ,
and end after sampling: so the growth is given over all steps, and over those in which both sizes trained.
"""

Size = tuple[int, int]


@dataclass(frozen=True)
class Plan:
    """The sizes (boards, samples): two series that share ``base``; and warm-up and measured steps."""

    base: Size
    more_samples: Sequence[int]
    more_boards: Sequence[int]
    steps: Mapping[str, tuple[int, int]]

    @property
    def sizes(self) -> list[Size]:
        """All sizes, each once."""
        n_boards, n_samples = self.base
        series = [(n_boards, n) for n in self.more_samples] + [(n, n_samples) for n in self.more_boards]
        return list(dict.fromkeys(series))


FULL = Plan((4, 8), (4, 8, 16, 32, 64), (2, 4, 8, 16, 32), {UNTRAINED: (0, 3), LEARNED: (2, 10)})
QUICK = Plan((2, 4), (2, 4, 8), (2, 4), {LEARNED: (1, 2)})

Steps = Sequence[Mapping[str, Any]]


def measure(subject: Subject) -> Report:
    """Run every size from every start."""
    plan = QUICK if subject.quick else FULL
    progress = Progress("scaling: start", len(subject.starts))
    found: dict[str, dict[Size, Steps]] = {}
    notes = []
    for start in subject.starts:
        warm_up, measured = plan.steps[start]
        answer = run_piece("training:grid", subject, start=start, sizes=plan.sizes, steps=warm_up + measured)
        records = [steps[warm_up:] for steps in answer.data]
        found[start] = dict(zip(plan.sizes, records, strict=True))
        peak = gib(answer.peak_bytes)
        notes.append(f"Peak memory over all sizes, {start}, with a copy of the first weights: {peak} GiB")
        progress.advance(start)
    about = ABOUT.format(starts=describe_starts(subject.starts, plan.steps))
    return Report("more samples, more boards", about, tables(found, plan), notes)


def tables(found: Mapping[str, Mapping[Size, Steps]], plan: Plan) -> list[Table]:
    """A row for each size, and how many times the largest costs the base."""
    head = ["start", "boards x samples", "s a step", "sampling s", "tokens of a padded batch"]
    rows = [_row(start, size, steps) for start, sizes in found.items() for size, steps in sizes.items()]
    grown = [row for start, sizes in found.items() for row in _growth(start, sizes, plan)]
    return [
        Table([*head, "distinct", "scored", "padded / distinct"], rows),
        Table(["start", "from", "to", "replies grow", "cost grows", "where both trained", "target"], grown),
    ]


def _row(start: str, size: Size, steps: Steps) -> list[str]:
    median = {what: Spread.of(r[what] for r in steps).median for what in ("padded", "distinct", "scored")}
    return [
        start,
        _name(size),
        Spread.of(r["seconds"] for r in steps).text(),
        f"{Spread.of(r['sampling'] for r in steps).median:.2f}",
        *(f"{value:.0f}" for value in median.values()),
        f"{ratio(median['padded'], median['distinct']):.1f}",
    ]


def _growth(start: str, sizes: Mapping[Size, Steps], plan: Plan) -> list[list[str]]:
    n_boards, n_samples = plan.base
    largest = [(n_boards, plan.more_samples[-1]), (plan.more_boards[-1], n_samples)]
    seconds = {size: Spread.of(r["seconds"] for r in steps).median for size, steps in sizes.items()}
    rows = []
    for size in largest:
        cost = ratio(seconds[size], seconds[plan.base])
        alike = _where_both_trained(sizes[plan.base], sizes[size])
        replies = ratio(size[0] * size[1], n_boards * n_samples)
        aimed = f"at most {TARGET}" if start == LEARNED and size == largest[0] else "–"
        rows.append(
            [
                start,
                _name(plan.base),
                _name(size),
                f"{replies:.0f} times",
                f"{cost:.2f} times",
                "–" if alike is None else f"{alike:.2f} times",
                aimed,
            ]
        )
    return rows


def _where_both_trained(base: Steps, larger: Steps) -> float | None:
    """How the cost grows over the steps in which both sizes found replies to learn from."""
    pairs = [(b, g) for b, g in zip(base, larger, strict=True) if b["scored"] and g["scored"]]
    if not pairs:
        return None
    before, after = (
        Spread.of(record["seconds"] for record in side).median for side in zip(*pairs, strict=True)
    )
    return ratio(after, before)


def _name(size: Size) -> str:
    return f"{size[0]} x {size[1]}"
