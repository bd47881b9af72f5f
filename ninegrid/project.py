"""Where things lie: the two roots from which every path of the settings is resolved.

Not a settings class, and nothing heavy: it looks at this file's own place and at nothing else, so
that it means the same from any working directory.
"""

from __future__ import annotations

from pathlib import Path

from ninegrid.errors import NinegridError

_EXPERIMENT_COPIES = (".dvc", "tmp", "exps")
"""DVC runs `dvc exp run --temp` in a copy of the project below this folder of the original."""


def project_root() -> Path:
    """The checkout that holds the running code: where sources, ``params.yaml`` and ``data/`` lie.

    Raises:
        NinegridError: the code runs from an installed package, with no checkout around it.
    """
    root = Path(__file__).resolve().parent.parent
    if not (root / "pyproject.toml").is_file():
        raise NinegridError(
            f"ninegrid runs from {root}, which is not a checkout (it has no pyproject.toml)",
            hint="run it from a clone of the project, installed with: pip install -e .",
        )
    return root


def store_root() -> Path:
    """The root that owns shared state (checkpoints, downloads, the MLflow store).

    It is `project_root`, except inside one of DVC's temporary experiment copies, which come and
    go: there it is the project that the copy was made from.
    """
    return owner_of(project_root())


def owner_of(root: Path) -> Path:
    """The project from which ``root`` was copied by DVC, or ``root`` itself if it is no such copy."""
    parts = root.parts
    for i in range(len(parts) - len(_EXPERIMENT_COPIES)):
        if parts[i : i + len(_EXPERIMENT_COPIES)] == _EXPERIMENT_COPIES:
            return Path(*parts[:i])
    return root
