"""What makes a run self-describing: which process, which revision, which inputs.

It reads and never judges: a checkout without git simply has no revision tag.
"""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

import psutil

from ninegrid.errors import DataError

HOST, PID, STARTED = "ninegrid.host", "ninegrid.pid", "ninegrid.process_started"
CELL = "ninegrid.cell"

SWEEP_VARIABLE = "NINEGRID_SWEEP"
"""Environment variable by which a sweep tells the processes of its cells that they belong to it."""

CELL_VARIABLE = "NINEGRID_CELL"
"""Environment variable by which an experiment tells its processes what it is called among its siblings."""

_SAME_START_S = 2.0
"""Start times of one process may differ this much: they are reckoned from the clock, which is adjusted."""


def process_tags() -> dict[str, str]:
    """Tags by which `process_is_gone` can tell later whether this process still runs."""
    me = psutil.Process()
    return {HOST: socket.gethostname(), PID: str(me.pid), STARTED: f"{me.create_time():.2f}"}


def experiment_tags() -> dict[str, str]:
    """The DVC experiment, sweep and cell that this process belongs to, by which their runs are found."""
    known = {
        "ninegrid.dvc_experiment": os.environ.get("DVC_EXP_NAME"),
        "ninegrid.sweep": os.environ.get(SWEEP_VARIABLE),
        CELL: os.environ.get(CELL_VARIABLE),
    }
    return {tag: name for tag, name in known.items() if name}


def process_is_gone(tags: Mapping[str, str]) -> bool:
    """Whether a run with these tags was begun by a process of this host that no longer runs.

    False whenever that cannot be known: another host, or tags that are not ours.  The start time
    tells the process from a later one of the same number.
    """
    if tags.get(HOST) != socket.gethostname() or PID not in tags or STARTED not in tags:
        return False
    try:
        process = psutil.Process(int(tags[PID]))
        other = abs(process.create_time() - float(tags[STARTED])) > _SAME_START_S
        return other or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def git_tags(root: Path) -> dict[str, str]:
    """Revision of the checkout at ``root`` and whether tracked files differ from it; {} without git."""
    revision = _git(root, "rev-parse", "--verify", "HEAD")
    if revision is None:
        return {}
    changes = _git(root, "status", "--porcelain", "--untracked-files=no")
    return {
        "mlflow.source.git.commit": revision,
        "ninegrid.git_revision": revision,
        "ninegrid.git_dirty": "true" if changes else "false",
    }


def input_hashes(inputs: Mapping[str, Path]) -> dict[str, str]:
    """Tags ``input.NAME`` -> sha256 of a file, or of a folder's file names and contents.

    Raises:
        DataError: an input does not exist or cannot be read.
    """
    try:
        return {f"input.{name}": _hash(path) for name, path in inputs.items()}
    except OSError as error:
        raise DataError(
            f"cannot read {error.filename}: {error.strerror}", hint="make what is missing with: dvc repro"
        ) from error


def _hash(path: Path) -> str:
    if not path.is_dir():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    files = sorted(p for p in path.rglob("*") if p.is_file())
    lines = [f"{p.relative_to(path).as_posix()} {_hash(p)}\n" for p in files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _git(root: Path, *arguments: str) -> str | None:
    """Output of a git command, or None where there is no git, no repository or no commit."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
