"""The retest: a measurement set beside the baseline's, with report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ninegrid.errors import DataError
from ninegrid.evaluation.alternatives import Tried, check_replies, read_alternatives
from ninegrid.evaluation.cheaper import Cheaper
from ninegrid.evaluation.compare import Comparison, rejudged
from ninegrid.evaluation.episodes import Episode, draw_replies, read_episodes
from ninegrid.evaluation.measure import Measurement, flat_metrics, mirror_measurement
from ninegrid.evaluation.metrics import DECODINGS
from ninegrid.evaluation.settings import EvalSettings
from ninegrid.evaluation.trained import read_training
from ninegrid.outputs import output_folder, read_json, write_json
from ninegrid.paths import PathSettings
from ninegrid.progress import interval_text, say
from ninegrid.report.inputs import ReportInputs, read_steps
from ninegrid.report.page import write_report
from ninegrid.reward import RewardTable
from ninegrid.tasks.dataset import is_flat
from ninegrid.tasks.protocol import Task
from ninegrid.tracking import Run


@dataclass(frozen=True)
class Inputs:
    """What earlier stages left, read and checked before anything is measured.

    Attributes:
        baseline: the baseline's episodes.
        baseline_metrics: its ``metrics.json``.
        training: the training's ``metrics.json``.
        steps: rows of its ``steps.csv``.
        boards: the boards' ``manifest.json``.
        audit: the reward audit's ``audit.json``.
        alternatives: to training, by name.
    """

    baseline: list[Episode]
    baseline_metrics: dict[str, Any]
    training: dict[str, Any]
    steps: list[dict[str, float | None]]
    boards: dict[str, Any]
    audit: dict[str, Any]
    alternatives: dict[str, Tried]


def read_inputs(paths: PathSettings, task: Task, table: RewardTable) -> Inputs:
    """Read all that the comparison and the report need.

    Raises:
        DataError: a file is missing or damaged, or the audit is not of the reward ``table`` in force.
        ConditionsError: an alternative answered other examples than the baseline.
    """
    baseline, train = paths.folder("baseline"), paths.folder("train")
    episodes = read_episodes(baseline / "episodes.jsonl", task.outcomes)
    alternatives = read_alternatives(paths.folder("alternatives"), task)
    check_replies(alternatives, episodes)
    return Inputs(
        baseline=episodes,
        baseline_metrics=read_json(baseline / "metrics.json", "baseline_eval", DECODINGS),
        training=read_training(paths),
        steps=read_steps(train / "steps.csv"),
        boards=read_json(
            paths.folder("boards") / "manifest.json", "generate_boards", ("examples", "settings")
        ),
        audit=_read_audit(paths, table),
        alternatives=alternatives,
    )


def _read_audit(paths: PathSettings, table: RewardTable) -> dict[str, Any]:
    path = paths.folder("audit") / "audit.json"
    audit = read_json(path, "audit_reward", ("reward", "earns", "examples", "policies", "findings"))
    if audit["reward"] != table.to_mapping():
        raise DataError(
            f"{path} is of the reward table {audit['reward']}, the one in force is {table.to_mapping()}",
            hint="dvc repro audit_reward, with the same settings",
        )
    return audit


@dataclass(frozen=True)
class Retest:
    """A retest with the baseline it is compared with.

    Attributes:
        task: that both were measured on.
        table: the reward in force; the baseline's rewards are taken from it too.
        eval: settings of both measurements.
        measurement: of the trained policy.
        inputs: of earlier stages.
        baseline: the baseline's episodes, rewarded by the table in force.
        comparison: the content of ``comparison.json``.
    """

    task: Task
    table: RewardTable
    eval: EvalSettings
    measurement: Measurement
    inputs: Inputs
    baseline: list[Episode]
    comparison: dict[str, Any]


def compare_with_baseline(
    inputs: Inputs, measurement: Measurement, task: Task, table: RewardTable, settings: EvalSettings
) -> Retest:
    """Pair the measurement with the baseline.

    Raises:
        ConditionsError: the baseline holds other replies.
    """
    baseline = rejudged(inputs.baseline, table)
    listed = any(task.legal_outcomes(e) for e in measurement.examples)
    flat = frozenset(e.id for e in measurement.examples if is_flat(task, e)) if listed else None
    comparison = Comparison(task, settings, flat).compare(baseline, measurement.episodes)
    comparison["players"] = measurement.metrics["players"]
    comparison["alternatives"] = Cheaper(task, settings).compare(
        measurement.examples, baseline, inputs.alternatives, measurement.episodes
    )
    return Retest(task, table, settings, measurement, inputs, baseline, comparison)


def write_retest(folder: Path, result: Retest) -> None:
    """Write episodes, metrics, comparison, and the report with its figures."""
    with output_folder(folder) as draft:
        result.measurement.fill(draft)
        write_json(draft / "comparison.json", result.comparison)
        write_report(draft, _report_inputs(result))


def mirror_retest(run: Run, result: Retest, folder: Path) -> None:
    """Mirror baseline, retest and change side by side, so that runs compare whole loops."""
    run.metrics(flat_metrics("baseline", _rewarded(result)))
    mirror_measurement(run, "retest", result.measurement, folder, result.baseline)
    for decoding in DECODINGS:
        figures = result.comparison[decoding]
        run.metrics(_flat_change(f"change/{decoding}/score", figures["score"]))
        run.metrics(_flat_change(f"change/{decoding}/reward", figures["reward"]))
        for name, change in figures["milestones"].items():
            run.metrics(_flat_change(f"change/{decoding}/milestone/{name}", change))
    for way, difference in result.comparison["alternatives"]["trained_minus_best"].items():
        run.metrics(_flat_change(f"trained_minus_best_alternative/{way}", difference))
    run.artifact(folder / "comparison.json")
    run.artifact(folder / "report.html")
    run.artifact(folder / "figures", "figures")


def _rewarded(result: Retest) -> dict[str, Any]:
    """The baseline's metrics with its mean reward under the table in force, like the retest's."""
    metrics = dict(result.inputs.baseline_metrics)
    for decoding in DECODINGS:
        before = result.comparison[decoding]["reward"]["before"]
        metrics[decoding] = {**metrics[decoding], "reward_mean": before}
    return metrics


def say_change(result: Retest) -> None:
    """The result in one line for each decoding."""
    for decoding in DECODINGS:
        score = result.comparison[decoding]["score"]
        say(
            f"retest: {decoding}: mean score {score['before']:+.3f} -> {score['after']:+.3f}, "
            f"change {score['change']:+.3f} {interval_text(score)}"
        )


def _flat_change(stem: str, change: Mapping[str, float]) -> dict[str, float]:
    ends = {f"{stem}_{end}": change[end] for end in ("low", "high") if change[end] is not None}
    return {stem: change["change"], **ends}


def _report_inputs(result: Retest) -> ReportInputs:
    task, measurement = result.task, result.measurement
    training, boards = result.inputs.training, result.inputs.boards
    by_id = {example.id: example for example in measurement.examples}

    def draw(episodes: Mapping[str, Mapping[str, Any]]) -> str:
        example = by_id[next(iter(episodes.values()))["example"]["id"]]
        return draw_replies(task, example, episodes)

    return ReportInputs(
        model=training["model"],
        task=task.name,
        algorithm=training["algorithm"].upper().replace("_", "-"),
        warm_start=_warm_start(training),
        n_train=boards["examples"]["train"],
        n_heldout=boards["examples"]["heldout"],
        seeds={"boards": boards["settings"]["seed"], "eval": result.eval.seed, "train": training["seed"]},
        score_table=dict(task.score),
        reward_table=dict(result.table.outcomes),
        length_penalty=result.table.length_penalty,
        outcomes=list(map(str, task.outcomes)),
        milestones=task.milestones,
        players=_players(result),
        prompt=measurement.agent.chat.render(measurement.examples[0]),
        draw=draw,
        baseline_metrics=_rewarded(result),
        retest_metrics=measurement.metrics,
        comparison=result.comparison,
        baseline_episodes=list(map(asdict, result.baseline)),
        retest_episodes=list(map(asdict, measurement.episodes)),
        steps=result.inputs.steps,
        facts=_facts(result, training),
        audit=result.inputs.audit,
    )


def _players(result: Retest) -> dict[str, dict[str, Any]]:
    expected = result.comparison["players"]
    return {name: {**texts, "expected": expected[name]} for name, texts in result.task.players().items()}


def _warm_start(training: Mapping[str, Any]) -> str:
    """The method as it is called in text, empty if there was none."""
    method = training["warm_start"]
    return "" if method == "none" else str(method).upper()


def _adapter(training: Mapping[str, Any]) -> str:
    """What was trained instead of the model's own weights."""
    packed = training["quantization"]
    return f"an adapter ({training['adapter']})" + ("" if packed == "none" else f" beside {packed} weights")


def _facts(result: Retest, training: Mapping[str, Any]) -> dict[str, str]:
    conditions = result.measurement.conditions
    decoding = conditions["decoding"]
    return {
        "Decoding": f"temperature {decoding['temperature']:g}, at most {decoding['max_new_tokens']} tokens",
        "Precision": conditions["dtype"],
        "Engine": conditions["engine"],
        **({"Warm start": _warm_start(training)} if _warm_start(training) else {}),
        **({"Trained": _adapter(training)} if training.get("adapter", "none") != "none" else {}),
        "Training": (
            f"{training['steps']} steps on {training['n_boards']} boards x {training['n_samples']} replies"
        ),
    }
