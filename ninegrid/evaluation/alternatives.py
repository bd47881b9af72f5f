"""The honest alternatives to training: the untrained model, used better, on the same boards and draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from ninegrid.errors import CannotForceError, ConditionsError, DataError
from ninegrid.evaluation.alternative_files import METRICS, episodes_file
from ninegrid.evaluation.alternative_settings import NAMES, Alternative, AlternativeSettings
from ninegrid.evaluation.conditions import FILE as CONDITIONS
from ninegrid.evaluation.conditions import differences
from ninegrid.evaluation.episodes import Episode, read_episodes, write_episodes
from ninegrid.evaluation.measure import Measurement, MeasureSettings, flat_metrics, measure_agent
from ninegrid.outputs import output_folder, read_json, write_json
from ninegrid.policy.agent import Agent, make_agent, open_agent
from ninegrid.policy.loading import Policy
from ninegrid.progress import say
from ninegrid.reward import RewardTable
from ninegrid.tasks.dataset import read_examples
from ninegrid.tasks.protocol import Task
from ninegrid.tracking import Run

STAGE = "try_alternatives"
PROMPT = frozenset({"prompt_sha256", "prompts_sha256"})
"""Conditions in which an alternative may differ from the retest: what it shows is a part of what it is."""


class TrySettings(MeasureSettings, Protocol):
    """The sections that trying alternatives reads."""

    @property
    def alternatives(self) -> AlternativeSettings: ...


@dataclass(frozen=True)
class Attempt:
    """An alternative with its measurement, or with the reason why it could not be measured."""

    alternative: Alternative
    measurement: Measurement | None
    left_out: str | None = None


def try_alternatives(model: Path, boards: Path, task: Task, settings: TrySettings) -> list[Attempt]:
    """Measure each chosen alternative with the untrained model in the folder ``model``.

    Rewards are the task's fixed score, as in the baseline.
    Where the format of a call cannot be forced, that is said, and what would force it is left out.
    """
    examples = read_examples(task, boards)
    policy = open_agent(model, task, settings).policy
    attempts = []
    for alternative in settings.alternatives.chosen(task):
        label = f"{STAGE}: {alternative.name}"
        try:
            agent = _agent(policy, task, settings, alternative)
        except CannotForceError as error:
            say(f"{label}: left out: {error.message}")
            attempts.append(Attempt(alternative, None, error.message))
            continue
        table = RewardTable(dict(task.score))
        attempts.append(Attempt(alternative, measure_agent(agent, examples, table, settings, label=label)))
    return attempts


def _agent(policy: Policy, task: Task, settings: TrySettings, alternative: Alternative) -> Agent:
    shown = alternative.worked_examples
    chat = settings.chat if shown is None else replace(settings.chat, worked_examples=shown)
    return make_agent(policy, task, settings, chat, forced=alternative.forced)


def write_alternatives(folder: Path, attempts: Sequence[Attempt]) -> None:
    """Write ``metrics.json``, ``conditions.json`` and a file of episodes for every known name.

    What was not measured has an empty file: DVC tracks the same files whatever is chosen.

    Raises:
        DataError: the folder cannot be written.
    """
    measured = _measured(attempts)
    with output_folder(folder) as draft:
        write_json(draft / METRICS, {a.alternative.name: _record(a) for a in attempts})
        write_json(draft / CONDITIONS, {name: m.conditions for name, m in measured.items()})
        for name in NAMES:
            episodes = measured[name].episodes if name in measured else ()
            write_episodes(draft / episodes_file(name), episodes)


def mirror_alternatives(run: Run, attempts: Sequence[Attempt], folder: Path) -> None:
    """Mirror figures and files to MLflow."""
    for name, measurement in _measured(attempts).items():
        run.metrics(flat_metrics(f"alternatives/{name}", measurement.metrics))
        run.artifact(folder / episodes_file(name), "alternatives")
    for name in (METRICS, CONDITIONS):
        run.artifact(folder / name, "alternatives")


def _measured(attempts: Sequence[Attempt]) -> dict[str, Measurement]:
    return {a.alternative.name: a.measurement for a in attempts if a.measurement is not None}


def _record(attempt: Attempt) -> dict[str, Any]:
    words = {"label": attempt.alternative.label, "description": attempt.alternative.description}
    found = attempt.measurement
    return {**words, **({"left_out": attempt.left_out} if found is None else found.metrics)}


@dataclass(frozen=True)
class Tried:
    """What is known of one alternative.

    Attributes:
        label, description: what it is, in words.
        conditions: what it was measured under.
        episodes: one judged reply each; none if it could not be measured.
        left_out: why it could not be measured, or None.
    """

    label: str
    description: str
    conditions: dict[str, Any]
    episodes: list[Episode]
    left_out: str | None = None


def read_alternatives(folder: Path, task: Task) -> dict[str, Tried]:
    """What `write_alternatives` wrote, by name.

    Raises:
        DataError: a file is missing or damaged.
    """
    metrics = _read_metrics(folder / METRICS)
    measured = [name for name, figures in metrics.items() if "left_out" not in figures]
    conditions = read_json(folder / CONDITIONS, STAGE, measured)
    return {
        name: Tried(
            figures["label"],
            figures["description"],
            conditions.get(name, {}),
            read_episodes(folder / episodes_file(name), task.outcomes, STAGE),
            figures.get("left_out"),
        )
        for name, figures in metrics.items()
    }


def _read_metrics(path: Path) -> dict[str, Any]:
    metrics = read_json(path, STAGE)
    for name, figures in metrics.items():
        if name not in NAMES or not isinstance(figures, dict) or not {"label", "description"} <= set(figures):
            raise DataError(
                f"{path}, {name}: expected a known name with label and description",
                hint=f"dvc repro -f {STAGE}",
            )
    return metrics


def measured_only(tried: Mapping[str, Tried]) -> dict[str, Tried]:
    """Those that could be measured."""
    return {name: alternative for name, alternative in tried.items() if alternative.left_out is None}


def check_replies(tried: Mapping[str, Tried], baseline: Sequence[Episode]) -> None:
    """Make sure that the alternatives answered the examples that the baseline answered.

    Raises:
        ConditionsError: they did not.
    """
    expected = {e.key: e.example for e in baseline}
    for name, alternative in measured_only(tried).items():
        if {e.key: e.example for e in alternative.episodes} != expected:
            raise ConditionsError(
                f"the alternative {name} and the baseline do not hold replies to the same examples",
                hint=f"measure both again with: dvc repro baseline_eval {STAGE}",
            )


def check_conditions(tried: Mapping[str, Tried], conditions: Mapping[str, Any]) -> None:
    """Make sure that the alternatives were measured under the conditions of the retest.

    Raises:
        ConditionsError: they were not; names each difference with both values.
    """
    for name, alternative in measured_only(tried).items():
        lines = differences(alternative.conditions, conditions, (name, "retest"), but=PROMPT)
        if lines:
            raise ConditionsError(
                f"the retest would not be measured like the alternative {name}; " + "; ".join(lines),
                hint=f"measure both under the same settings: dvc repro {STAGE} retest",
            )
