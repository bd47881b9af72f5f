"""One job of a sweep, in whatever process Hydra's launcher starts it, and what it leaves for the others.

Jobs meet in the sweep's folder alone: each leaves its result and a note of how it ended, so that any number
of them can run side by side, on one machine or on several that share the folder.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ninegrid.errors import NinegridError
from ninegrid.experiments.cell import Cell
from ninegrid.experiments.execute import execute, known_result
from ninegrid.experiments.results import Result
from ninegrid.outputs import write_json
from ninegrid.progress import clock, interval_text, say

NOTES = "ended"
"""Folder of the notes of one execution of the sweep."""
EVERY_S = 60.0
"""Seconds between lines of a cell's own output on the terminal."""


@dataclass(frozen=True)
class Note:
    """How a cell ended in this execution: ``failure`` says what went wrong, None for nothing.

    ``known``: its result was there before.
    """

    number: int
    label: str
    file: str
    values: Mapping[str, Any]
    failure: str | None
    known: bool


def run_cell(
    root: Path,
    cell: Cell,
    folder: Path,
    retest: str,
    number: int,
    total: int | None,
    tags: Mapping[str, str],
) -> Result | None:
    """Make sure that the cell's result is there, and say in one line how it ended.

    Args:
        root: the project.
        folder: of the sweep; must exist.
        retest: folder of the retest's outputs, relative to the project.
        number: of the cell, from 0.
        total: how many cells there are; None if that is not known.
        tags: environment variables for the cell's processes.

    Returns:
        None for a cell that failed.
    """
    result, failure = known_result(cell, folder), None
    known = result is not None
    if result is None:
        try:
            result = execute(root, cell, folder, retest, tags=tags, every=EVERY_S)
        except NinegridError as error:
            failure = str(error)
    leave_note(folder, Note(number, cell.label, cell.file, cell.values, failure, known))
    how = failure if result is None else _headline(result, known)
    say(f"sweep: {_count(folder, total)}  {cell.label}  {how}{_eta(folder, total)}")
    return result


def begin(folder: Path) -> None:
    """Forget the notes of an earlier execution."""
    notes = folder / NOTES
    notes.mkdir(parents=True, exist_ok=True)
    for path in notes.iterdir():
        path.unlink()
    write_json(folder / "began.json", {"time": time.time()})


def leave_note(folder: Path, note: Note) -> None:
    """Write the note whole or not at all: others count them meanwhile."""
    draft = folder / NOTES / f".{note.number:05d}"
    write_json(draft, asdict(note))
    draft.replace(folder / NOTES / f"{note.number:05d}.json")


def read_notes(folder: Path) -> list[Note]:
    """The notes of this execution, in the order of the cells."""
    paths = sorted((folder / NOTES).glob("*.json"))
    return [Note(**json.loads(path.read_text(encoding="utf-8"))) for path in paths]


def _count(folder: Path, total: int | None) -> str:
    done = len(read_notes(folder))
    return f"{done}/{total}" if total else str(done)


def _headline(result: Result, known: bool) -> str:
    found = result.figures["sampled"]
    change = interval_text({"low": found.change_low, "high": found.change_high})
    return f"score {found.score:+.3f}, change {found.change:+.3f} {change}{' (known)' if known else ''}"


def _eta(folder: Path, total: int | None) -> str:
    """The time left by the pace of the cells that ran so far."""
    notes = read_notes(folder)
    ran = sum(not note.known for note in notes)
    if not total or not ran or len(notes) >= total:
        return ""
    seconds = time.time() - json.loads((folder / "began.json").read_text(encoding="utf-8"))["time"]
    return f"  ETA {clock(seconds / ran * (total - len(notes)))}"
