"""A short training as the stage runs it, whose process is measured from outside, and the plan made for it."""

from __future__ import annotations

import dataclasses
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.subject import Subject
from ninegrid.chat.format import ChatSettings
from ninegrid.config import TaskSettings, bind
from ninegrid.gspo.settings import TrainSettings
from ninegrid.params import compose
from ninegrid.paths import PathSettings
from ninegrid.policy.adapters import AdapterSettings
from ninegrid.policy.settings import ModelSettings
from ninegrid.reward import RewardTable
from ninegrid.tasks.dataset import read_examples
from ninegrid.tasks.loading import load_task
from ninegrid.tracking import TrackingSettings, track
from ninegrid.tree.settings import DecodingSettings, EngineSettings


@dataclass(frozen=True)
class Settings:
    """The sections that `train` and `predict` read."""

    model: ModelSettings
    task: TaskSettings
    reward: RewardTable
    chat: ChatSettings
    decoding: DecodingSettings
    engine: EngineSettings
    adapter: AdapterSettings
    train: TrainSettings
    paths: PathSettings
    tracking: TrackingSettings


def train(subject: Subject, start: str, overrides: list[str]) -> dict[str, Any]:
    """Train for a few steps and save the policy into a folder that goes away."""
    from ninegrid.gspo.checkpoint import Checkpoints
    from ninegrid.gspo.run import train_policy, write_training
    from ninegrid.warm_start.record import Start

    settings = _settings(subject, start, overrides)
    task = load_task(settings.task)
    examples = read_examples(task, Path(subject.train))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with track(settings.tracking, "train_gspo", {}, state=folder) as run:
            checkpoints = Checkpoints(folder / "checkpoints", "memory")
            trained = train_policy(
                Start(Path(subject.starts[start]), "none"), task, examples, settings, checkpoints, run
            )
            write_training(trained, settings, folder / "policy", folder / "train")
    return {"steps": len(trained.rows), "tokens": [row["train/distinct_tokens"] for row in trained.rows]}


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
