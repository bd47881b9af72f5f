"""A throw-away copy of the project, as a git and DVC repository of its own, to run commands in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.isolated import ENVIRONMENT
from ninegrid.errors import NinegridError
from ninegrid.project import project_root

FILES = ("conf", "ninegrid", "stages", "dvc.yaml", "pyproject.toml", "README.md")
DOT_FILES = (".gitignore", ".dvcignore", ".dvc/config")


@dataclass(frozen=True)
class Ended:
    """How a command went.

    Attributes:
        seconds: from its start to its end.
        lines: of its standard error, each with the seconds after which it came.
    """

    seconds: float
    status: int
    lines: list[tuple[float, str]]

    @property
    def stderr(self) -> str:
        return "".join(line for _, line in self.lines)


class ProjectCopy:
    """The copy in ``root``; commands run in it, with its code and this interpreter."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def python(self, *arguments: str, status: int = 0) -> Ended:
        """Run the interpreter and time it.

        Raises:
            NinegridError: it ended with another status than the expected one.
        """
        return self._run([sys.executable, *arguments], status)

    def dvc(self, *arguments: str) -> Ended:
        return self.python("-m", "dvc", *arguments)

    def git(self, *arguments: str) -> Ended:
        identity = ["-c", "user.name=benchmark", "-c", "user.email=benchmark@example.org"]
        return self._run(["git", *identity, *arguments], 0)

    def commit(self, message: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-qm", message)

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace ``old``, which must be there, in a file of the copy."""
        file = self.root / path
        text = file.read_text(encoding="utf-8")
        if old not in text:
            raise NinegridError(f"{path} does not hold {old!r}: the benchmark is older than the project")
        file.write_text(text.replace(old, new), encoding="utf-8")

    def _run(self, command: list[str], status: int) -> Ended:
        start = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=self.root,
            env=self._environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        lines = [(time.perf_counter() - start, line) for line in process.stderr]
        ended = Ended(0.0, process.wait(), lines)
        ended = Ended(time.perf_counter() - start, ended.status, lines)
        if ended.status != status:
            raise NinegridError(
                f"{' '.join(command)} ended with status {ended.status}, expected {status}:\n{ended.stderr}"
            )
        return ended

    def _environment(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
        path = os.pathsep.join([str(Path(sys.executable).parent), own.get("PATH", "")])
        fixed = {"PATH": path, "PYTHONPATH": str(self.root), "DVC_NO_ANALYTICS": "1"}
        return {**own, **ENVIRONMENT, **fixed}


def copy_project(folder: Path) -> ProjectCopy:
    """Copy the project's sources into ``folder``, with the download folder at hand."""
    origin, root = project_root(), folder / "project"
    root.mkdir()
    for name in FILES:
        source = origin / name
        if source.is_dir():
            shutil.copytree(source, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, root / name)
    (root / "data").mkdir()
    (root / ".ninegrid").mkdir()
    downloads = origin / ".ninegrid" / "downloads"
    if downloads.exists():
        (root / ".ninegrid" / "downloads").symlink_to(downloads)
    copy = ProjectCopy(root)
    copy.git("init", "-q", "-b", "main")
    copy.dvc("init", "-q")
    for name in DOT_FILES:
        shutil.copy(origin / name, root / name)
    return copy
