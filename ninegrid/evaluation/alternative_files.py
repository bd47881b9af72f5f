"""The files in which alternatives to training are kept, and what stands there when none is measured."""

from __future__ import annotations

from pathlib import Path

from ninegrid.evaluation.alternative_settings import NAMES
from ninegrid.evaluation.conditions import FILE as CONDITIONS
from ninegrid.outputs import output_folder, write_json

METRICS = "metrics.json"


def episodes_file(name: str) -> str:
    """Name of the file that holds the episodes of an alternative."""
    return f"episodes-{name}.jsonl"


def write_nothing(folder: Path) -> None:
    """Write that no alternative was measured: the same files, which DVC tracks, with nothing in them.

    Raises:
        DataError: the folder cannot be written.
    """
    with output_folder(folder) as draft:
        write_json(draft / METRICS, {})
        write_json(draft / CONDITIONS, {})
        for name in NAMES:
            (draft / episodes_file(name)).touch()
