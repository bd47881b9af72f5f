"""An agent: a policy together with all that turns an example into a judged reply.

All stages that run a model build it here and nowhere else, so that training, baseline and
retest cannot come to differ in prompt, template, engine or decoding.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from ninegrid.agents.task import AgentTask
from ninegrid.chat.format import ChatFormat, ChatSettings
from ninegrid.policy.loading import Policy, load_policy, set_determinism
from ninegrid.policy.memory import keep_freed_memory
from ninegrid.policy.sampler import Sampler
from ninegrid.policy.settings import ModelSettings
from ninegrid.tasks.protocol import Example, Interactive, Task
from ninegrid.tree.choice import choose_engine
from ninegrid.tree.constraint import Constraint
from ninegrid.tree.engine import Engine
from ninegrid.tree.settings import DecodingSettings, EngineSettings

PROMPT_FILE = "prompt.txt"


@dataclass(frozen=True)
class Agent:
    """A loaded policy that can be asked.

    Attributes:
        policy: model and tokenizer.
        chat: renders prompts, decodes replies.
        sampler: draws judged rollouts.
    """

    policy: Policy
    chat: ChatFormat
    sampler: Sampler

    def on(self, task: Task) -> Agent:
        """The same policy, engine and decoding on another task; no weights are loaded.

        Raises:
            NinegridError: the prompt cannot show the task's tools, or has too few worked examples.
        """
        chat = ChatFormat(self.policy.tokenizer, self.chat.settings, task)
        old = self.sampler
        return Agent(self.policy, chat, make_sampler(self.policy, old.engine, chat, old.decoding, old.budget))

    def write_prompt(self, folder: Path, example: Example) -> None:
        """Save the rendered prompt of ``example`` as an artifact."""
        (folder / PROMPT_FILE).write_text(self.chat.render(example), encoding="utf-8")

    def conditions(self, examples: Sequence[Example], engine: EngineSettings) -> dict[str, Any]:
        """What a measurement on ``examples`` depends on beside the weights."""
        prompts = hashlib.sha256()
        for example in examples:
            prompts.update(f"{example.id} {self.chat.encode(example)}\n".encode())
        return {
            **self.chat.fingerprint(),
            "examples": len(examples),
            "prompts_sha256": prompts.hexdigest(),
            "decoding": asdict(self.sampler.decoding),
            "dtype": str(self.policy.dtype),
            "engine": self.sampler.engine.name,
            "max_tokens_per_batch": engine.max_tokens_per_batch,
            "threads": engine.threads,
            **self._environment(),
        }

    def _environment(self) -> dict[str, Any]:
        """What answers the policy, or asks it, in the task's place."""
        task = self.chat.task
        if isinstance(task, AgentTask):
            return {"agent": task.agent}
        return {"environment": dict(task.environment)} if isinstance(task, Interactive) else {}


class AgentSettings(Protocol):
    """The sections that an agent is made from; the settings of every stage that runs a model have them."""

    @property
    def model(self) -> ModelSettings: ...
    @property
    def chat(self) -> ChatSettings: ...
    @property
    def decoding(self) -> DecodingSettings: ...
    @property
    def engine(self) -> EngineSettings: ...


def open_agent(
    folder: Path,
    task: Task,
    settings: AgentSettings,
    *,
    prepare: Callable[[Policy], None] = lambda policy: None,
    checkpoint_layers: bool = False,
) -> Agent:
    """Load the policy in ``folder`` and put prompt, engine and judge around it.

    Args:
        prepare: changes the loaded policy before anything is built on it.
        checkpoint_layers: see `ninegrid.tree.recompute`.

    Raises:
        NinegridError: the model cannot be loaded, or its prompt does not show the tools.
    """
    set_determinism(settings.engine.threads, 0)
    keep_freed_memory()
    policy = load_policy(folder, settings.model)
    prepare(policy)
    return make_agent(policy, task, settings, settings.chat, checkpoint_layers=checkpoint_layers)


def make_agent(
    policy: Policy,
    task: Task,
    settings: AgentSettings,
    chat_settings: ChatSettings,
    *,
    forced: bool = False,
    checkpoint_layers: bool = False,
) -> Agent:
    """Put prompt, engine and judge around a loaded policy.

    Args:
        chat_settings: used in place of ``settings.chat``.
        forced: every reply is held to the format of one call of an offered tool.
        checkpoint_layers: see `ninegrid.tree.recompute`.

    Raises:
        CannotForceError: the format cannot be forced on this model or these tools.
        NinegridError: the prompt does not show the tools.
    """
    chat = ChatFormat(policy.tokenizer, chat_settings, task)
    engine = choose_engine(policy.model, settings.engine, checkpoint_layers=checkpoint_layers)
    budget = settings.engine.max_tokens_per_batch
    constraint = chat.forced_call() if forced else None
    return Agent(policy, chat, make_sampler(policy, engine, chat, settings.decoding, budget, constraint))


def make_sampler(
    policy: Policy,
    engine: Engine,
    chat: ChatFormat,
    decoding: DecodingSettings,
    budget: int,
    constraint: Constraint | None = None,
) -> Sampler:
    """What draws judged rollouts of ``chat.task``, by the task's own way to ask or through an agent function.

    See `Sampler` for the arguments.
    """
    if isinstance(chat.task, AgentTask):
        from ninegrid.agents.sampler import AgentSampler  # a server and a client, which few need

        longest = getattr(policy.model.config, "max_position_embeddings", None)
        return AgentSampler(engine, chat, chat.task, decoding, budget, constraint, longest=longest)
    return Sampler(engine, chat, chat.task, decoding, budget, constraint)
