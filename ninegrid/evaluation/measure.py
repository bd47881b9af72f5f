"""A whole measurement of a policy: what the baseline does, and the first half of the retest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ninegrid.evaluation.conditions import write_conditions
from ninegrid.evaluation.episodes import Episode, write_episodes
from ninegrid.evaluation.evaluate import evaluate
from ninegrid.evaluation.metrics import evaluation_metrics, headline
from ninegrid.evaluation.settings import EvalSettings
from ninegrid.outputs import output_folder, write_json
from ninegrid.policy.agent import Agent, AgentSettings, open_agent
from ninegrid.progress import say
from ninegrid.reward import RewardTable
from ninegrid.tasks.dataset import read_examples
from ninegrid.tasks.protocol import Example, Task
from ninegrid.tracking import Run, mirror_episodes

Check = Callable[[Agent, dict[str, Any]], None]
"""Called with a loaded agent and the conditions before anything is sampled; may refuse them."""


class MeasureSettings(AgentSettings, Protocol):
    """The sections that a measurement reads; the baseline's and the retest's settings have them."""

    @property
    def eval(self) -> EvalSettings: ...


@dataclass(frozen=True)
class Measurement:
    """A policy's episodes on the held-out examples, with what they were measured under.

    Attributes:
        agent: the policy with its prompt and engine.
        examples: the held-out examples.
        conditions: all that must be equal for another measurement to be comparable.
        episodes: one judged reply each.
        metrics: their summary.
    """

    agent: Agent
    examples: Sequence[Example]
    conditions: dict[str, Any]
    episodes: list[Episode]
    metrics: dict[str, Any]

    def fill(self, folder: Path) -> None:
        """Write the measurement's files into an open folder."""
        write_episodes(folder / "episodes.jsonl", self.episodes)
        write_json(folder / "metrics.json", self.metrics)
        write_conditions(folder, self.conditions)
        self.agent.write_prompt(folder, self.examples[0])

    def write(self, folder: Path) -> None:
        """Write the measurement as the whole content of ``folder``.

        Raises:
            DataError: the folder cannot be written.
        """
        with output_folder(folder) as draft:
            self.fill(draft)


def measure(
    policy: Path,
    boards: Path,
    task: Task,
    table: RewardTable,
    settings: MeasureSettings,
    *,
    label: str,
    before: Check = lambda agent, conditions: None,
) -> Measurement:
    """Evaluate the policy in the folder ``policy`` on the examples in the file ``boards``.

    Args:
        table: the reward in force, beside the task's fixed score.
        label: names the measurement on progress lines.
        before: called once the agent is loaded.
    """
    examples = read_examples(task, boards)
    agent = open_agent(policy, task, settings)
    return measure_agent(agent, examples, table, settings, label=label, before=before)


def measure_agent(
    agent: Agent,
    examples: Sequence[Example],
    table: RewardTable,
    settings: MeasureSettings,
    *,
    label: str,
    before: Check = lambda agent, conditions: None,
) -> Measurement:
    """Evaluate a loaded agent on ``examples``; see `measure`."""
    conditions = agent.conditions(examples, settings.engine)
    conditions |= {"seed": settings.eval.seed, "n_samples": settings.eval.n_samples}
    before(agent, conditions)
    episodes = evaluate(agent.sampler, examples, settings.eval, table, label)
    metrics = evaluation_metrics(episodes, agent.sampler.task, examples, settings.eval.confidence)
    for decoding, line in headline(metrics).items():
        say(f"{label}: {decoding}: {line}")
    return Measurement(agent, examples, conditions, episodes, metrics)


def mirror_measurement(
    run: Run, prefix: str, measurement: Measurement, folder: Path, before: Sequence[Episode] = ()
) -> None:
    """Mirror a measurement's metrics, files and replies to MLflow; ``before``: see `mirror_episodes`."""
    run.metrics(flat_metrics(prefix, measurement.metrics))
    for name in ("episodes.jsonl", "metrics.json", "conditions.json", "prompt.txt"):
        run.artifact(folder / name, prefix)
    mirror_episodes(run, prefix, measurement.agent.chat, measurement.examples, measurement.episodes, before)


def flat_metrics(prefix: str, metrics: dict[str, Any]) -> dict[str, float]:
    """``metrics.json`` as flat names: prefix/decoding/what."""
    flat: dict[str, float] = {}
    for decoding in ("sampled", "greedy"):
        figures = metrics[decoding]
        stem = f"{prefix}/{decoding}"
        for name in ("score_mean", "reward_mean", "response_len_mean", "truncated_rate"):
            flat[f"{stem}/{name}"] = figures[name]
        for kind in ("milestones", "outcomes"):
            flat |= {f"{stem}/{kind[:-1]}/{name}": r["rate"] for name, r in figures[kind].items()}
    return flat
