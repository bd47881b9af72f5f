"""A finished loop as data: the workspace's, or that of any DVC experiment or git revision."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ninegrid.config import flatten
from ninegrid.errors import DataError
from ninegrid.experiments.files import read_text, read_yaml
from ninegrid.report.inputs import Rows, read_steps

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Loop:
    """What one loop left behind.

    Attributes:
        name: as it was asked for.
        params: dotted setting -> value, as the stages ran with.
        comparison: the retest's ``comparison.json``.
        episodes: the retest's replies.
        steps: the training's rows, see `read_steps`.
    """

    name: str
    params: Mapping[str, Any]
    comparison: Json
    episodes: Sequence[Json]
    steps: Rows


def read_loop(root: Path, name: str) -> Loop:
    """Read a loop from the workspace, or from git and DVC's cache.

    Args:
        root: the project.
        name: ``workspace``, a DVC experiment or a git revision.

    Raises:
        DataError: there is no such revision, or it holds no finished loop.
    """
    paths = read_yaml(root, name, "params.yaml", "paths")
    retest, train = paths["retest"], paths["train"]
    try:
        return Loop(
            name=name,
            params=flatten(_settings_that_ran(name, read_yaml(root, name, "dvc.lock", "stages"))),
            comparison=json.loads(read_text(root, name, f"{retest}/comparison.json")),
            episodes=[
                json.loads(line) for line in read_text(root, name, f"{retest}/episodes.jsonl").splitlines()
            ],
            steps=read_steps(list(csv.DictReader(io.StringIO(read_text(root, name, f"{train}/steps.csv"))))),
        )
    except ValueError as error:
        raise DataError(f"the loop of {name} cannot be read: {error}") from error


def _settings_that_ran(name: str, stages: Json) -> dict[str, Any]:
    """Section -> settings, from what DVC noted when the stages ran; params.yaml may have changed since."""
    found: dict[str, Any] = {}
    for stage in _up_to("retest", stages):
        for section, values in stages[stage].get("params", {}).get("params.yaml", {}).items():
            if found.setdefault(section, values) != values:
                raise DataError(
                    f"the stages of {name} ran with different settings of {section} ({stage} is one of them)",
                    hint="bring its loop up to date: dvc repro",
                )
    return found


def _up_to(last: str, stages: Json) -> list[str]:
    """The stage and all that it reads from; what comes after it may be of an earlier loop."""
    made_by = {out["path"]: stage for stage, entry in stages.items() for out in entry.get("outs", [])}
    found, ahead = [], [last]
    while ahead:
        stage = ahead.pop()
        if stage in stages and stage not in found:
            found.append(stage)
            ahead += [made_by[dep["path"]] for dep in stages[stage].get("deps", []) if dep["path"] in made_by]
    return found
