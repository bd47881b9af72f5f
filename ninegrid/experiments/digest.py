"""By what a result counts as known: a digest of everything that it depends on.

That is the composed settings and the code that ``dvc.yaml`` lists.  A result with another digest is of
something else, and its experiment is run again.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from ninegrid.config import unbind
from ninegrid.params import compose, describe_changes, read_params
from ninegrid.progress import say

NEUTRAL = ("tracking", "paths")
"""Sections that no result depends on."""


def result_digest(settings: Any, code: str) -> str:
    """Digest of settings (``ninegrid.settings.Settings``, so that 1 and 1.0 are the same) and code."""
    return sha256([code, json.dumps(what_counts(settings), sort_keys=True)])


def what_counts(settings: Any) -> dict[str, Any]:
    """The settings without the sections that no result depends on."""
    return {section: value for section, value in unbind(settings).items() if section not in NEUTRAL}


def code_digest(root: Path) -> str:
    """Digest of ``dvc.yaml`` and of the code that its stages list; generated files do not count."""
    pipeline = (root / "dvc.yaml").read_text(encoding="utf-8")
    stages: dict[str, Any] = yaml.safe_load(pipeline)["stages"]
    listed = {dep for stage in stages.values() for dep in stage.get("deps", []) if not dep.startswith("$")}
    files = sorted({file for dep in listed for file in _files(root / dep)})
    return sha256([pipeline, *(_line(root, file) for file in files)])


def sha256(texts: Iterable[str]) -> str:
    """Digest of lines of text."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def untracked_sources(root: Path) -> list[str]:
    """Files of code or settings that git does not know: DVC leaves them out of an experiment's copy."""
    done = subprocess.run(
        ["git", "-C", str(root), "ls-files", "--others", "--exclude-standard", "conf", "ninegrid", "stages"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.splitlines()


def tell_what_is_not_seen(root: Path, speaker: str) -> None:
    """Say what of the workspace experiments will not see: they compose conf/ and know git's files alone."""
    changes = describe_changes(compose([]), read_params())
    if changes:
        say(f"{speaker}: params.yaml is not read, which differs from conf/ in {len(changes)} settings")
    new = untracked_sources(root)
    if new:
        say(f"{speaker}: warning: git does not know {', '.join(new)}; experiments run without (git add)")


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    else:
        yield from (p for p in path.rglob("*") if p.is_file() and "__pycache__" not in p.parts)


def _line(root: Path, file: Path) -> str:
    return f"{file.relative_to(root).as_posix()} {hashlib.sha256(file.read_bytes()).hexdigest()}"
