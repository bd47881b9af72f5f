"""Fixtures of the model sources: a tiny model as GGUF, as wheels, and as a folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ninegrid.policy.sources import fetch
from tests.fetching import (
    settings_of,
)
from tests.model_files import write_gguf, write_wheel


@pytest.fixture(scope="session")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(path)
    return path


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory, gguf: Path) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    write_wheel(folder, "1.0", gguf)
    broken = write_wheel(folder, "2.0", gguf, stored=True)
    content = broken.read_bytes()
    # Uncompressed, so the member's bytes stand in the wheel as they are; change one of them.
    place = content.index(gguf.read_bytes()[-64:])
    broken.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    return folder


@pytest.fixture
def index(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pip finds the wheels of the folder and nothing else."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    return wheels


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "data" / "model"


@pytest.fixture
def downloads(tmp_path: Path) -> Path:
    return tmp_path / "state" / "downloads"


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory, gguf: Path) -> Path:
    """A folder of model files, with some that are none of a model's."""
    place = tmp_path_factory.mktemp("model_folder")
    (place / "in").mkdir()
    shutil.copy(gguf, place / "in")
    fetch(settings_of({"kind": "local", "path": str(place / "in")}), place / "out", place / "downloads")
    (place / "out" / "optimizer.pt").write_bytes(b"not a model's")
    (place / "out" / "modeling.py").write_text("raise SystemExit")
    (place / "out" / "subfolder").mkdir()
    return place / "out"
