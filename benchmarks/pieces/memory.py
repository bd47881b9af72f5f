"""A short training as the stage runs it, whose process is measured from outside, and the plan made for it."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from benchmarks.subject import Subject
from ninegrid.config import bind
from ninegrid.params import compose
from ninegrid.tasks.dataset import read_examples
from ninegrid.tasks.loading import load_task
from stages.train_gspo import Settings


def train(subject: Subject, start: str, overrides: list[str]) -> dict[str, Any]:
    """Train for a few steps and save the policy into a folder that goes away."""
    from ninegrid.gspo.checkpoint import Checkpoints
    from ninegrid.gspo.run import train_policy, write_training
    from ninegrid.warm_start.record import Start

    settings = _settings(subject, start, overrides)
    task = load_task(settings.task)
    examples = read_examples(task, Path(subject.train))
    watch = _Watch()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checkpoints = Checkpoints(folder / "checkpoints", "memory")
        begin = Start(Path(subject.starts[start]), "none")
        trained = train_policy(begin, task, examples, settings, checkpoints, watch)
        write_training(trained, settings, folder / "policy", folder / "train")
    return {"seconds": watch.seconds, "tokens": [row["train/distinct_tokens"] for row in trained.rows]}


class _Watch:
    """Takes down what each step took, in the place of MLflow."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def metrics(self, values: Mapping[str, float], *, step: int) -> None:
        self.seconds.append(values["time/step_seconds"])


def predict(subject: Subject, start: str, overrides: list[str]) -> dict[str, Any]:
    """What the plan says of that training."""
    from ninegrid.plan.plan import Planner

    settings = _settings(subject, start, overrides)
    plan = Planner(settings, measure_prompts=True).training(settings)
    return {"bytes": plan.peak.total, "phase": plan.peak.name}


def _settings(subject: Subject, start: str, overrides: list[str]) -> Settings:
    params = compose([*subject.overrides, "tracking=disabled", *overrides])
    settings = bind(Settings, {field.name: params[field.name] for field in fields(Settings)})
    paths = dataclasses.replace(settings.paths, model=subject.starts[start])
    return dataclasses.replace(settings, paths=paths)
