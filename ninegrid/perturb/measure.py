"""Measuring one policy under every perturbation: loaded once, asked in all ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ninegrid.chat.format import ChatFormat
from ninegrid.errors import SettingsError
from ninegrid.evaluation.episodes import Episode
from ninegrid.evaluation.evaluate import evaluate
from ninegrid.evaluation.settings import EvalSettings
from ninegrid.perturb.cases import Case
from ninegrid.policy.agent import Agent, AgentSettings, open_agent
from ninegrid.progress import Progress
from ninegrid.reward import RewardTable
from ninegrid.tasks.protocol import Example, Task, WorkedExample


class PerturbedSettings(AgentSettings, Protocol):
    """The sections that a perturbed measurement reads."""

    @property
    def eval(self) -> EvalSettings: ...


@dataclass(frozen=True)
class Asked:
    """How a perturbation reaches the policy.

    Attributes:
        plain: an unperturbed prompt.
        prompt: the perturbed prompt of the same example, or of its own.
        prompt_tokens: mean length of the perturbed prompts.
        call_tokens: length of the longest right call of the worked examples, with the stop token.
    """

    plain: str
    prompt: str
    prompt_tokens: float
    call_tokens: int


@dataclass(frozen=True)
class Replies:
    """One policy's replies.

    Attributes:
        asked: how each case was asked, in the order of the cases.
        episodes: the judged replies to each.
    """

    asked: list[Asked]
    episodes: list[list[Episode]]


def measure_cases(
    policy: Path,
    task: Task,
    cases: Sequence[Case],
    heldout: Sequence[Example],
    settings: PerturbedSettings,
    *,
    label: str,
    before: Callable[[Agent, dict[str, Any]], None],
) -> Replies:
    """Load the policy in the folder ``policy`` and measure it under every case.

    Args:
        task: the unperturbed task.
        heldout: all held-out examples; the conditions are told for them.
        label: names the policy on progress lines.
        before: called with the loaded agent and the conditions of its unperturbed measurement before the
            first reply is sampled; may refuse them.

    Raises:
        SettingsError: a perturbation changes no prompt.
    """
    agent = open_agent(policy, task, settings)
    conditions = agent.conditions(heldout, settings.engine)
    before(agent, conditions | {"seed": settings.eval.seed, "n_samples": settings.eval.n_samples})
    agents = [agent.on(case.perturbation.task) for case in cases]
    asked = [describe(agent.chat, other.chat, case) for other, case in zip(agents, cases, strict=True)]
    table = RewardTable(dict(task.score))
    progress = Progress(f"perturb_retest: {label}, perturbation", len(cases))
    episodes = []
    for other, case in zip(agents, cases, strict=True):
        # No measurement may depend on those before it, not even in how its passes are laid out.
        other.sampler.engine.load([])
        name = f"perturb_retest: {label}, {case.name}"
        episodes.append(evaluate(other.sampler, case.examples, settings.eval, table, name))
        progress.advance(case.name)
    return Replies(asked, episodes)


def describe(plain: ChatFormat, perturbed: ChatFormat, case: Case) -> Asked:
    """How the case reads.

    Raises:
        SettingsError: exactly like the unperturbed task.
    """
    if case.paired and all(plain.render(e) == perturbed.render(e) for e in case.examples):
        raise SettingsError(
            f"perturb.names holds {case.name!r}, which changes no prompt under these settings "
            f"(chat.worked_examples = {plain.settings.worked_examples})",
            hint=f"leave {case.name} out of perturb.names",
        )
    lengths = [len(perturbed.encode(example)) for example in case.examples]
    calls = [_call_tokens(perturbed, worked) for worked in perturbed.task.worked_examples()]
    first = case.examples[0]
    return Asked(
        plain.render(first), perturbed.render(first), sum(lengths) / len(lengths), max(calls, default=0)
    )


def _call_tokens(chat: ChatFormat, worked: WorkedExample) -> int:
    """Tokens of a call as the template writes it, and the stop token."""
    text = chat.write_call(worked.call)
    return len(chat.tokenizer(text, add_special_tokens=False)["input_ids"]) + 1
