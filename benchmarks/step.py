"""One GSPO step of ours beside one of TRL's GRPOTrainer, set to GSPO, on the same model and boards.

Measured: whole steps (sampling, judging, scoring, backward, optimiser), and the peak of resident memory,
each trainer in its own process, one after the other.  Not measured: start-up, saving, evaluation, GPUs, and
TRL with vLLM, which wants one.

Ours runs first and TRL is given the boards of our measured steps.  After training the format is known and
our sampler guesses ahead from what was said before, so the first steps, in which it has nothing to guess
from, are left out there.  From the untrained model the *first* steps are measured.

To show that both do the same task: mean reward, length of a reply, and the share of boards whose replies
differ in reward.  Ours leaves the other boards out of scoring; TRL computes them, with a gradient of zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.isolated import Answer, run_piece
from benchmarks.machine import version
from benchmarks.stats import Spread, mean, ratio
from benchmarks.subject import LEARNED, UNTRAINED, Subject, describe_starts
from benchmarks.tables import Report, Table, gib, percent
from ninegrid.config import flatten
from ninegrid.errors import NinegridError
from ninegrid.params import compose
from ninegrid.progress import Progress

MINUTES = 13
TRL = "1.16.0"
ABOUT = """
One training step, ours and TRL's `GRPOTrainer` set to GSPO (`importance_sampling_level=sequence`,
`loss_type=grpo`, `scale_rewards="none"`, `beta=0`), on the same model, rendered prompts, boards, rewards,
clip range and fused AdamW, in float32: {n_boards} boards x {n_samples} samples, {limit} new tokens. Each
trainer ran alone in a process of its own; memory is the process's peak, imports included, and both sides
ran with `OMP_WAIT_POLICY=PASSIVE`. Start: {starts}. Reward, length and boards that teach (their replies
differ in reward) are means over a row's own steps. Not measured: start-up, saving, GPUs, TRL with vLLM.
"""


@dataclass(frozen=True)
class Variant:
    """A way to run TRL; ``parts`` is how many passes the batch is accumulated from."""

    label: str
    checkpointing: bool
    parts: int
    steps: int


FASTEST = Variant("TRL, no checkpointing", checkpointing=False, parts=1, steps=2)
DEFAULT = Variant("TRL, its default (checkpointing)", checkpointing=True, parts=1, steps=1)


@dataclass(frozen=True)
class Plan:
    """Counts of this benchmark; ``ours`` gives warm-up and measured steps for each start."""

    n_boards: int
    n_samples: int
    ours: Mapping[str, tuple[int, int]]
    variants: Sequence[Variant]


FULL = Plan(4, 8, {UNTRAINED: (0, 3), LEARNED: (4, 8)}, (FASTEST, DEFAULT))
QUICK = Plan(2, 4, {LEARNED: (1, 2)}, (Variant(FASTEST.label, False, 1, 2),))


@dataclass(frozen=True)
class Run:
    """The measured steps of one trainer from one start."""

    start: str
    trainer: str
    records: Sequence[Mapping[str, Any]]
    peak_bytes: int

    def spread(self, what: str) -> Spread:
        return Spread.of(record[what] for record in self.records)


def measure(subject: Subject) -> Report:
    """Run both trainers from every start."""
    if version("trl") == "(not installed)":
        raise NinegridError("the benchmark step needs TRL", hint=f"pip install trl=={TRL}")
    plan = QUICK if subject.quick else FULL
    progress = Progress("step: trainer", len(subject.starts) * (1 + len(plan.variants)))
    runs = [run for start in subject.starts for run in _side_by_side(subject, start, plan, progress)]
    about = ABOUT.format(
        n_boards=plan.n_boards,
        n_samples=plan.n_samples,
        limit=compose(subject.overrides)["decoding"]["max_new_tokens"],
        starts=describe_starts(subject.starts, plan.ours),
    )
    return Report("one training step, beside TRL", about, tables(runs), [_settings(subject, plan)])


def _side_by_side(subject: Subject, start: str, plan: Plan, progress: Progress) -> list[Run]:
    """Ours, then TRL in each variant, on the boards of our measured steps."""
    warm_up, measured = plan.ours[start]
    answer = run_piece(
        "training:steps",
        subject,
        start=start,
        n_boards=plan.n_boards,
        n_samples=plan.n_samples,
        steps=warm_up + measured,
    )
    ours = Run(start, "ours", answer.data[warm_up:], answer.peak_bytes)
    progress.advance(f"{start}: ours")
    runs = [ours]
    for variant in plan.variants:
        boards = [record["boards"] for record in ours.records[: variant.steps]]
        answer = _trl(subject, start, plan, variant, boards)
        runs.append(Run(start, variant.label, answer.data, answer.peak_bytes))
        progress.advance(f"{start}: {variant.label}")
    return runs


def _trl(subject: Subject, start: str, plan: Plan, variant: Variant, boards: list[list[str]]) -> Answer:
    return run_piece(
        "trl_training:steps",
        subject,
        start=start,
        boards=boards,
        n_samples=plan.n_samples,
        checkpointing=variant.checkpointing,
        micro_batch=plan.n_boards * plan.n_samples // variant.parts,
    )


def tables(runs: Sequence[Run]) -> list[Table]:
    """The comparison, and the phases with the tokens behind them."""
    ours = {run.start: run for run in runs if run.trainer == "ours"}
    times = ["start", "trainer", "steps", "s a step", "ours is faster", "peak GiB", "ours needs of it"]
    sameness = ["mean reward", "mean tokens of a reply", "boards that teach"]
    compared = [_compared(run, ours[run.start]) for run in runs]
    phases = [_phases(run) for run in runs]
    return [
        Table([*times, *sameness], compared),
        Table(
            [
                "start",
                "trainer",
                "sampling s",
                "update s",
                "tokens of a padded batch",
                "distinct",
                "scored",
            ],
            phases,
        ),
    ]


def _compared(run: Run, ours: Run) -> list[str]:
    faster = share = "–"
    if run is not ours:
        faster = f"{ratio(run.spread('seconds').median, ours.spread('seconds').median):.1f} times"
        share = percent(ratio(ours.peak_bytes, run.peak_bytes))
    return [
        run.start,
        run.trainer,
        str(len(run.records)),
        run.spread("seconds").text(),
        faster,
        gib(run.peak_bytes),
        share,
        f"{mean(r['reward'] for r in run.records):+.3f}",
        f"{mean(r['length'] for r in run.records):.1f}",
        percent(mean(r["teaching"] for r in run.records)),
    ]


def _phases(run: Run) -> list[str]:
    update = Spread.of(r["seconds"] - r["sampling"] for r in run.records)
    ours = run.trainer == "ours"
    tokens = [f"{run.spread(what).median:.0f}" if ours else "–" for what in ("padded", "distinct", "scored")]
    return [run.start, run.trainer, run.spread("sampling").text(), update.text(), *tokens]


def _settings(subject: Subject, plan: Plan) -> str:
    overrides = [f"train.n_boards={plan.n_boards}", f"train.n_samples={plan.n_samples}"]
    train = flatten(compose([*subject.overrides, *overrides])["train"])
    unused = ("steps", "checkpoint_every")
    return "Our settings: " + ", ".join(f"{k} {v}" for k, v in train.items() if k not in unused)
