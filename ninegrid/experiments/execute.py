"""Makes sure that a cell's result is there: from its record, from its DVC experiment, or by running it."""

from __future__ import annotations

import fcntl
import random
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO

from ninegrid.errors import DataError, NinegridError
from ninegrid.experiments.cell import Cell
from ninegrid.experiments.results import Result, read_experiment, read_record, write_record
from ninegrid.experiments.running import ASK_S, Manner, find_experiment, run_experiment
from ninegrid.progress import say

LOCKED = "Unable to acquire lock"
"""DVC's message when another process has its lock: it waits for 3 s and gives up."""
PAUSE_S = (1.0, 5.0)
"""Before another attempt: drawn at random, so that those that met do not meet again."""
PATIENCE_S = 24 * 3600.0
"""For how long attempts go on: a `dvc repro` of the workspace may take its time."""


class CellError(NinegridError):
    """The cell's experiment did not come to its end; the message says how, and where its log is."""


def known_result(root: Path, cell: Cell, folder: Path) -> Result | None:
    """The result that was recorded in ``folder``, unless settings or code have changed since.

    Without its experiment, which may have been removed, it does not count: there is nothing behind it.
    """
    known = read_record(record_path(cell, folder), cell.digest)
    if known is not None and find_experiment(root, cell.experiment) is None:
        return None
    # What tells a cell from its siblings depends on the siblings, and they may be others this time.
    return None if known is None else replace(known, values=cell.values)


def execute(root: Path, cell: Cell, folder: Path, retest: str, manner: Manner | None = None) -> Result:
    """Run the cell, or take up its experiment where only our record of it is missing.

    Args:
        root: the project.
        folder: keeps records and logs; must exist.
        retest: folder of the retest's outputs, relative to the project.

    Raises:
        StoppedError: it is wanted no longer.
        CellError: a stage failed or was killed, or the experiment holds no retest.
    """
    manner = manner or Manner()
    with _alone(cell, folder, manner) as held:
        if find_experiment(root, cell.experiment) is None:
            _run(root, cell, log_path(cell, folder), manner, held)
    revision = find_experiment(root, cell.experiment)
    if revision is None:
        raise CellError(f"DVC made no experiment {cell.experiment}: {log_path(cell, folder)}")
    try:
        result = read_experiment(root, revision, retest, cell)
    except DataError as error:
        raise CellError(str(error)) from error
    write_record(record_path(cell, folder), result)
    return result


@contextmanager
def _alone(cell: Cell, folder: Path, manner: Manner) -> Iterator[int]:
    """Hold the cell's lock; gives its file descriptor, to be handed on to the experiment's process.

    As long as that process lives the lock is held, even if this one is killed: whoever wants the cell next
    waits for it instead of running it a second time beside it.

    Raises:
        StoppedError: it is wanted no longer.
    """
    with (folder / f"{cell.file}.lock").open("w") as file:
        told = False
        while not _locked(file):
            if not told:
                say(f"{cell.label}: is being run for an earlier call; waiting for its end")
                told = True
            time.sleep(ASK_S)
            manner.check_wanted()
        yield file.fileno()


def _locked(file: IO[str]) -> bool:
    """Take the lock of an open file, if nobody has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _run(root: Path, cell: Cell, log: Path, manner: Manner, held: int) -> None:
    """Run the experiment; again while other processes hold DVC's lock, and what has run is cached then."""
    say(f"{cell.label}: experiment {cell.experiment}, log {log}")
    began, told = time.monotonic(), False
    while True:
        status = run_experiment(root, cell, log, f"[{cell.label}] ", manner, (held,))
        seconds = time.monotonic() - began
        if status == 0:
            return
        if LOCKED not in _read(log) or seconds > PATIENCE_S:
            raise CellError(f"{how_it_ended(log, status)} after {seconds:.0f} s: {log}")
        if not told:
            say(f"{cell.label}: another process holds DVC's lock; waiting for it")
            told = True
        time.sleep(random.uniform(*PAUSE_S))
        manner.check_wanted()


def record_path(cell: Cell, folder: Path) -> Path:
    return folder / f"{cell.file}.json"


def log_path(cell: Cell, folder: Path) -> Path:
    return folder / f"{cell.file}.log"


def how_it_ended(log: Path, status: int) -> str:
    """``FAILED`` or ``KILLED``, and which stage it was, from what DVC said last."""
    ends = re.findall(r"failed to run: python -m stages\.(\w+), exited with (-?\d+)", _read(log))
    if not ends:
        return f"FAILED (dvc exp run ended with status {status})"
    stage, code = ends[-1][0], int(ends[-1][1])
    # A shell in between tells of a signal as 128 + its number.
    number = -code if code < 0 else code - 128
    if number in {int(known) for known in signal.Signals}:
        return f"KILLED ({stage}, {signal.Signals(number).name})"
    return f"FAILED ({stage}, status {code})"


def _read(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
