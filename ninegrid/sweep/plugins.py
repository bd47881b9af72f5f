"""Hydra's launchers and sweepers that are packages of their own, and how to get them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from ninegrid.errors import SettingsError

_NEEDED = {
    "hydra/launcher": {
        "box": ("hydra-joblib-launcher", "sweep"),
        "joblib": ("hydra-joblib-launcher", "sweep"),
        "cluster": ("hydra-ray-launcher", "ray"),
        "ray": ("hydra-ray-launcher", "ray"),
        "slurm": ("hydra-submitit-launcher", "slurm"),
        "submitit_slurm": ("hydra-submitit-launcher", "slurm"),
        "submitit_local": ("hydra-submitit-launcher", "slurm"),
    },
    "hydra/sweeper": {
        "search": ("hydra-optuna-sweeper", "sweep"),
        "optuna": ("hydra-optuna-sweeper", "sweep"),
    },
}
"""Group -> choice -> the package that it needs, and the extra of ours that brings it."""


def check_plugins(arguments: Sequence[str]) -> None:
    """Refuse a launcher or sweeper whose package is not installed.

    Raises:
        SettingsError: naming the package and the command that installs it.
    """
    for argument in arguments:
        group, _, choice = argument.partition("=")
        package, extra = _NEEDED.get(group, {}).get(choice, (None, None))
        if package is not None and not _is_installed(package):
            raise SettingsError(
                f"{argument} needs the package {package}, which is not installed",
                hint=f"pip install -e '.[{extra}]'",
            )


def _is_installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True
