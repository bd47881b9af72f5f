"""What is to be run: a name, overrides of ``conf/``, seeds, and by what a run counts as done.

A seed's digest covers everything that its result depends on: the composed settings and the code that
``dvc.yaml`` lists.  A result with another digest is of something else, and the seed is run again.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ninegrid.app import read_sections
from ninegrid.errors import SettingsError
from ninegrid.params import Params, compose
from ninegrid.settings import Settings, validate

SEED_KEY = "train.seed"
NEUTRAL = ("tracking", "paths")
"""Sections that no result depends on."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Plan:
    """Seeds to run under one setting.

    Attributes:
        name: of the folder of results, and first in the names of the experiments.
        overrides: Hydra overrides of ``conf/``, without the seed.
        seeds: distinct values of ``train.seed``.
        settings: what ``conf/`` composes to with the overrides, checked.
        digests: seed -> digest of all that its result depends on.
    """

    name: str
    overrides: tuple[str, ...]
    seeds: tuple[int, ...]
    settings: Settings
    digests: dict[int, str]

    def experiment(self, seed: int) -> str:
        """The name of the seed's DVC experiment; equal names mean equal results."""
        return f"{self.name}-seed-{seed}-{self.digests[seed][:6]}"

    def overrides_of(self, seed: int) -> list[str]:
        """Everything that is overridden in one run."""
        return [*self.overrides, f"{SEED_KEY}={seed}"]


def make_plan(root: Path, seeds: Sequence[int], overrides: Sequence[str], name: str | None = None) -> Plan:
    """Check everything before anything is run.

    Args:
        root: the project.
        name: None for one that follows from the overrides (`default_name`).

    Raises:
        SettingsError: a seed is given twice or negative, an override sets the seed or does not compose, or a
            setting is wrong.
    """
    _check(seeds, overrides)
    name = default_name(overrides) if name is None else name
    if not _NAME.fullmatch(name):
        raise SettingsError(f"--name {name!r}, expected letters, digits, - and _")
    composed = {seed: compose([*overrides, f"{SEED_KEY}={seed}"]) for seed in seeds}
    for params in composed.values():
        validate(params)
    code = code_digest(root)
    digests = {seed: _digest(params, code) for seed, params in composed.items()}
    settings: Settings = read_sections(Settings, composed[seeds[0]])
    return Plan(name, tuple(overrides), tuple(seeds), settings, digests)


def _check(seeds: Sequence[int], overrides: Sequence[str]) -> None:
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise SettingsError(f"--seeds {','.join(map(str, seeds))}, expected distinct whole numbers >= 0")
    for override in overrides:
        if override.lstrip("+~").partition("=")[0] == SEED_KEY:
            raise SettingsError(f"{override}: the seeds are given by --seeds")


def default_name(overrides: Sequence[str]) -> str:
    """The preset's name, and a digest of what is overridden besides it."""
    presets = [o.partition("=")[2] for o in overrides if o.startswith("experiment=")]
    rest = sorted(o for o in overrides if not o.startswith("experiment="))
    name = re.sub(r"[^A-Za-z0-9_-]", "-", presets[-1]) if presets else "default"
    return f"{name}-{_sha256(rest)[:6]}" if rest else name


def code_digest(root: Path) -> str:
    """Digest of ``dvc.yaml`` and of the code that its stages list; generated files do not count."""
    pipeline = (root / "dvc.yaml").read_text(encoding="utf-8")
    stages: dict[str, Any] = yaml.safe_load(pipeline)["stages"]
    listed = {dep for stage in stages.values() for dep in stage.get("deps", []) if not dep.startswith("$")}
    files = sorted({file for dep in listed for file in _files(root / dep)})
    return _sha256([pipeline, *(_line(root, file) for file in files)])


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    else:
        yield from (p for p in path.rglob("*") if p.is_file() and "__pycache__" not in p.parts)


def _line(root: Path, file: Path) -> str:
    return f"{file.relative_to(root).as_posix()} {hashlib.sha256(file.read_bytes()).hexdigest()}"


def _digest(params: Params, code: str) -> str:
    counts = {section: value for section, value in params.items() if section not in NEUTRAL}
    return _sha256([code, json.dumps(counts, sort_keys=True)])


def _sha256(texts: Iterable[str]) -> str:
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
