"""Running one DVC experiment, in a copy of the project of its own: ``dvc exp run --temp``.

The workspace, its outputs and ``params.yaml`` stay as they are.  Stages that ran before under the same
settings are taken from the shared cache.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from ninegrid.errors import NinegridError
from ninegrid.experiments.cell import Cell
from ninegrid.progress import say
from ninegrid.tracking.provenance import CELL_VARIABLE

NOISE = "No file hash info found"
"""DVC warns so of every output that a fresh copy has not got yet; kept in the log, not shown."""
GRACE_S = 60.0
"""How long DVC may take to put things in order after Ctrl-C."""
ASK_S = 1.0
"""Seconds between questions whether an experiment is to go on."""


class StoppedError(NinegridError):
    """The experiment was stopped, since it is wanted no longer."""


@dataclass(frozen=True)
class Manner:
    """How an experiment is run.

    Attributes:
        tags: environment variables for its processes.
        every: seconds between lines of its output on stderr; its log has them all.
        wanted: asked now and then; once it says no, the experiment is stopped.
    """

    tags: Mapping[str, str] = field(default_factory=dict)
    every: float = 0.0
    wanted: Callable[[], bool] = lambda: True

    def check_wanted(self) -> None:
        """Go on only if it is wanted still.

        Raises:
            StoppedError: it is not.
        """
        if not self.wanted():
            raise StoppedError("stopped, since what it belongs to has ended")


def find_experiment(root: Path, name: str) -> str | None:
    """The commit of the newest DVC experiment called ``name``, or None."""
    question = ["for-each-ref", "--sort=-committerdate", "--format=%(objectname)", f"refs/exps/*/*/{name}"]
    done = subprocess.run(["git", "-C", str(root), *question], capture_output=True, text=True, check=False)
    return next(iter(done.stdout.split()), None)


def run_experiment(
    root: Path, cell: Cell, log: Path, prefix: str, manner: Manner, held: Sequence[int] = ()
) -> int:
    """Run the cell's experiment; its output goes to ``log``, and line by line behind ``prefix`` to stderr.

    Args:
        held: file descriptors that DVC's process is to keep open.

    Returns:
        DVC's exit status.

    Raises:
        StoppedError: it is wanted no longer.
        BaseException: whatever interrupts it, once the experiment's processes have ended.
    """
    command = [sys.executable, "-m", "dvc", "exp", "run", "--temp", "--name", cell.experiment]
    command += [part for override in cell.overrides for part in ("--set-param", override)]
    command.append(cell.last_stage)
    with _interruptible():
        process = subprocess.Popen(
            command,
            cwd=root,
            env=_environment({CELL_VARIABLE: cell.label, **manner.tags}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=held,
            start_new_session=True,  # Ctrl-C reaches us alone, and we pass it on once
        )
    assert process.stdout is not None
    copier = threading.Thread(target=_copy, args=(process.stdout, log, prefix, manner.every), daemon=True)
    copier.start()
    try:
        return _wait(process, manner)
    except BaseException:
        _end(process)
        raise
    finally:
        copier.join(timeout=GRACE_S)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Start something that can be interrupted, even from a worker of Ray, where SIGINT is blocked."""
    before = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait(process: subprocess.Popen[str], manner: Manner) -> int:
    while True:
        try:
            return process.wait(ASK_S)
        except subprocess.TimeoutExpired:
            manner.check_wanted()


def _environment(tags: Mapping[str, str]) -> dict[str, str]:
    """The stages are started as ``python``: let that be this interpreter."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {**os.environ, **tags, "PATH": path, "PYTHONUNBUFFERED": "1"}


def _copy(stream: IO[str], log: Path, prefix: str, every: float) -> None:
    shown = float("-inf")
    with log.open("w", encoding="utf-8") as file:
        for line in stream:
            file.write(line)
            file.flush()
            if line.strip() and NOISE not in line and time.monotonic() - shown >= every:
                say(f"{prefix}{line.rstrip()}")
                shown = time.monotonic()


def _end(process: subprocess.Popen[str]) -> None:
    """Ask the experiment's processes to stop, then insist."""
    for number, patience in ((signal.SIGINT, GRACE_S), (signal.SIGTERM, GRACE_S), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, number)
            process.wait(patience)
            return
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            return
