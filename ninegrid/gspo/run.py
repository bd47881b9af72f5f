"""A whole training, from a folder with a model to a folder with a policy."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from ninegrid.gspo.checkpoint import Checkpoints, digest
from ninegrid.gspo.health import Row
from ninegrid.gspo.settings import TrainSettings
from ninegrid.gspo.trainer import Costs, Trainer
from ninegrid.outputs import output_folder, write_csv, write_json
from ninegrid.policy.adapters import AdapterSettings, attach, is_adapted, merge
from ninegrid.policy.agent import Agent, AgentSettings, open_agent
from ninegrid.policy.loading import Policy, weights_sha256, write_model, write_serving_defaults
from ninegrid.policy.needs import Needs, base_of, write_needs
from ninegrid.policy.quantization import unpack, weights_count
from ninegrid.progress import say
from ninegrid.reward import RewardTable
from ninegrid.tasks.protocol import Example, Task
from ninegrid.tracking import Run
from ninegrid.warm_start.record import Start

WINDOW = 5
"""Steps averaged for the first and the last figures of ``metrics.json``."""


class RunSettings(AgentSettings, Protocol):
    """The sections that a training reads."""

    @property
    def reward(self) -> RewardTable: ...
    @property
    def adapter(self) -> AdapterSettings: ...
    @property
    def train(self) -> TrainSettings: ...


@dataclass(frozen=True)
class Trained:
    """A trained agent with the model it began as and the rows of its training."""

    agent: Agent
    start: Start
    rows: list[Row]
    example: Example


def train_policy(
    start: Start,
    task: Task,
    examples: Sequence[Example],
    settings: RunSettings,
    checkpoints: Checkpoints,
    run: Run,
) -> Trained:
    """Load the model to start from, train it or an adapter on ``examples``, mirror every step.

    Returns:
        What was trained, as it is to be saved: with its adapter, or merged into a plain model.
    """
    lora = settings.adapter.lora

    def prepare(policy: Policy) -> None:
        if lora is not None:
            attach(policy.model, lora, settings.train.seed)
            say(f"train_gspo: {_share_trained(policy.model)}")

    less = settings.train.gradient_checkpointing
    agent = open_agent(start.folder, task, settings, prepare=prepare, checkpoint_layers=less)
    trainer = Trainer(agent.policy, agent.sampler, settings.reward, settings.train, checkpoints)
    rows = trainer.run(examples, lambda row, costs: _mirror(run, row, costs))
    if lora is not None and lora.merge:
        unpack(agent.policy.model)
        merge(agent.policy.model)
    return Trained(agent, start, rows, examples[0])


def write_training(trained: Trained, settings: RunSettings, policy: Path, folder: Path) -> None:
    """Write the policy, with the chat template it was trained under, and the training's record."""
    agent = trained.agent
    # The record and the policy appear together: both are written whole before either is published.
    with output_folder(folder) as draft, output_folder(policy) as weights:
        columns = list(trained.rows[0]) if trained.rows else ["step"]
        write_csv(draft / "steps.csv", trained.rows, columns)
        write_json(draft / "metrics.json", _summary(trained, settings))
        agent.write_prompt(draft, trained.example)
        write_model(agent.policy.model, agent.chat.saved_tokenizer(), weights)
        write_serving_defaults(weights, settings.decoding.temperature)
        write_needs(weights, _needs(trained, settings, policy))


def run_digest(settings: Mapping[str, Any], hashes: Mapping[str, str]) -> str:
    """Digest of all that a training depends on: settings, inputs, this library, and torch."""
    facts = {"settings": settings, "inputs": dict(hashes), "torch": torch.__version__}
    return digest({**facts, "code": _code_sha256()})


def _code_sha256() -> str:
    """Hash over the library's sources: a checkpoint made by other code is another run's."""
    root = Path(__file__).resolve().parent.parent
    whole = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        whole.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()


def _needs(trained: Trained, settings: RunSettings, policy: Path) -> Needs:
    if not is_adapted(trained.agent.policy.model):
        return Needs(settings.model.dtype)
    base = base_of(trained.start.folder, policy)
    return Needs(settings.model.dtype, settings.model.quantization, adapter=True, base=base)


def _share_trained(model: Any) -> str:
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return f"an adapter of {trained:,} weights beside {weights_count(model) - trained:,} frozen ones"


def _mirror(run: Run, row: Row, costs: Costs) -> None:
    step = row["step"]
    assert isinstance(step, int)
    figures = {name: v for name, v in row.items() if v is not None and name != "step"}
    run.metrics({**figures, **costs}, step=step)


def _summary(trained: Trained, settings: RunSettings) -> dict[str, Any]:
    """``data/train/metrics.json``: what the report needs to know of the training, and its ends."""
    rows = trained.rows
    return {
        "algorithm": settings.train.algorithm,
        "credit": settings.train.credit,
        "model": settings.model.name,
        "warm_start": trained.start.method,
        "adapter": settings.adapter.recipe.method,
        "quantization": settings.model.quantization,
        "engine": trained.agent.sampler.engine.name,
        "steps": len(rows),
        "seed": settings.train.seed,
        "n_boards": settings.train.n_boards,
        "n_samples": settings.train.n_samples,
        "weights_sha256": weights_sha256(trained.agent.policy.model),
        "first": _means(rows[:WINDOW]),
        "last": _means(rows[-WINDOW:]),
    }


def _means(rows: Sequence[Row]) -> dict[str, float]:
    names = ("rollout/rewards_mean", "rollout/score_mean", "rollout/response_len_mean")
    return {name: float(np.mean([row[name] for row in rows])) for name in names if rows}
