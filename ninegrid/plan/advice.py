"""What to change when a run does not fit: the changes that cost least come first."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ninegrid.plan.plan import Plan, PlanSettings
from ninegrid.policy.adapters import AdapterSettings

FEWEST_TOKENS = 128
"""Tokens of a pass or of a batch below which nothing more is gained."""

LORA: Mapping[str, Any] = {"method": "lora", "rank": 16, "alpha": 32.0, "targets": [], "merge": True}
"""As in ``conf/adapter/lora.yaml``."""


@dataclass(frozen=True)
class Change:
    """A setting to change.

    Attributes:
        override: as given on a command line.
        cost: what is lost by it.
        section: of the settings.
        fields: new values there; for ``adapter``, the section itself.
    """

    override: str
    cost: str
    section: str
    fields: Mapping[str, Any]

    def applied(self, settings: Any) -> Any:
        """The settings with this change."""
        old = getattr(settings, self.section)
        if self.section == "adapter":
            return dataclasses.replace(settings, adapter=AdapterSettings.from_mapping(self.fields))
        return dataclasses.replace(settings, **{self.section: dataclasses.replace(old, **self.fields)})


@dataclass(frozen=True)
class Advice:
    """Changes, in order, and the plan under all of them; the plan may still not fit."""

    changes: tuple[Change, ...]
    plan: Plan


def advise(settings: PlanSettings, plan: Plan, make: Callable[[Any], Plan]) -> Advice:
    """Find changes under which the run fits.

    Args:
        plan: of ``settings`` as they are.
        make: makes a plan.
    """
    chosen: list[Change] = []
    current: Any = settings
    for change in _changes(settings, plan.device.kind):
        if plan.fits:
            break
        tried = make(change.applied(current))
        if tried.peak.total < plan.peak.total:
            chosen = [c for c in chosen if c.override.split("=")[0] != change.override.split("=")[0]] + [
                change
            ]
            current, plan = change.applied(current), tried
    return Advice(*_pruned(settings, chosen, plan, make))


def _pruned(
    settings: Any, chosen: list[Change], plan: Plan, make: Callable[[Any], Plan]
) -> tuple[tuple[Change, ...], Plan]:
    """Without the changes that later ones made unnecessary."""
    for change in list(chosen) if plan.fits else []:
        rest = [c for c in chosen if c is not change]
        current = settings
        for kept in rest:
            current = kept.applied(current)
        tried = make(current)
        if rest and tried.fits:
            chosen, plan = rest, tried
    return tuple(chosen), plan


def _changes(settings: PlanSettings, kind: str) -> Iterator[Change]:
    """All that can be changed, the cheapest first."""
    train, model = settings.train, settings.model
    for tokens in _halves(train.max_tokens_per_pass):
        yield Change(
            f"train.max_tokens_per_pass={tokens}",
            "the same gradient, in more and slower passes",
            "train",
            {"max_tokens_per_pass": tokens},
        )
    for tokens in _halves(settings.engine.max_tokens_per_batch):
        yield Change(
            f"engine.max_tokens_per_batch={tokens}",
            "the same replies, in more batches",
            "engine",
            {"max_tokens_per_batch": tokens},
        )
    if not train.gradient_checkpointing:
        yield Change(
            "train.gradient_checkpointing=true",
            "a third more time in the update",
            "train",
            {"gradient_checkpointing": True},
        )
    small = "paged_adamw_8bit" if kind == "cuda" else "adamw_8bit"
    if train.optimizer != small:
        yield Change(f"train.optimizer={small}", "coarser moments", "train", {"optimizer": small})
    if settings.adapter.lora is None:
        yield Change("adapter=lora", "a thin adapter is trained instead of the weights", "adapter", LORA)
    if model.quantization == "none":
        yield Change(
            "model.quantization=nf4",
            "weights of 4 bits, which differ from those that were measured",
            "model",
            {"quantization": "nf4"},
        )


def _halves(number: int) -> Iterator[int]:
    while number > FEWEST_TOKENS:
        number = max(FEWEST_TOKENS, number // 2)
        yield number
