"""The reward table: what each outcome is worth to the trainer, and nothing else.

Rewards are chosen by the ``reward`` settings; the weight-free score by which runs with different
rewards are compared is the task's own (`Task.score`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ninegrid.config import bind_numbers, require, unknown_key
from ninegrid.errors import SettingsError

LENGTH_PENALTY = "length_penalty"


@dataclass(frozen=True)
class RewardTable:
    """Outcome -> number, plus named terms that are logged raw and weighted.

    Attributes:
        outcomes: reward of each outcome.
        length_penalty: taken off the reward for every sampled token of the reply (>= 0).
    """

    outcomes: Mapping[str, float]
    length_penalty: float = 0.0

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> RewardTable:
        numbers = bind_numbers(raw, "reward")
        penalty = numbers.pop(LENGTH_PENALTY, 0.0)
        require(penalty >= 0, LENGTH_PENALTY, penalty, ">= 0")
        return cls(numbers, penalty)

    def to_mapping(self) -> dict[str, float]:
        return {**self.outcomes, LENGTH_PENALTY: self.length_penalty}

    def check(self, outcomes: Sequence[str]) -> None:
        """Refuse a table that does not name exactly the task's ``outcomes``.

        Raises:
            SettingsError: naming the missing or the unknown outcome.
        """
        for name in self.outcomes:
            if name not in outcomes:
                raise unknown_key(f"reward.{name}", [*outcomes, LENGTH_PENALTY])
        for name in outcomes:
            if name not in self.outcomes:
                raise SettingsError(f"missing setting reward.{name}: the task has this outcome")

    def reward(self, outcome: str, n_tokens: int) -> float:
        """Reward of one reply of ``n_tokens`` sampled tokens that ended in ``outcome``."""
        return self.outcomes[outcome] - self.length_penalty * n_tokens
