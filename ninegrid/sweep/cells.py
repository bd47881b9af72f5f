"""From Hydra's overrides to the cells of a sweep: what is swept, which there are, what each is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from ninegrid.config import unbind
from ninegrid.errors import SettingsError
from ninegrid.experiments.cell import Cell, last_stage
from ninegrid.experiments.digest import code_digest, result_digest, sha256, what_counts
from ninegrid.params import Params, check_names, compose, is_group
from ninegrid.settings import Settings, validate

SHOWN_DIGITS = 6
"""Significant digits of a number in a cell's label."""


def parse(arguments: Sequence[str]) -> list[Override]:
    """The overrides among command-line arguments, without those of Hydra itself.

    Raises:
        SettingsError: one cannot be read.
    """
    parser, found = OverridesParser.create(), []
    for argument in arguments:
        if argument.startswith(("-", "hydra.", "hydra/")):
            continue
        try:
            found.append(parser.parse_override(argument))
        except HydraException as error:
            raise SettingsError(
                f"cannot read {argument!r}: {error}", hint="settings are KEY=VALUE"
            ) from error
    return found


def sweep_name(overrides: Sequence[Override]) -> str:
    """The sweep's name where none is given: equal overrides in any order give the same."""
    return f"sweep-{sha256(sorted(str(o.input_line) for o in overrides))[:6]}"


def swept_keys(overrides: Sequence[Override]) -> list[str]:
    """Settings and groups that have more than one value, in the order given."""
    return [o.key_or_group for o in overrides if o.is_sweep_override()]


def grid(overrides: Sequence[Override]) -> list[list[str]]:
    """The overrides of every cell, in the order in which Hydra's own sweeper runs them.

    Raises:
        SettingsError: an override has a range of values, not some values.
    """
    try:
        batches = BasicSweeper.split_arguments(list(overrides), max_batch_size=None)
    except HydraException as error:
        raise SettingsError(str(error), hint="search a range with: hydra/sweeper=search") from error
    return [list(cell) for batch in batches for cell in batch]


def check_grid(cells: Sequence[Sequence[str]]) -> None:
    """Compose and check every cell before anything runs.

    Raises:
        SettingsError: the first wrong setting, with the cell that it is in; or two cells are the same.
    """
    known: list[tuple[Any, str]] = []
    for overrides in cells:
        label = " ".join(overrides)
        try:
            settings = what_counts(validate(compose(overrides)))
        except SettingsError as error:
            raise SettingsError(f"cell {label}: {error.message}", hint=error.hint) from error
        for other, name in known:
            if other == settings:
                raise SettingsError(
                    f"cell {label} is the same as cell {name} in all that its result depends on"
                )
        known.append((settings, label))


def check_keys(keys: Sequence[str], shared: Settings) -> None:
    """Refuse settings and groups that a search is to choose, but that do not exist.

    Raises:
        SettingsError: naming the nearest one.
    """
    check_names((key for key in keys if not is_group(key)), unbind(shared))


def make_cell(
    root: Path, name: str, overrides: Sequence[str], swept: Sequence[str], settings: Settings
) -> Cell:
    """The cell of one combination.

    Args:
        name: of the sweep.
        overrides: Hydra overrides of ``conf/``, one value each.
        swept: the settings and groups that the sweep varies; empty for all that are overridden.
        settings: what ``conf/`` composes to with the overrides.
    """
    values = cell_values(overrides, swept, unbind(settings))
    digest = result_digest(settings, code_digest(root))
    label = " ".join(f"{key}={shown(value)}" for key, value in values.items()) or "the only cell"
    return Cell(
        label=label,
        file=digest[:12],
        values=values,
        overrides=tuple(overrides),
        digest=digest,
        experiment=f"{name}-{digest[:8]}",
        last_stage=last_stage(settings),
    )


def cell_values(overrides: Sequence[str], swept: Sequence[str], params: Params) -> dict[str, Any]:
    """The value that each swept setting has in ``params``; of a group, the choice's name."""
    values = {}
    for override in parse(overrides):
        key = override.key_or_group
        if not swept or key in swept:
            named = override.get_value_element_as_str()
            values[key] = named if key in params else _at(params, key.split("."), named)
    return values


def _at(node: Any, path: Sequence[str], missing: str) -> Any:
    for part in path:
        if not isinstance(node, Mapping) or part not in node:
            return missing
        node = node[part]
    return node


def shown(value: object) -> str:
    """A value as it stands in a label."""
    if isinstance(value, float):
        return f"{value:.{SHOWN_DIGITS}g}"
    return str(value)
