"""Real servers that tests start and end: MLflow's, and PostgreSQL for it to write into."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: Sequence[str], log: Path, answers: Callable[[], bool], **extra: Any) -> Iterator[None]:
    """A server in a process group of its own, from when it answers to the end of the block.

    Args:
        log: takes what it prints.
        answers: whether it does.
        extra: more arguments of ``Popen``.
    """
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True, **extra)
    try:
        for _ in range(600):
            assert process.poll() is None, f"the server has ended: {log.read_text()}"
            if answers():
                break
            time.sleep(0.2)
        else:
            pytest.fail(f"the server never answered: {log.read_text()}")
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=60)


def is_served(url: str) -> bool:
    """Whether somebody answers at ``url``."""
    try:
        with urllib.request.urlopen(url, timeout=10):
            return True
    except OSError:
        return False


PROGRAMS = ("initdb", "postgres", "pg_isready")


def why_no_postgresql() -> str:
    """What is missing to run MLflow on PostgreSQL here, and how to get it; empty if nothing is."""
    missing = [name for name in PROGRAMS if _program(name) is None]
    if missing:
        where = "neither on PATH nor in /usr/lib/postgresql/*/bin"
        return f"PostgreSQL's {', '.join(missing)}: {where}; apt-get install postgresql"
    if importlib.util.find_spec("psycopg2") is None:
        return "the driver psycopg2 is not installed: pip install -e '.[server]'"
    return ""


def _program(name: str) -> str | None:
    """Its path: Debian's packages keep the programs of each version in a folder of their own."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *map(str, folders)]))


@contextmanager
def postgresql() -> Iterator[str]:
    """A PostgreSQL server with an empty database, for this user alone; gives its address for SQLAlchemy.

    It listens at a Unix socket only, whose path has to be short.
    """
    initdb, postgres, ready = (str(_program(name)) for name in PROGRAMS)
    folder = Path(tempfile.mkdtemp(prefix="ninegrid-pg-"))
    run_as: dict[str, Any] = {"cwd": folder}
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        run_as |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    try:
        made = [initdb, "-D", str(folder / "data"), "-U", "ninegrid", "-E", "UTF8", "--locale=C", "--no-sync"]
        subprocess.run([*made, "--auth=trust"], check=True, capture_output=True, **run_as)
        served = [postgres, "-D", str(folder / "data"), "-k", str(folder), "-c", "listen_addresses="]
        asked = [ready, "-q", "-h", str(folder)]
        with running(
            [*served, "-c", "fsync=off"],
            folder / "log",
            lambda: subprocess.run(asked, check=False).returncode == 0,
            **run_as,
        ):
            yield f"postgresql+psycopg2://ninegrid@/postgres?host={folder}"
    finally:
        shutil.rmtree(folder)
