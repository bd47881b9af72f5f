"""The sweep's folder, where the command and its jobs meet: nothing else goes between them.

One execution of the sweep is known by its mark: the command leaves it when it begins and takes it away when
it ends, however it ends.  A job that does not find the mark of its own execution is wanted no longer.  Jobs
leave a note of how they ended, and a flag for as long as they run.  All of these are small files, so that
jobs can run on any machine that shares the folder.
"""

from __future__ import annotations

import json
import time
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ninegrid.experiments.running import ASK_S, GRACE_S
from ninegrid.outputs import write_json
from ninegrid.tracking.provenance import process_is_gone, process_tags

MARK = "execution"
NOTES = "ended"
"""Folder of the notes of one execution of the sweep."""
FLAGS = "running"
END_S = 3 * GRACE_S
"""How long the command waits for jobs that are wanted no longer: they insist twice before they kill."""


@dataclass(frozen=True)
class Note:
    """How a cell ended in this execution.

    Attributes:
        failure: what went wrong; None for nothing.
        known: its result was there before.
        headline: its result in a few words.
        total: how many cells there are; None if that is not known.
    """

    number: int
    label: str
    file: str
    values: Mapping[str, Any]
    failure: str | None
    known: bool
    headline: str = ""
    total: int | None = None


def begin(folder: Path, mark: str) -> None:
    """Forget an earlier execution, and let jobs of this one run."""
    for name in (NOTES, FLAGS):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for path in (folder / name).iterdir():
            path.unlink()
    (folder / MARK).write_text(mark, encoding="utf-8")


def end(folder: Path) -> None:
    """Tell jobs that still run or wait elsewhere that they are wanted no longer, and see them end."""
    (folder / MARK).unlink(missing_ok=True)
    deadline = time.monotonic() + END_S
    while _some_run(folder) and time.monotonic() < deadline:
        time.sleep(ASK_S / 4)


def is_on(folder: Path, mark: str) -> bool:
    """Whether the execution of this mark has begun and not ended."""
    try:
        return (folder / MARK).read_text(encoding="utf-8") == mark
    except FileNotFoundError:
        return False


@contextmanager
def flag(folder: Path, number: int) -> Iterator[None]:
    """For as long as the block runs, others can see that job ``number`` does."""
    path = folder / FLAGS / f"{number:05d}"
    _write(path, process_tags())
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def leave_note(folder: Path, note: Note) -> None:
    _write(folder / NOTES / f"{note.number:05d}.json", asdict(note))


def read_notes(folder: Path, told: Container[int] = ()) -> list[Note]:
    """The notes of this execution but those numbered in ``told``, in the order of the cells."""
    paths = [path for path in sorted((folder / NOTES).glob("*.json")) if int(path.stem) not in told]
    return [Note(**json.loads(path.read_text(encoding="utf-8"))) for path in paths]


def _some_run(folder: Path) -> bool:
    """Whether any job runs; one that was killed has left its flag, which is seen on its own machine alone."""
    return any(not process_is_gone(tags) for tags in map(_read, (folder / FLAGS).glob("[0-9]*")) if tags)


def _read(path: Path) -> dict[str, str]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}


def _write(path: Path, content: Mapping[str, Any]) -> None:
    """Whole or not at all: others read it meanwhile, and do not look for the draft's name."""
    draft = path.with_name(f".{path.stem}")
    write_json(draft, content)
    draft.replace(path)
