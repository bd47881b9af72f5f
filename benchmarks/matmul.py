"""How near scoring comes to the fastest float32 matrix products that the machine does.

Measured: `Engine.backward`, the forward and backward passes of training, on the replies of one real batch
that reach the gradient; and matrix products right before and after in the same process.  A step of training
may find the forward pass of its prompts' common beginning done by sampling; here it is done every time.
Not measured: sampling and the optimiser.

Counted as work: 6 FLOPs for each weight of the transformer's body and distinct token of the whole batch, and
6 for each weight of the output layer and distinct position whose logits are needed.  Not counted, so that
they lower the share: attention scores, norms, logits that are computed again in the backward pass, and
prompts that a second pass runs again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.isolated import run_piece
from benchmarks.stats import Spread, ratio
from benchmarks.subject import Subject
from benchmarks.tables import Report, Table, percent
from ninegrid.progress import Progress

MINUTES = 3
SHAPES = ((2048, 2048, 2048), (4096, 576, 1536))
QUICK_SHAPES = ((128, 128, 128), (256, 32, 48))
REPETITIONS, QUICK_REPETITIONS = 9, 7
ABOUT = """
Forward and backward over the replies of one batch that reach the gradient, beside the best float32 matrix
product of the same process, right before and right after. Work is counted on distinct tokens of the whole
batch: 6 x body weights x distinct tokens + 6 x output-layer weights x positions whose logits are needed;
attention scores, recomputed logits and tokens that a second pass runs again are not counted. The last
column uses the common count, 6 x all weights x distinct tokens. Median of {repetitions} repetitions after
2.
"""


def measure(subject: Subject) -> Report:
    """Score a batch from every start."""
    shapes = QUICK_SHAPES if subject.quick else SHAPES
    repetitions = QUICK_REPETITIONS if subject.quick else REPETITIONS
    progress = Progress("matmul: start", len(subject.starts))
    found = {}
    for start in subject.starts:
        found[start] = run_piece(
            "scoring:rates", subject, start=start, shapes=shapes, repetitions=repetitions
        ).data
        progress.advance(start)
    about = ABOUT.format(repetitions=repetitions)
    return Report("scoring, beside the machine's matrix rate", about, tables(found, shapes))


def tables(found: Mapping[str, Mapping[str, Any]], shapes: Sequence[Sequence[int]]) -> list[Table]:
    """The machine's rate, what was scored, and the rate that scoring reached."""
    names = [f"{m} x {k} x {n}" for m, k, n in shapes]
    head = ["start", "when", *(f"{name}, GFLOP/s" for name in names)]
    machine = [
        [start, when, *(f"{rate / 1e9:.1f}" for rate in one[when])]
        for start, one in found.items()
        for when in ("before", "after")
    ]
    work = ["start", "replies", "distinct tokens", "tokens run", "passes", "positions with logits"]
    reached = ["start", "s", "GFLOP/s", "share of the best", "common count, GFLOP/s", "common count, share"]
    return [
        Table(head, machine),
        Table(work, [_work(start, one) for start, one in found.items()]),
        Table(reached, [_reached(start, one) for start, one in found.items()]),
    ]


def flops(one: Mapping[str, Any]) -> tuple[float, float]:
    """FLOPs of one repetition: as counted here, and by the common count."""
    weights, tokens = one["parameters"], one["tokens"]
    here = 6 * weights["body"] * tokens["distinct"] + 6 * weights["head"] * tokens["logits"]
    return here, 6 * weights["all"] * tokens["distinct"]


def _work(start: str, one: Mapping[str, Any]) -> list[str]:
    tokens = one["tokens"]
    figures = (one["replies"], tokens["distinct"], one["run"], one["passes"], tokens["logits"])
    return [start, *(str(figure) for figure in figures)]


def _reached(start: str, one: Mapping[str, Any]) -> list[str]:
    seconds = Spread.of(one["seconds"])
    best = max(*one["before"], *one["after"])
    cells = [start, seconds.text(3)]
    for count in flops(one):
        rate = ratio(count, seconds.median)
        cells += [f"{rate / 1e9:.1f}", percent(ratio(rate, best))]
    return cells
