"""A small real policy for tests of agent functions, and samplers around it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ninegrid.agents import AgentTask
from ninegrid.agents.sampler import AgentSampler
from ninegrid.chat.format import ChatFormat, ChatSettings
from ninegrid.config import TaskSettings, bind
from ninegrid.params import compose
from ninegrid.policy.agent import make_sampler
from ninegrid.policy.loading import Policy, load_policy
from ninegrid.policy.rollout import Rollout
from ninegrid.policy.sampler import Sampler
from ninegrid.policy.settings import ModelSettings
from ninegrid.tasks.loading import load_task
from ninegrid.tasks.protocol import Task
from ninegrid.tree.choice import choose_engine
from ninegrid.tree.settings import DecodingSettings, EngineSettings
from tests.byte_model import write_byte_model
from tests.talker import REPLIES

DECODING = DecodingSettings(temperature=1.0, max_new_tokens=8)
SETTINGS = {"name": "speaker", "source": {"kind": "local", "path": "x"}, "device": "cpu"}


def write_speaker(folder: Path) -> Path:
    """A model that says one of `REPLIES` in a token, and reads and writes any text exactly."""
    return write_byte_model(folder, replies=REPLIES)


def load_speaker(folder: Path) -> Policy:
    return load_policy(folder, bind(ModelSettings, SETTINGS, "model"))


def agent_task(function: Callable[..., Any] | None = None, **limits: Any) -> AgentTask:
    """Tic-tac-toe asked through ``function``, else through one that asks once.

    All requests are waited for, however busy the machine is, unless ``limits`` say otherwise.
    """
    settings = {**compose(["task=agent"])["task"], "gather": 60.0, **limits}
    task = load_task(bind(TaskSettings, settings, "task"))
    assert isinstance(task, AgentTask)
    task.function = function or task.function
    return task


def sampler_of(
    policy: Policy, task: Task, decoding: DecodingSettings = DECODING, path: str = "auto", budget: int = 10**6
) -> Sampler:
    """A sampler with an engine of its own."""
    engine = choose_engine(policy.model, bind(EngineSettings, {"path": path}, "engine"))
    return make_sampler(policy, engine, ChatFormat(policy.tokenizer, ChatSettings(), task), decoding, budget)


def agents_of(policy: Policy, function: Callable[..., Any] | None = None, **limits: Any) -> AgentSampler:
    sampler = sampler_of(policy, agent_task(function, **limits))
    assert isinstance(sampler, AgentSampler)
    return sampler


def rollouts(sampler: Sampler, boards: int, samples: int, **more: Any) -> list[list[Rollout]]:
    """The groups of some boards."""
    examples = sampler.task.generate(boards, 3)
    return [group for batch in sampler.groups(examples, samples, ("test", 1), **more) for group in batch]


def twin(policy: Policy) -> Policy:
    """The same policy with weights of its own."""
    return Policy(copy.deepcopy(policy.model), policy.tokenizer, policy.device, policy.dtype, policy.name)
