"""Checkpoints of a run in progress.

They live outside DVC's outputs (which DVC deletes before a stage runs), in a folder named by a
digest of everything the run depends on, so a checkpoint can only ever continue the same run.
Draws and the order of boards are functions of the seed and the round of sampling; what is saved is the
weights, the optimiser, torch's generator, what the engine remembers, how far it is, and the rows so far.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from ninegrid.errors import TrainingError
from ninegrid.gspo.health import Row

FILE = "checkpoint.pt"
KEEP_OTHERS = 2
"""Checkpoints of other unfinished runs that are kept; older ones are deleted (gigabytes each)."""


@dataclass(frozen=True)
class State:
    """Everything needed to go on after ``step`` finished steps and ``rounds`` rounds of sampling."""

    step: int
    rounds: int
    model: dict[str, Any]
    optimizer: dict[str, Any]
    engine: list[list[int]]
    rows: list[Row]


def digest(facts: Mapping[str, Any]) -> str:
    """A short digest of plain data that tells one run from another."""
    text = json.dumps(facts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Checkpoints:
    """The newest checkpoint of one run.

    Args:
        root: folder of all runs' checkpoints.
        run: digest of the run.
    """

    def __init__(self, root: Path, run: str) -> None:
        self._root = root
        self.folder = root / run

    def load(self) -> State | None:
        """The saved state, or None when there is none.

        Raises:
            TrainingError: the file cannot be read back; says how to start over.
        """
        path = self.folder / FILE
        if not path.exists():
            return None
        try:
            raw = torch.load(path, map_location="cpu", weights_only=True)
        except (OSError, RuntimeError, EOFError, ValueError, UnpicklingError) as error:
            raise TrainingError(
                f"checkpoint {path} cannot be read: {error}",
                hint=f"start this training over with: rm -r {self.folder}",
            ) from error
        torch.set_rng_state(raw.pop("rng"))
        return State(**raw)

    def save(self, state: State) -> None:
        """Write the state aside and rename it over the last one.

        Raises:
            TrainingError: the disk is full or the folder is not writable.
        """
        partial = self.folder / f"{FILE}.partial"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with partial.open("wb") as file:
                torch.save({**vars(state), "rng": torch.get_rng_state()}, file)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self.folder / FILE)
        except (OSError, RuntimeError) as error:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
            raise TrainingError(
                f"cannot write checkpoint {self.folder / FILE}: {error}",
                hint="make room or permission there, or go without: train.checkpoint_every=0",
            ) from error
        self._prune()

    def clear(self) -> None:
        """Forget this run: it has finished and its policy is saved."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _prune(self) -> None:
        others = [f for f in self._root.iterdir() if f.is_dir() and f != self.folder]
        for folder in sorted(others, key=lambda f: f.stat().st_mtime, reverse=True)[KEEP_OTHERS:]:
            shutil.rmtree(folder, ignore_errors=True)
