"""Settings of section ``warm_start``: one recipe, whose keys are those that its method reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ninegrid.config import bind_recipe, require, unbind


@dataclass(frozen=True)
class NoWarmStart:
    """Training starts from the model as it is."""

    method: Literal["none"]


@dataclass(frozen=True, kw_only=True)
class _Teaching:
    """What every method that teaches reads.

    Attributes:
        seed: of the choice of boards, of the choice among equally good calls, and of the order.
        examples: training boards that are learned from, null for all.
        epochs: how often they are gone through.
        batch_size: boards in one optimiser step.
        learning_rate: of AdamW at the first step, from which it falls linearly to 0.
    """

    seed: int
    examples: int | None
    epochs: int
    batch_size: int
    learning_rate: float

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**32, "seed", self.seed, "0 .. 2^32 - 1")
        require(
            self.examples is None or self.examples >= 1, "examples", self.examples, ">= 1, or null for all"
        )
        require(self.epochs >= 1, "epochs", self.epochs, ">= 1")
        require(self.batch_size >= 1, "batch_size", self.batch_size, ">= 1")
        require(self.learning_rate > 0, "learning_rate", self.learning_rate, "> 0")


@dataclass(frozen=True, kw_only=True)
class SftRecipe(_Teaching):
    """Supervised fine-tuning on best calls."""

    method: Literal["sft"]


@dataclass(frozen=True, kw_only=True)
class DpoRecipe(_Teaching):
    """Direct preference optimisation (arXiv 2305.18290) on pairs of a best and a worse reply.

    Attributes:
        beta: how strongly the policy is held to where it started: the larger, the closer.
    """

    method: Literal["dpo"]
    beta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.beta > 0, "beta", self.beta, "> 0")


Taught = SftRecipe | DpoRecipe

_RECIPES: Mapping[str, type] = {"none": NoWarmStart, "sft": SftRecipe, "dpo": DpoRecipe}


@dataclass(frozen=True)
class WarmStartSettings:
    """Section ``warm_start``."""

    recipe: NoWarmStart | Taught

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> WarmStartSettings:
        """Bind the recipe that ``raw["method"]`` names; see `ninegrid.config.bind_recipe`."""
        return cls(bind_recipe(_RECIPES, raw, "warm_start"))

    def to_mapping(self) -> dict[str, Any]:
        return dict(unbind(self.recipe))
