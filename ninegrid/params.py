"""``params.yaml``: composed from ``conf/``, committed, and read by every stage and by DVC.

Run as ``python -m ninegrid.params [KEY=VALUE ...]`` to compose it anew with overrides, for
example ``model=qwen3_0_6b reward.win=2``; ``--check`` only validates what is there.  It always starts
from ``conf/``: give all overrides that are to hold at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ninegrid.config import flatten, unknown_key
from ninegrid.errors import DataError, NinegridError, SettingsError
from ninegrid.project import project_root

if TYPE_CHECKING:
    from ninegrid.settings import Settings

Params = dict[str, Any]


def read_params() -> Params:
    """The content of ``params.yaml`` as plain data.

    Raises:
        SettingsError: the file is missing or not YAML.
    """
    path = project_root() / "params.yaml"
    hint = "compose it with: python -m ninegrid.params"
    try:
        raw = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except FileNotFoundError as error:
        raise SettingsError(f"{path} does not exist", hint=hint) from error
    except (OSError, ValueError, yaml.YAMLError, OmegaConfBaseException) as error:
        raise SettingsError(f"{path} cannot be read: {error}", hint=hint) from error
    if not isinstance(raw, dict):
        raise SettingsError(f"{path} holds no mapping", hint=hint)
    return {str(key): value for key, value in raw.items()}


def compose(overrides: Sequence[str]) -> Params:
    """Compose ``conf/`` with Hydra overrides into plain, fully resolved data.

    Raises:
        SettingsError: an override names nothing that exists.
    """
    conf = str(project_root() / "conf")
    try:
        with initialize_config_dir(conf, version_base="1.3"):
            return plain(hydra_compose("config", overrides=list(overrides)))
    except (HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError) as error:
        _check_names_among(overrides)
        raise SettingsError(f"cannot compose conf/ with {' '.join(overrides)}: {error}") from error


def _check_names_among(overrides: Sequence[str]) -> None:
    """Refuse settings that the chosen groups do not have: Hydra would advise to add them with ``+``."""
    parser = OverridesParser.create()
    try:
        parsed = parser.parse_overrides(list(overrides))
    except HydraException:
        return
    settings = [
        o.key_or_group for o in parsed if not (is_group(o.key_or_group) or o.is_add() or o.is_delete())
    ]
    if settings:
        check_names(settings, compose([str(o.input_line) for o in parsed if is_group(o.key_or_group)]))


def is_group(key: str) -> bool:
    """Whether ``conf/`` has a folder of this name, to choose from."""
    return (project_root() / "conf" / key).is_dir()


def check_names(keys: Iterable[str], params: Params) -> None:
    """Refuse settings that ``params`` does not have.

    Raises:
        SettingsError: naming the setting and the nearest one.
    """
    for key in keys:
        _find(key, params)


def plain(config: Any) -> Params:
    """An OmegaConf object as plain, fully resolved data.

    Raises:
        SettingsError: an interpolation leads nowhere.
    """
    try:
        raw = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        raise SettingsError(f"cannot resolve the settings: {error}") from error
    assert isinstance(raw, dict)
    return {str(key): value for key, value in raw.items()}


def check_overrides(arguments: Sequence[str], params: Mapping[str, Any], sections: Sequence[str]) -> None:
    """Refuse command-line overrides of settings that do not exist, or that the stage does not read.

    Hydra would refuse the first kind too, later and without saying which setting may have been
    meant; the second kind would be taken and do nothing.

    Args:
        arguments: of the command line.
        params: the content of ``params.yaml``.
        sections: those that the stage reads.

    Raises:
        SettingsError: naming the setting and the nearest one.
    """
    parser = OverridesParser.create()
    for argument in arguments:
        if argument.startswith("-") or "=" not in argument or argument.startswith(("hydra.", "hydra/")):
            continue
        try:
            override = parser.parse_override(argument)
        except HydraException as error:
            raise SettingsError(f"cannot read {argument!r}: {error}") from error
        if not (override.is_add() or override.is_delete()):
            _check_key(override.key_or_group, params, argument)
        section = override.key_or_group.split(".")[0]
        if section in params and section not in sections:
            raise SettingsError(
                f"{argument}: this stage does not read {section}; it reads {', '.join(sections)}"
            )


def _find(key: str, params: Mapping[str, Any]) -> Any:
    """The value of a dotted setting; a SettingsError names the nearest one where there is none."""
    node: Any = params
    walked: list[str] = []
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            raise unknown_key(".".join([*walked, part]), node if isinstance(node, Mapping) else [])
        node = node[part]
        walked.append(part)
    return node


def _check_key(key: str, params: Mapping[str, Any], argument: str) -> None:
    node = _find(key, params)
    if "." not in key and isinstance(node, Mapping) and not argument.partition("=")[2].startswith("{"):
        raise SettingsError(
            f"{argument}: {key} is a group of settings, and params.yaml holds one choice of it",
            hint=f"choose it there with: python -m ninegrid.params {argument}",
        )


def describe_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """One ``key: old -> new`` for each setting that differs."""
    before, after = flatten(old), flatten(new)
    keys = [*before, *(key for key in after if key not in before)]
    absent = "(absent)"
    return [
        f"{key}: {before.get(key, absent)} -> {after.get(key, absent)}"
        for key in keys
        if before.get(key, absent) != after.get(key, absent)
    ]


def write_params(params: Mapping[str, Any]) -> None:
    """Write ``params.yaml`` in the form in which ``dvc exp run`` writes it."""
    text = OmegaConf.to_yaml(OmegaConf.create(dict(params)))
    (project_root() / "params.yaml").write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compose, validate and write ``params.yaml``; returns the exit status."""
    from ninegrid.settings import validate

    parser = argparse.ArgumentParser(prog="python -m ninegrid.params", description=__doc__)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="Hydra overrides of conf/")
    parser.add_argument("--check", action="store_true", help="validate params.yaml and change nothing")
    options = parser.parse_args(arguments)
    if options.check and options.overrides:
        parser.error(f"--check looks at params.yaml as it is; leave out {' '.join(options.overrides)}")
    try:
        if options.check:
            params = read_params()
            _check_kept(validate(params), params)
            _print(describe_changes(compose([]), params), "params.yaml differs from conf/")
            return 0
        params = compose(options.overrides)
        validate(params)
        changes = _changes_to(params)
        write_params(params)
        _print(changes, "params.yaml")
    except NinegridError as error:
        print(f"params: {error}", file=sys.stderr)
        return 2
    return 0


