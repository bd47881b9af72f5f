"""From a subject to settings, boards and a loaded agent."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from benchmarks.subject import Subject
from ninegrid.chat.format import ChatSettings
from ninegrid.config import TaskSettings, bind
from ninegrid.gspo.settings import TrainSettings
from ninegrid.params import compose
from ninegrid.policy.agent import Agent, open_agent
from ninegrid.policy.settings import ModelSettings
from ninegrid.reward import RewardTable
from ninegrid.tasks.dataset import read_examples
from ninegrid.tasks.loading import load_task
from ninegrid.tasks.protocol import Example, Task
from ninegrid.tree.settings import DecodingSettings, EngineSettings


@dataclass(frozen=True)
class Settings:
    """The sections that pieces read."""

    model: ModelSettings
    task: TaskSettings
    reward: RewardTable
    chat: ChatSettings
    decoding: DecodingSettings
    engine: EngineSettings
    train: TrainSettings


def settings_of(subject: Subject, *overrides: str) -> Settings:
    """The project's settings with those of the subject and ``overrides`` on top."""
    params = compose([*subject.overrides, *overrides])
    return bind(Settings, {field.name: params[field.name] for field in fields(Settings)})


def sized(n_boards: int, n_samples: int, steps: int) -> list[str]:
    """Overrides for a training of that size that is never saved."""
    return [
        f"train.n_boards={n_boards}",
        f"train.n_samples={n_samples}",
        f"train.steps={steps}",
        "train.checkpoint_every=0",
    ]


def agent_of(subject: Subject, start: str, task: Task, settings: Settings) -> Agent:
    """The policy from which ``start`` starts, loaded."""
    return open_agent(Path(subject.starts[start]), task, settings)


def boards_of(path: str, task: Task) -> list[Example]:
    """The boards in a file."""
    return read_examples(task, Path(path))


def task_of(settings: Settings) -> Task:
    """The task that the settings name."""
    return load_task(settings.task)
