"""One experiment to be run: what is set, what it is called, and by what it counts as done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ninegrid.settings import Settings


@dataclass(frozen=True)
class Cell:
    """One setting of the pipeline.

    Attributes:
        label: how it is called on the terminal, such as ``seed 3``.
        file: first part of the names of its record and its log.
        values: setting -> its value, of the settings in which it differs from its siblings.
        overrides: all Hydra overrides of ``conf/``.
        digest: of all that the result depends on (`digest.result_digest`).
        experiment: the name of its DVC experiment; equal names mean equal results.
        last_stage: the stage that it is run up to (`last_stage`).
    """

    label: str
    file: str
    values: Mapping[str, Any]
    overrides: tuple[str, ...]
    digest: str
    experiment: str
    last_stage: str


def last_stage(settings: Settings) -> str:
    """The last stage that measures something: one that is switched off need not be started."""
    return "perturb_retest" if settings.perturb.names else "retest"
