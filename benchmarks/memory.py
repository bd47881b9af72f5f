"""What the memory plan predicts beside what a short training of the same settings held, and how long it took.

Measured: the peak of resident memory of a process that loads the model, takes a few training steps and saves
the policy.  The first steps are the hungriest: replies share least while the format is not learned.  Not
measured: GPUs, evaluation, resuming from a checkpoint, MLflow (tracking is off).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.isolated import run_piece
from benchmarks.stats import Spread, ratio
from benchmarks.subject import Subject
from benchmarks.tables import Report, Table, gib
from ninegrid.progress import Progress

MINUTES = 12
ABOUT = """
The peak that `python -m ninegrid.plan` predicts, and the peak of resident memory of a training of {steps}
steps with the same settings, from the untrained model, each in a process of its own, saving included. The
plan counts as if no two replies began alike: too much with few samples, whose replies do not fill a pass.
"""


@dataclass(frozen=True)
class Case:
    """Settings that differ from the default preset."""

    label: str
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """One case: bytes predicted and held."""

    case: Case
    predicted: int
    phase: str
    peak: int
    seconds: list[float]

    def row(self) -> list[str]:
        share = f"{ratio(self.predicted, self.peak):.2f}"
        figures = [gib(self.predicted), self.phase, gib(self.peak), share, Spread.of(self.seconds).text()]
        return [self.case.label, *figures]


CASES = (
    Case("default"),
    Case("8-bit AdamW", ("train.optimizer=adamw_8bit",)),
    Case("512 tokens a pass", ("train.max_tokens_per_pass=512",)),
    Case("32 samples", ("train.n_samples=32",)),
    Case("LoRA", ("adapter=lora",)),
    Case("LoRA of rank 64", ("adapter=lora", "adapter.rank=64")),
    Case("QLoRA", ("adapter=lora", "model.quantization=nf4")),
)
QUICK = (Case("8-bit AdamW", ("train.optimizer=adamw_8bit",)),)
STEPS, QUICK_STEPS = 3, 1


def measure(subject: Subject) -> Report:
    """Predict and measure every case from the first start."""
    cases, steps = (QUICK, QUICK_STEPS) if subject.quick else (CASES, STEPS)
    start = next(iter(subject.starts))
    progress = Progress("memory: case", len(cases))
    found = []
    for case in cases:
        found.append(_measured(subject, start, case, steps))
        progress.advance(case.label)
    return Report("predicted and measured peaks", ABOUT.format(steps=steps), [table(found)])


def table(found: Sequence[Measured]) -> Table:
    """A row for each case."""
    head = ["settings", "predicted GiB", "in the", "measured GiB", "predicted / measured", "s a step"]
    return Table(head, [measured.row() for measured in found])


def _measured(subject: Subject, start: str, case: Case, steps: int) -> Measured:
    # The benchmarks' subject trains with another objective than the preset: memory does not depend on it.
    overrides = [*case.overrides, f"train.steps={steps}", "train.checkpoint_every=0"]
    predicted = run_piece("memory:predict", subject, start=start, overrides=overrides).data
    answer = run_piece("memory:train", subject, start=start, overrides=overrides)
    seconds = answer.data["seconds"]
    return Measured(case, predicted["bytes"], predicted["phase"], answer.peak_bytes, seconds)
