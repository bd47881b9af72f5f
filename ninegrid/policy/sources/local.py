"""A model that already lies in a folder of this machine."""

from __future__ import annotations

from pathlib import Path

from ninegrid.errors import ModelSourceError
from ninegrid.policy.files import copy_model_files
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
    if not (folder / "config.json").exists() and not any(folder.glob("*.gguf")):
        raise ModelSourceError(
            f"{folder} holds no model: no config.json and no .gguf file",
            hint="point model.source.path at the folder that holds these files",
        )
    copy_model_files(folder, target)
