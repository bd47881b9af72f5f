"""Says on the terminal how each cell ended, as soon as its job has left a note.

The command says it and not the job, because a job may run where nobody sees what it prints.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ninegrid.progress import clock, say
from ninegrid.sweep.meeting import Note, read_notes

LOOK_S = 0.25
"""Seconds between looks into the sweep's folder."""


@contextmanager
def telling(folder: Path) -> Iterator[None]:
    """While the block runs, say how cells of the sweep in ``folder`` end; all is said when it is left."""
    over = threading.Event()
    teller = threading.Thread(target=_tell, args=(folder, over), daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


def _tell(folder: Path, over: threading.Event) -> None:
    told: list[Note] = []
    began, last = time.monotonic(), False
    while not last:
        last = over.wait(LOOK_S)  # asked before looking, so that the last look misses nothing
        for note in read_notes(folder, {note.number for note in told}):
            told.append(note)
            say(_line(note, told, time.monotonic() - began))


def _line(note: Note, told: list[Note], seconds: float) -> str:
    count = f"{len(told)}/{note.total}" if note.total else str(len(told))
    how = note.failure or f"{note.headline}{' (known)' if note.known else ''}"
    return f"sweep: {count}  {note.label}  {how}{_eta(note.total, told, seconds)}"


def _eta(total: int | None, told: list[Note], seconds: float) -> str:
    """The time left by the pace of the cells that ran so far."""
    ran = sum(not note.known for note in told)
    if not total or not ran or len(told) >= total:
        return ""
    return f"  ETA {clock(seconds / ran * (total - len(told)))}"
