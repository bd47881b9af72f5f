"""From a command line to settings, and back to what `ninegrid.params` must be given for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf

from ninegrid.config import flatten
from ninegrid.errors import SettingsError
from ninegrid.params import Params, check_names, compose, is_group, plain, read_params
from ninegrid.project import project_root

ABSENT = object()


def params_with(overrides: Sequence[str]) -> Params:
    """``params.yaml`` with overrides of single settings; if one chooses a group, all composed anew.

    Raises:
        SettingsError: an override cannot be read, or names nothing that exists.
    """
    keys = [_key(override) for override in overrides]
    if any(map(is_group, keys)):
        return compose(overrides)
    params = read_params()
    check_names(keys, params)
    return plain(OmegaConf.merge(OmegaConf.create(params), OmegaConf.from_dotlist(list(overrides))))


def overrides_of(params: Mapping[str, Any]) -> list[str]:
    """Overrides from which ``conf/`` composes ``params``: an experiment, groups, then single settings."""
    chosen: list[str] = []
    best = compose([])
    for group in ("experiment", *(section for section in params if is_group(section))):
        if group != "experiment" and best[group] == params[group]:
            continue
        for option in _options(group):
            tried = compose([*chosen, f"{group}={option}"])
            if _distance(tried, params) < _distance(best, params):
                best, keep = tried, f"{group}={option}"
                chosen = [c for c in chosen if not c.startswith(f"{group}=")] + [keep]
    wanted, have = flatten(params), flatten(best)
    return [*chosen, *(f"{k}={_text(v)}" for k, v in wanted.items() if have.get(k, ABSENT) != v)]


def _distance(one: Mapping[str, Any], other: Mapping[str, Any]) -> int:
    a, b = flatten(one), flatten(other)
    return sum(a.get(key, ABSENT) != b.get(key, ABSENT) for key in a.keys() | b.keys())


def _options(group: str) -> list[str]:
    return sorted(path.stem for path in (project_root() / "conf" / group).glob("*.yaml"))


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(_text, value))}]"
    return "{}" if value == {} else str(value)


def _key(override: str) -> str:
    try:
        return str(OverridesParser.create().parse_override(override).key_or_group)
    except HydraException as error:
        raise SettingsError(
            f"cannot read {override!r}: {error}", hint="give settings as KEY=VALUE"
        ) from error
