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


def check_conditions(
    folder: Path,
    actual: Mapping[str, Any],
    names: tuple[str, str] = ("baseline", "retest"),
    stages: tuple[str, str] = ("baseline_eval", "retest"),
) -> None:
    """Compare the conditions of a measurement with those saved in ``folder``.

    Args:
        names: of the saved measurement and of this one, for messages.
        stages: that make them.

    Raises:
        DataError: the saved file is missing or unreadable.
        ConditionsError: they differ; names each difference with both values.
    """
    old, new = names
    lines = differences(read_json(folder / FILE, stages[0]), actual, names)
    if lines:
        raise ConditionsError(
            f"the {new} would not be measured like the {old}; " + "; ".join(lines),
            hint=f"measure both under the same settings: dvc repro {' '.join(stages)}",
        )


def differences(
    saved: Mapping[str, Any], actual: Mapping[str, Any], names: tuple[str, str], but: Collection[str] = ()
) -> list[str]:
    """What differs between two measurements' conditions, with both values.

    Args:
        names: of the two measurements.
        but: conditions that may differ.
    """
    current = json.loads(json.dumps(actual))
    keys = sorted((saved.keys() | current.keys()) - set(but))
    return [
        f"{k}: {names[0]} {saved.get(k)!r}, {names[1]} {current.get(k)!r}"
        for k in keys
        if saved.get(k) != current.get(k)
    ]
