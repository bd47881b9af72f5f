"""What every stage entrypoint shares: Hydra in front, one message for an error behind.

A stage is a function of one argument, ``settings``, whose annotation is a dataclass of the
sections it reads.  `stage` makes it a Hydra application over ``params.yaml``; nothing but those
sections reaches it.
"""

from __future__ import annotations

import functools
import os
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import hydra
from hydra.conf import HelpConf, HydraConf, JobConf, RunDir, SweepDir
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

from ninegrid.config import SECTIONS, bind, unknown_key
from ninegrid.errors import NinegridError
from ninegrid.params import check_overrides, compose, describe_changes, plain, read_params
from ninegrid.progress import say
from ninegrid.project import store_root

SHOWN_CHANGES = 4
"""Differences from conf/ that are listed one by one when a stage starts."""

HELP = """{about}

It reads the sections {sections} of params.yaml.
Change a setting for this run alone with KEY=VALUE; sweep over several with -m KEY=A,B.
To change params.yaml, or to choose a group such as model or reward:
  python -m ninegrid.params KEY=VALUE

== Settings ==
$CONFIG
== Flags ==
--cfg job     print the settings and exit
-m            run once for each combination of comma-separated values
--hydra-help  more of Hydra's flags
"""


def stage(main: Callable[[Any], None]) -> Callable[[], None]:
    """Turn a function of typed settings into a command.

    Errors that a person can act on are printed as one message with exit status 2; anything else
    is a bug and keeps its traceback.
    """
    share_cores()
    settings_class = typing.get_type_hints(main)["settings"]
    name = Path(main.__code__.co_filename).stem

    def job(config: DictConfig) -> None:
        with _one_message(name):
            main(read_sections(settings_class, plain(config)))

    @functools.wraps(main)
    def entry() -> None:
        with _one_message(name):
            params = read_params()
            check_overrides(sys.argv[1:], params, [field.name for field in fields(settings_class)])
            _tell_difference(name, params)
        _register(name, main, settings_class, params)
        hydra.main(version_base="1.3", config_path=None, config_name="params")(job)()

    return entry


def share_cores() -> None:
    """Let torch's threads sleep while they wait for each other, unless the user decided otherwise.

    Spinning threads are some 10% faster on an idle machine, and many times slower when any other
    program wants one of the cores.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def read_sections(settings_class: type, raw: Any) -> Any:
    """Bind the sections that ``settings_class`` names out of all of ``params.yaml``.

    Raises:
        SettingsError: a section is unknown or missing, or a setting is wrong.
    """
    for key in raw:
        if key not in SECTIONS:
            raise unknown_key(str(key), SECTIONS)
    names = [field.name for field in fields(settings_class)]
    return bind(settings_class, {name: raw[name] for name in names if name in raw})


@contextmanager
def _one_message(name: str) -> Iterator[None]:
    try:
        yield
    except NinegridError as error:
        say(f"{name}: {error}")
        if "DVC_STAGE" in os.environ:
            say("  -> what DVC removed to run this stage comes back with: dvc checkout")
        sys.exit(2)
    except KeyboardInterrupt:
        say(f"{name}: stopped; run it again to go on")
        sys.exit(130)


def _tell_difference(name: str, params: Mapping[str, Any]) -> None:
    """Say in one line how params.yaml differs from what conf/ composes to, if it does."""
    changes = describe_changes(compose([]), params)
    if len(changes) > SHOWN_CHANGES:
        say(
            f"{name}: params.yaml differs from conf/ in {len(changes)} settings; "
            "list them with: python -m ninegrid.params --check"
        )
    elif changes:
        say(f"{name}: params.yaml differs from conf/: {'; '.join(changes)}")


def _register(
    name: str, main: Callable[[Any], None], settings_class: type, params: Mapping[str, Any]
) -> None:
    """Make params.yaml Hydra's primary config."""
    sections = ", ".join(field.name for field in fields(settings_class))
    quiet_hydra(name, HELP.format(about=(main.__doc__ or "").strip(), sections=sections))
    ConfigStore.instance().store(name="params", node=OmegaConf.create(dict(params)), provider="ninegrid")


def quiet_hydra(name: str, about: str) -> None:
    """Keep Hydra from leaving folders and log files; ``about`` is what ``--help`` says."""
    config = HydraConf(
        job=JobConf(name=name),
        run=RunDir(dir="."),
        sweep=SweepDir(dir=str(store_root() / ".ninegrid" / "multirun"), subdir="."),
        output_subdir=None,
        help=HelpConf(app_name=name, header="", footer="", template=about),
    )
    for entry in config.defaults:
        if "job_logging" in entry or "hydra_logging" in entry:
            entry.update(dict.fromkeys(entry, "none"))
    ConfigStore.instance().store(group="hydra", name="config", node=config, provider="ninegrid")
