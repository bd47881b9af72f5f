"""What a held-out evaluation costs: every board once sampled and once greedy.

Measured: seconds of the replies and their judgement, each repetition from a cold start (nothing to guess
from), and peak memory.  Not measured: loading the model, writing episodes, the comparison and its bootstrap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.isolated import Answer, run_piece
from benchmarks.stats import Spread
from benchmarks.subject import Subject
from benchmarks.tables import Report, Table, gib
from ninegrid.progress import Progress

MINUTES = 3
BOARDS, REPETITIONS = 64, 3
QUICK_BOARDS, QUICK_REPETITIONS = 4, 2
ABOUT = """
Replies to {boards} held-out boards, one sampled and one greedy for each, judged; {repetitions} repetitions
in one process for each start, every one from a cold start. Loading the model and writing files are not in
the seconds. Peak memory is the process's, imports included.
"""


def measure(subject: Subject) -> Report:
    """Evaluate from every start."""
    boards, repetitions = (QUICK_BOARDS, QUICK_REPETITIONS) if subject.quick else (BOARDS, REPETITIONS)
    progress = Progress("evaluation: start", len(subject.starts))
    found = {}
    for start in subject.starts:
        found[start] = run_piece(
            "replies:evaluation", subject, start=start, n_boards=boards, repetitions=repetitions
        )
        progress.advance(start)
    about = ABOUT.format(boards=boards, repetitions=repetitions)
    return Report("the held-out evaluation", about, [table(found)])


def table(found: Mapping[str, Answer]) -> Table:
    """A row for each start."""
    head = ["start", "boards", "s a board", "s in all", "peak GiB"]
    scores = ["mean score, sampled", "mean score, greedy", "mean tokens of a reply"]
    rows = [_row(start, answer.data, answer.peak_bytes) for start, answer in found.items()]
    return Table([*head, *scores], rows)


def _row(start: str, data: Mapping[str, Any], peak_bytes: int) -> list[str]:
    return [
        start,
        str(data["boards"]),
        Spread.of(seconds / data["boards"] for seconds in data["seconds"]).text(3),
        Spread.of(data["seconds"]).text(1),
        gib(peak_bytes),
        f"{data['sampled']:+.3f}",
        f"{data['greedy']:+.3f}",
        f"{data['length']:.1f}",
    ]
