"""Where files live: the ``paths`` section, resolved against the project root."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ninegrid.project import project_root, store_root


@dataclass(frozen=True)
class PathSettings:
    """Folders of the stages' outputs, and of shared state; relative ones belong to the project."""

    model: str = "data/model"
    boards: str = "data/boards"
    audit: str = "data/audit"
    baseline: str = "data/baseline"
    warm_start: str = "data/warm_start"
    alternatives: str = "data/alternatives"
    policy: str = "data/policy"
    train: str = "data/train"
    retest: str = "data/retest"
    perturbed: str = "data/perturbed"
    state: str = ".ninegrid"

    def folder(self, name: str) -> Path:
        """The folder of the output called ``name``."""
        return project_root() / getattr(self, name)

    def state_folder(self, name: str = "") -> Path:
        """The folder of shared state, or one in it; in DVC's temporary copies the original project's."""
        return store_root() / self.state / name
