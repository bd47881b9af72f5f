"""What must be equal for two measurements to be comparable.

The baseline saves its conditions; the retest states its own and refuses to go on when they
differ, naming what does.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ninegrid.errors import ConditionsError
from ninegrid.outputs import read_json

FILE = "conditions.json"


def write_conditions(folder: Path, conditions: Mapping[str, Any]) -> None:
    """Save the conditions of a measurement in its folder."""
    text = json.dumps(conditions, indent=2, sort_keys=True)
    (folder / FILE).write_text(text + "\n", encoding="utf-8")


def check_conditions(folder: Path, actual: Mapping[str, Any]) -> None:
    """Compare the conditions of a measurement with those saved in ``folder``.

    Raises:
        DataError: the saved file is missing or unreadable.
        ConditionsError: they differ; names each difference with both values.
    """
    lines = differences(read_json(folder / FILE, "baseline_eval"), actual, "baseline")
    if lines:
        raise ConditionsError(
            "the retest would not be measured like the baseline; " + "; ".join(lines),
            hint="measure both under the same settings: dvc repro baseline_eval retest",
        )


def differences(
    saved: Mapping[str, Any], actual: Mapping[str, Any], name: str, but: Collection[str] = ()
) -> list[str]:
    """What differs between the conditions ``saved`` by ``name`` and the retest's, with both values.

    Args:
        but: conditions that may differ.
    """
    current = json.loads(json.dumps(actual))
    keys = sorted((saved.keys() | current.keys()) - set(but))
    return [
        f"{k}: {name} {saved.get(k)!r}, retest {current.get(k)!r}"
        for k in keys
        if saved.get(k) != current.get(k)
    ]
