"""Files of a finished loop: the workspace's, or, from git and DVC's cache, those of another revision."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from ninegrid.errors import DataError

T = TypeVar("T")
WORKSPACE = "workspace"
"""The name of the loop that lies in ``data/`` now."""


def read_text(root: Path, name: str, path: str) -> str:
    """The text of the file ``path`` of the loop ``name``.

    Raises:
        DataError: there is no such revision, or it holds no such file.
    """
    if name == WORKSPACE:
        return _told(name, path, lambda: (root / path).read_text(encoding="utf-8"))
    return _from_revision(root, name, path, lambda files: files.read_text(path, encoding="utf-8"))


def read_yaml(root: Path, name: str, path: str, section: str) -> dict[str, Any]:
    """One section of the YAML file ``path`` of the loop ``name``.

    Raises:
        DataError: as `read_text`; or the file cannot be read, or has no such section.
    """
    try:
        found = yaml.safe_load(read_text(root, name, path))
    except yaml.YAMLError as error:
        raise DataError(f"{path} of {name} cannot be read: {error}", hint=f"git checkout {path}") from error
    if not isinstance(found, dict) or not isinstance(found.get(section), dict):
        raise DataError(f"{path} of {name} has no {section}", hint="finish its loop with dvc repro")
    return dict(found[section])


def fetch(root: Path, name: str, path: str, target: Path) -> None:
    """Copy a file or folder of the loop of an experiment or revision to ``target``; raises as `read_text`."""
    _from_revision(root, name, path, lambda files: files.get(path, str(target), recursive=True))


def _from_revision(root: Path, name: str, path: str, use: Callable[[Any], T]) -> T:
    from dvc.api import DVCFileSystem
    from dvc.scm import SCMError

    try:
        return _told(name, path, lambda: use(DVCFileSystem(str(root), rev=name)))
    except SCMError as error:
        raise DataError(f"{name} is no experiment or revision: {error}", hint="dvc exp list") from error


def _told(name: str, path: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} of {name} is no text: {error}", hint=f"git checkout {path}") from error
    except OSError as error:
        raise DataError(
            f"{name} has no {path}: {error}",
            hint="finish its loop with dvc repro (commit dvc.lock), or name another: dvc exp list",
        ) from error
