"""What an experiment's retest found: read from git and DVC's cache, kept as a small record of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ninegrid.errors import DataError
from ninegrid.experiments.cell import Cell
from ninegrid.outputs import write_json

DECODINGS = ("sampled", "greedy")
"""As in ``ninegrid.evaluation.metrics``, which is too heavy for a command that may have nothing to do."""
SEED_KEY = "train.seed"


@dataclass(frozen=True)
class Figures:
    """A retest under one decoding.

    Attributes:
        score: mean score on the held-out examples, by the task's fixed table.
        low, high: its interval, clustered by symmetry class; None where there is one class alone.
        before: the baseline's mean score.
        change, change_low, change_high: the paired change with its interval.
        milestones: rate of each milestone after training.
    """

    score: float
    low: float | None
    high: float | None
    before: float
    change: float
    change_low: float | None
    change_high: float | None
    milestones: Mapping[str, float]


@dataclass(frozen=True)
class Result:
    """One finished experiment.

    Attributes:
        values: setting -> its value, of the settings in which this experiment differs from its siblings.
        digest: of all that the result depends on (`digest.result_digest`).
        experiment, revision: name and commit of the DVC experiment that holds everything.
        confidence: of the intervals.
        players: exact mean score of each reference player on the same examples.
        alternatives: what was tried instead of training -> decoding -> its mean score on them.
        figures: decoding -> what was measured.
    """

    values: Mapping[str, Any]
    digest: str
    experiment: str
    revision: str
    confidence: float
    players: Mapping[str, float]
    alternatives: Mapping[str, Mapping[str, float]]
    figures: Mapping[str, Figures]


def seed_of(result: Result) -> int:
    """The ``train.seed`` of one of several seeds."""
    return int(result.values[SEED_KEY])


def read_experiment(root: Path, revision: str, folder: str, cell: Cell) -> Result:
    """Read the retest of an experiment from git and DVC's cache; the workspace is not looked at.

    Args:
        folder: of the retest's outputs, relative to the project.

    Raises:
        DataError: the experiment holds no complete retest.
    """
    from dvc.api import DVCFileSystem
    from dvc.exceptions import DvcException

    try:
        files = DVCFileSystem(str(root), rev=revision)
        texts = {n: files.read_text(f"{folder}/{n}") for n in ("comparison.json", "episodes.jsonl")}
        comparison = json.loads(texts["comparison.json"])
        episodes = [json.loads(line) for line in texts["episodes.jsonl"].splitlines()]
    except (DvcException, OSError, ValueError) as error:
        raise DataError(
            f"experiment {cell.experiment} ({revision[:7]}) holds no readable retest: {error}",
            hint=f"let it be run anew: dvc exp remove {cell.experiment}",
        ) from error
    confidence = comparison["bootstrap"]["confidence"]
    figures = {d: _figures(comparison[d], episodes, d, confidence) for d in DECODINGS}
    return Result(
        values=cell.values,
        digest=cell.digest,
        experiment=cell.experiment,
        revision=revision,
        confidence=confidence,
        players=comparison["players"],
        alternatives=_alternatives(comparison),
        figures=figures,
    )


def _alternatives(comparison: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    policies = comparison.get("alternatives", {}).get("policies", {})
    return {
        name: {decoding: policy[decoding]["score"]["mean"] for decoding in DECODINGS}
        for name, policy in policies.items()
        if name not in ("untrained", "trained")
    }


def _figures(
    side: Mapping[str, Any], episodes: list[dict[str, Any]], decoding: str, confidence: float
) -> Figures:
    from ninegrid.report.stats import clustered_mean

    mean = clustered_mean([e for e in episodes if e["decoding"] == decoding], "score", confidence)
    assert mean is not None  # a comparison is never of no replies
    score = side["score"]
    one_class = side["groups"] < 2
    return Figures(
        score=score["after"],
        low=mean.low,
        high=mean.high,
        before=score["before"],
        change=score["change"],
        change_low=None if one_class else score["low"],
        change_high=None if one_class else score["high"],
        milestones={name: change["after"] for name, change in side["milestones"].items()},
    )


def write_record(path: Path, result: Result) -> None:
    """Keep a result, so that its experiment need not be run again."""
    draft = path.with_suffix(".part")
    write_json(draft, asdict(result))
    draft.replace(path)


def read_record(path: Path, digest: str) -> Result | None:
    """The result kept at ``path``, or None if there is none, or one of other settings or code."""
    try:
        result = read_kept(path)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return result if result.digest == digest else None


def read_kept(path: Path) -> Result:
    """The result kept at ``path``."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    figures = {decoding: Figures(**raw["figures"][decoding]) for decoding in DECODINGS}
    return Result(**{**raw, "figures": figures})
