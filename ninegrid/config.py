"""The one door between configuration and code.

A stage states the sections it reads as a frozen dataclass of section dataclasses; `bind` turns
the plain mapping from ``params.yaml`` (after Hydra's overrides) into it.  Unknown keys, wrong types and
impossible values are refused here, before anything heavy is imported.  No OmegaConf object and
no raw mapping travels further.
"""

from __future__ import annotations

import difflib
import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from ninegrid.errors import SettingsError

T = TypeVar("T")

SECTIONS = (
    "model",
    "task",
    "reward",
    "boards",
    "chat",
    "decoding",
    "engine",
    "warm_start",
    "adapter",
    "train",
    "eval",
    "perturb",
    "alternatives",
    "tracking",
    "paths",
)
"""Every top-level key of ``params.yaml``."""


class OutOfRange(ValueError):  # noqa: N818
    """Raised by a settings class for a value of the right type that makes no sense."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(f"{field} = {value!r}, allowed: {allowed}")
        self.field, self.value, self.allowed = field, value, allowed


def require(ok: bool, field: str, value: object, allowed: str) -> None:
    """Refuse ``field = value`` unless ``ok``; for use in ``__post_init__`` of settings classes."""
    if not ok:
        raise OutOfRange(field, value, allowed)


@dataclass(frozen=True)
class TaskSettings:
    """Which task: ``_target_`` names a class by its import path, the rest are its arguments."""

    target: str
    arguments: Mapping[str, Any]

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> TaskSettings:
        rest = dict(raw)
        target = rest.pop("_target_", None)
        if not isinstance(target, str):
            raise OutOfRange("_target_", target, "the import path of a task class")
        return cls(target, rest)

    def to_mapping(self) -> dict[str, Any]:
        return {"_target_": self.target, **self.arguments}


def bind(cls: type[T], raw: object, where: str = "") -> T:
    """Build the dataclass ``cls`` from the mapping ``raw``.

    Args:
        cls: a dataclass whose fields are int, float, str, bool, None, Literal, tuples, mappings
            from str, or further dataclasses.  A class method ``from_mapping`` takes precedence,
            for sections whose keys are open.
        raw: plain Python data.
        where: dotted path of ``raw``, for messages.

    Raises:
        SettingsError: naming the key, the value and what is allowed.
    """
    if not isinstance(raw, Mapping):
        raise SettingsError(f"{where or 'the settings'} = {raw!r}, expected a mapping of keys")
    try:
        custom = getattr(cls, "from_mapping", None)
        if custom is not None:
            return custom(raw)
        return cls(**_arguments(cls, raw, where))
    except OutOfRange as error:
        path = _join(where, error.field)
        raise SettingsError(f"{path} = {error.value!r}, allowed: {error.allowed}") from error


def bind_recipe(recipes: Mapping[str, type], raw: Mapping[str, Any], where: str) -> Any:
    """Build the one of ``recipes`` that ``raw["method"]`` names; see `bind` for the errors."""
    method = raw.get("method")
    require(method in recipes, "method", method, ", ".join(recipes))
    return bind(recipes[str(method)], raw, where)


def unbind(settings: Any) -> Any:
    """Settings as the plain data that `bind` makes them from, with the keys of ``params.yaml``."""
    custom = getattr(settings, "to_mapping", None)
    if custom is not None:
        return custom()
    if is_dataclass(settings):
        return {field.name: unbind(getattr(settings, field.name)) for field in fields(settings)}
    if isinstance(settings, Mapping):
        return {key: unbind(value) for key, value in settings.items()}
    if isinstance(settings, tuple):
        return [unbind(value) for value in settings]
    return settings


def bind_numbers(raw: Mapping[str, Any], where: str) -> dict[str, float]:
    """A section with open keys whose values are all finite numbers."""
    return {str(k): _convert(float, v, _join(where, str(k))) for k, v in raw.items()}


def flatten(tree: Mapping[str, Any], stem: str = "") -> dict[str, Any]:
    """Nested mappings as one mapping with dotted keys; empty mappings are kept as values."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        path = f"{stem}.{key}" if stem else str(key)
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, path))
        else:
            flat[path] = value
    return flat


def unknown_key(path: str, known: Iterable[str]) -> SettingsError:
    """The error for a key that does not exist, with the nearest ones that do."""
    names = list(known)
    stem, _, leaf = path.rpartition(".")
    near = difflib.get_close_matches(leaf, names, n=1, cutoff=0.6)
    if near:
        return SettingsError(f"unknown setting {path}; did you mean {_join(stem, near[0])}?")
    return SettingsError(f"unknown setting {path}; {stem or 'the top level'} has {', '.join(names)}")


def _arguments(cls: type, raw: Mapping[str, Any], where: str) -> dict[str, Any]:
    if not is_dataclass(cls):
        raise TypeError(f"{cls!r} is not a dataclass")
    hints = typing.get_type_hints(cls)
    known = {f.name: f for f in fields(cls)}
    for key in raw:
        if key not in known:
            raise unknown_key(_join(where, str(key)), known)
    missing = [
        n for n, f in known.items() if n not in raw and f.default is MISSING and f.default_factory is MISSING
    ]
    if missing:
        raise SettingsError(
            f"missing setting {_join(where, missing[0])}",
            hint="compose a complete file again with: python -m ninegrid.params",
        )
    return {key: _convert(hints[key], value, _join(where, key)) for key, value in raw.items()}


def _convert(hint: Any, value: Any, path: str) -> Any:
    """Check ``value`` against the type ``hint``; ints are accepted where floats are expected."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _convert_union(hint, value, path)
    if origin is Literal:
        if value in get_args(hint):
            return value
        raise _wrong(path, value, "one of " + ", ".join(map(str, get_args(hint))))
    if origin is tuple:
        return _convert_tuple(hint, value, path)
    if origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        if not isinstance(value, Mapping):
            raise _wrong(path, value, "a mapping")
        item = get_args(hint)[1]
        return {str(k): _convert(item, v, _join(path, str(k))) for k, v in value.items()}
    if is_dataclass(hint):
        return bind(typing.cast(type, hint), value, path)
    return _convert_scalar(hint, value, path)


def _convert_scalar(hint: Any, value: Any, path: str) -> Any:
    if hint is Any:
        return value
    if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise _wrong(path, value, "a finite number")
        return float(value)
    if hint in (int, str, bool) and type(value) is hint:
        return value
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    raise _wrong(path, value, names.get(hint, str(hint)))


def _convert_union(hint: Any, value: Any, path: str) -> Any:
    options = get_args(hint)
    if value is None and type(None) in options:
        return None
    choices = [o for o in options if o is not type(None)]
    for choice in choices[:-1]:
        try:
            return _convert(choice, value, path)
        except SettingsError:
            continue
    return _convert(choices[-1], value, path)


def _convert_tuple(hint: Any, value: Any, path: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise _wrong(path, value, "a list")
    item = get_args(hint)[0]
    return tuple(_convert(item, v, f"{path}[{i}]") for i, v in enumerate(value))


def _wrong(path: str, value: object, expected: str) -> SettingsError:
    return SettingsError(f"{path} = {value!r}, expected {expected}")


def _join(stem: str, leaf: str) -> str:
    return f"{stem}.{leaf}" if stem else leaf
