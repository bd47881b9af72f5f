"""Checks of the checkout: git, DVC, settings, the model's files, the tracking store."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

from ninegrid.doctor.findings import Finding
from ninegrid.project import project_root

SECONDS = 60
"""Longest that a command of git or DVC is waited for."""


def git() -> Finding:
    """The repository."""
    done = _run("git", "rev-parse", "--short", "HEAD")
    if done.returncode:
        reason = done.stderr.strip().splitlines() or ["git is not installed"]
        return Finding(
            "fail", reason[-1], "DVC works in a git repository: git clone the project, or git init"
        )
    changed = len(_run("git", "status", "--porcelain").stdout.splitlines())
    return Finding("ok", f"at {done.stdout.strip()}, {changed} files differ from it")


def dvc() -> Finding:
    """The pipeline: which stages are up to date."""
    if not (project_root() / ".dvc" / "config").exists():
        return Finding("fail", "there is no .dvc/config here", "git checkout .dvc")
    done = _run(sys.executable, "-m", "dvc", "status", "--json")
    if done.returncode:
        said = (done.stderr.strip() or "dvc status failed").splitlines()
        if any("lock" in line for line in said):
            return Finding(
                "warn", "another DVC command is under way in this checkout", "python -m dvc status"
            )
        return Finding("fail", said[-1], "python -m dvc status")
    waiting = [name for name in json.loads(done.stdout or "{}") if not name.endswith(".dvc")]
    if waiting:
        return Finding("ok", f"{len(waiting)} stages are to be run: {', '.join(waiting)}", "make repro")
    return Finding("ok", "every stage is up to date")


def params() -> Finding:
    """``params.yaml``: valid, and how it differs from ``conf/``."""
    from ninegrid.params import compose, describe_changes, read_params
    from ninegrid.settings import validate

    raw = read_params()
    validate(raw)
    changes = describe_changes(compose([]), raw)
    if not changes:
        return Finding("ok", "valid, and what conf/ composes to")
    first = f"{len(changes)} settings differ from conf/, first {changes[0]}"
    return Finding("ok", f"valid; {first}", "python -m ninegrid.params --check")


def model() -> Finding:
    """The files of the model that the settings name."""
    from ninegrid.policy.files import find_difference, find_problem, model_files

    settings = all_settings()
    folder = settings.paths.folder("model")
    if not folder.exists():
        return Finding("warn", f"{settings.model.name} is not fetched", "python -m stages.fetch_model")
    problem = find_problem(folder) or find_difference(folder)
    if problem is not None:
        return Finding("fail", problem, "python -m stages.fetch_model")
    n_bytes = sum(path.stat().st_size for path in model_files(folder))
    return Finding("ok", f"{settings.model.name}, {n_bytes / 1e9:.2f} GB, every file as its manifest says")


def tracking() -> Finding:
    """The MLflow store: there, and to be written to."""
    from ninegrid.tracking.settings import sqlite_file, store_uri

    settings = all_settings()
    if not settings.tracking.enabled:
        return Finding("ok", "off: nothing is mirrored to MLflow")
    uri = store_uri(settings.tracking, settings.paths.state_folder())
    file = sqlite_file(uri)
    if file is not None:
        return _database(file)
    if uri.startswith(("http://", "https://")):
        return _server(uri)
    return _folder(Path(uri.removeprefix("file://")))


def all_settings() -> Any:
    """Every section of ``params.yaml``, checked."""
    from ninegrid.params import read_params
    from ninegrid.settings import validate

    return validate(read_params())


def existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    while not folder.exists():
        folder = folder.parent
    return folder


def _database(file: Path) -> Finding:
    if not file.exists():
        return _folder(file.parent)
    try:
        with closing(sqlite3.connect(file, timeout=2.0, isolation_level=None)) as store:
            store.execute("BEGIN IMMEDIATE")
            store.execute("ROLLBACK")
    except sqlite3.Error as error:
        return Finding("warn", f"{file}: {error}", "training goes on without; see who else uses that file")
    return Finding("ok", f"{file.name}, {file.stat().st_size / 1e6:.1f} MB, can be written")


def _server(uri: str) -> Finding:
    try:
        with urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=5):
            return Finding("ok", f"the server at {uri} answers")
    except (urllib.error.URLError, OSError, ValueError) as error:
        return Finding(
            "warn", f"the server at {uri} does not answer: {error}", "training goes on without; start it"
        )


def _folder(folder: Path) -> Finding:
    there = existing(folder)
    if os.access(there, os.W_OK):
        return Finding("ok", f"will be made in {folder.name}")
    return Finding("fail", f"{there} cannot be written", f"chmod u+w {there}, or set tracking.uri")


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DVC_NO_ANALYTICS": "1"}
    try:
        return subprocess.run(
            command,
            cwd=project_root(),
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except FileNotFoundError:
        return subprocess.CompletedProcess(command, 127, "", f"{command[0]} is not installed")
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"{' '.join(command)} took over {SECONDS} s")
