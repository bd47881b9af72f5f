"""The record of the warm start: which weights a training begins with.  Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ninegrid.errors import DataError
from ninegrid.outputs import read_json, write_json
from ninegrid.paths import PathSettings

RECORD_FILE, MODEL_FOLDER = "record.json", "model"
METHODS = ("none", "sft", "dpo")


@dataclass(frozen=True)
class Start:
    """Where a training begins: the folder of a model, and the method by which that was taught."""

    folder: Path
    method: str


def write_record(folder: Path, method: str, weights_sha256: str | None = None) -> None:
    """Say in ``folder`` what the warm start was: its method, and the hash of the weights it ended with."""
    write_json(folder / RECORD_FILE, {"method": method, "weights_sha256": weights_sha256})


def starting_model(paths: PathSettings) -> Start:
    """The model that the record names: the base model after ``none``, else the warm-started one.

    Raises:
        DataError: there is no record, or it is damaged.
    """
    folder = paths.folder("warm_start")
    method = read_json(folder / RECORD_FILE, "warm_start", ("method",))["method"]
    if method not in METHODS:
        raise DataError(
            f"{folder / RECORD_FILE}: method = {method!r}, expected one of {', '.join(METHODS)}",
            hint="dvc repro -f warm_start",
        )
    return Start(paths.folder("model") if method == "none" else folder / MODEL_FOLDER, method)
