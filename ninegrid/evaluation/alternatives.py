"""The honest alternatives to training: the untrained model, used better, on the same boards and draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from ninegrid.errors import ConditionsError, DataError
from ninegrid.evaluation.alternative_settings import NAMES, Alternative, AlternativeSettings
from ninegrid.evaluation.conditions import FILE as CONDITIONS
from ninegrid.evaluation.conditions import differences
from ninegrid.evaluation.episodes import Episode, read_episodes, write_episodes
from ninegrid.evaluation.measure import Measurement, MeasureSettings, flat_metrics, measure_agent
from ninegrid.outputs import output_folder, read_json, write_json
from ninegrid.policy.agent import Agent, make_agent, open_agent
from ninegrid.reward import RewardTable
from ninegrid.tasks.dataset import read_examples
from ninegrid.tasks.protocol import Task
from ninegrid.tracking import Run

STAGE = "try_alternatives"
METRICS = "metrics.json"
PROMPT = frozenset({"prompt_sha256", "prompts_sha256"})
"""Conditions in which an alternative may differ from the retest: what it shows is a part of what it is."""


class TrySettings(MeasureSettings, Protocol):
    """The sections that trying alternatives reads."""

    @property
    def alternatives(self) -> AlternativeSettings: ...


def try_alternatives(
    model: Path, boards: Path, task: Task, settings: TrySettings
) -> dict[Alternative, Measurement]:
    """Measure each chosen alternative with the untrained model in the folder ``model``.

    Rewards are the task's fixed score, as in the baseline.  With nothing chosen no model is loaded.
    """
    chosen = settings.alternatives.chosen(task)
    if not chosen:
        return {}
    examples = read_examples(task, boards)
    policy = open_agent(model, task, settings).policy
    table = RewardTable(dict(task.score))

    def agent(alternative: Alternative) -> Agent:
        shown = alternative.worked_examples
        chat = settings.chat if shown is None else replace(settings.chat, worked_examples=shown)
        return make_agent(policy, task, settings, chat, forced=alternative.forced)

    return {
        alternative: measure_agent(
            agent(alternative), examples, table, settings, label=f"{STAGE}: {alternative.name}"
        )
        for alternative in chosen
    }


def write_alternatives(folder: Path, measured: Mapping[Alternative, Measurement]) -> None:
    """Write ``metrics.json``, ``conditions.json`` and a file of episodes for every known name.

    What was not measured has an empty file: DVC tracks the same files whatever is chosen.

    Raises:
        DataError: the folder cannot be written.
    """
    episodes: dict[str, Sequence[Episode]] = {a.name: m.episodes for a, m in measured.items()}
    with output_folder(folder) as draft:
        write_json(draft / METRICS, {a.name: _record(a, m) for a, m in measured.items()})
        write_json(draft / CONDITIONS, {a.name: m.conditions for a, m in measured.items()})
        for name in NAMES:
            write_episodes(draft / episodes_file(name), episodes.get(name, ()))


def mirror_alternatives(run: Run, measured: Mapping[Alternative, Measurement], folder: Path) -> None:
    """Mirror figures and files to MLflow."""
    for alternative, measurement in measured.items():
        run.metrics(flat_metrics(f"alternatives/{alternative.name}", measurement.metrics))
        run.artifact(folder / episodes_file(alternative.name), "alternatives")
    for name in (METRICS, CONDITIONS):
        run.artifact(folder / name, "alternatives")


def episodes_file(name: str) -> str:
    """Name of the file that holds the episodes of an alternative."""
    return f"episodes-{name}.jsonl"


def _record(alternative: Alternative, measurement: Measurement) -> dict[str, Any]:
    return {"label": alternative.label, "description": alternative.description, **measurement.metrics}


@dataclass(frozen=True)
class Tried:
    """What is known of one alternative.

    Attributes:
        label, description: what it is, in words.
        conditions: what it was measured under.
        episodes: one judged reply each.
    """

    label: str
    description: str
    conditions: dict[str, Any]
    episodes: list[Episode]


def read_alternatives(folder: Path, task: Task) -> dict[str, Tried]:
    """What `write_alternatives` wrote, by name.

    Raises:
        DataError: a file is missing or damaged.
    """
    metrics = read_json(folder / METRICS, STAGE)
    conditions = read_json(folder / CONDITIONS, STAGE, metrics.keys())
    tried: dict[str, Tried] = {}
    for name, figures in metrics.items():
        if name not in NAMES or not {"label", "description"} <= set(figures):
            raise DataError(
                f"{folder / METRICS}, {name}: expected a known name with label and description",
                hint=f"dvc repro -f {STAGE}",
            )
        episodes = read_episodes(folder / episodes_file(name), task.outcomes, STAGE)
        tried[name] = Tried(figures["label"], figures["description"], conditions[name], episodes)
    return tried


def check_replies(tried: Mapping[str, Tried], baseline: Sequence[Episode]) -> None:
    """Make sure that the alternatives answered the examples that the baseline answered.

    Raises:
        ConditionsError: they did not.
    """
    expected = {e.key: e.example for e in baseline}
    for name, alternative in tried.items():
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
    for name, alternative in tried.items():
        lines = differences(alternative.conditions, conditions, (name, "retest"), but=PROMPT)
        if lines:
            raise ConditionsError(
                f"the retest would not be measured like the alternative {name}; " + "; ".join(lines),
                hint=f"measure both under the same settings: dvc repro {STAGE} retest",
            )
