"""A model that already lies in a folder of this machine."""

from __future__ import annotations

import json
from pathlib import Path

from ninegrid.errors import ModelSourceError
from ninegrid.policy.adapters import CONFIG_FILE
from ninegrid.policy.files import MANIFEST, copy_model_files, sha256_of
from ninegrid.policy.settings import LocalSource


def fill(source: LocalSource, target: Path, root: Path) -> None:
    """Copy the model's files of the folder into ``target``; a relative path starts at ``root``.

    Raises:
        ModelSourceError: there is no such folder, or it holds no model.
        OSError: something cannot be written.
    """
    folder = root / Path(source.path).expanduser()
    if not folder.is_dir():
        raise ModelSourceError(f"there is no folder {folder}", hint="check model.source.path")
    if (folder / CONFIG_FILE).exists():
        raise ModelSourceError(
            f"{folder} holds an adapter, which is no model by itself",
            hint=f"merge it first, and name the new folder in model.source.path: "
            f"python -m ninegrid.merge {source.path} {source.path}-merged",
        )
    if not (folder / "config.json").exists() and not any(folder.glob("*.gguf")):
        raise ModelSourceError(
            f"{folder} holds no model: no config.json and no .gguf file",
            hint="point model.source.path at the folder that holds these files",
        )
    copy_model_files(folder, target)


def find_change(source: LocalSource, fetched: Path, root: Path) -> Path | None:
    """The first file of the folder that is not the one in ``fetched``, which was copied from it, or None.

    DVC does not watch the folder, which may lie anywhere.  Files that were unpacked on the way are not
    compared.
    """
    manifest = fetched / MANIFEST
    if not manifest.exists():
        return None
    folder = root / Path(source.path).expanduser()
    for name, described in json.loads(manifest.read_text(encoding="utf-8"))["files"].items():
        path = folder / name
        same = not path.is_file() or (
            path.stat().st_size == described["bytes"] and sha256_of(path) == described["sha256"]
        )
        if not same:
            return path
    return None