def _check_kept(settings: Settings, params: Params) -> None:
    """Refuse a model of this machine that is not the one that was fetched, which DVC would not notice.

    Raises:
        DataError: naming the file.
    """
    from ninegrid.policy.settings import LocalSource
    from ninegrid.policy.sources.local import find_change

    source, fetched = settings.model.source, settings.paths.folder("model")
    if not isinstance(source, LocalSource) or _fetched_under() != params["model"]:
        return
    changed = find_change(source, fetched, project_root())
    if changed is not None:
        raise DataError(
            f"{changed} is not the file from which {settings.paths.model} was made",
            hint="python -m dvc repro -f fetch_model; then go on",
        )


def _fetched_under() -> Any:
    """The settings under which the model was fetched, by ``dvc.lock``; None if it was not."""
    lock = project_root() / "dvc.lock"
    if not lock.exists():
        return None
    try:
        stages = (yaml.safe_load(lock.read_text(encoding="utf-8")) or {}).get("stages", {})
    except yaml.YAMLError:
        return None  # DVC says what is wrong with it
    return stages.get("fetch_model", {}).get("params", {}).get("params.yaml", {}).get("model")


def _changes_to(params: Params) -> list[str]:
    if not (project_root() / "params.yaml").exists():
        return ["written"]
    try:
        old = read_params()
    except SettingsError as error:
        return [f"replaced, since the old one could not be read: {error.message}"]
    return describe_changes(old, params) or ["unchanged"]


def _print(changes: Iterable[str], title: str) -> None:
    for change in changes:
        print(f"{title}: {change}")


if __name__ == "__main__":
    sys.exit(main())
