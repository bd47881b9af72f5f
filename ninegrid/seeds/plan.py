"""What is to be run: a name, overrides of ``conf/`` and seeds, checked before anything runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ninegrid.errors import SettingsError
from ninegrid.experiments.cell import Cell, last_stage
from ninegrid.experiments.digest import code_digest, result_digest, sha256
from ninegrid.experiments.results import SEED_KEY
from ninegrid.params import compose
from ninegrid.settings import Settings, validate

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Plan:
    """Seeds to run under one setting.

    Attributes:
        name: of the folder of results, and first in the names of the experiments.
        overrides: Hydra overrides of ``conf/``, without the seed.
        seeds: distinct values of ``train.seed``.
        settings: what ``conf/`` composes to with the overrides and the first seed, checked.
        cells: one for each seed.
    """

    name: str
    overrides: tuple[str, ...]
    seeds: tuple[int, ...]
    settings: Settings
    cells: tuple[Cell, ...]


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
    settings = [validate(compose([*overrides, f"{SEED_KEY}={seed}"])) for seed in seeds]
    code = code_digest(root)
    cells = tuple(
        _cell(name, overrides, seed, result_digest(of_seed, code), last_stage(of_seed))
        for seed, of_seed in zip(seeds, settings, strict=True)
    )
    return Plan(name, tuple(overrides), tuple(seeds), settings[0], cells)


def _cell(name: str, overrides: Sequence[str], seed: int, digest: str, last: str) -> Cell:
    return Cell(
        label=f"seed {seed}",
        file=f"seed-{seed}",
        values={SEED_KEY: seed},
        overrides=(*overrides, f"{SEED_KEY}={seed}"),
        digest=digest,
        experiment=f"{name}-seed-{seed}-{digest[:6]}",
        last_stage=last,
    )


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
    return f"{name}-{sha256(rest)[:6]}" if rest else name
