"""A sweep that is stopped in the middle of a training, as by a person or a scheduler."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from tests.conftest import Project


def stopped_sweep(
    project: Project, number: int, *arguments: str, send: Callable[[int, int], None] = os.killpg
) -> tuple[int, str]:
    """Start the sweep ``s``, send it a signal once a training has left a checkpoint, and see it end.

    Args:
        send: `os.killpg` for the whole process group, as Ctrl-C does; `os.kill` for the command alone.

    Returns:
        Its exit status and what it said on stderr.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "stages.sweep", "-m", "hydra.job.name=s", *arguments],
        cwd=project.root,
        env=project.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 900
        while not list((project.root / ".ninegrid/checkpoints").glob("*/checkpoint.pt")):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.02)
        send(process.pid, number)
        said = process.communicate(timeout=300)[1]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, said
