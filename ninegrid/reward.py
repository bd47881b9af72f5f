"""The reward table: what each outcome is worth to the trainer, and nothing else.

Rewards are chosen by the ``reward`` settings; the weight-free score by which runs with different
rewards are compared is the task's own (`Task.score`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ninegrid.config import bind_numbers, require, unknown_key
from ninegrid.errors import SettingsError
from ninegrid.tasks.protocol import Interactive, Task

LENGTH_PENALTY = "length_penalty"
STEPS = "steps"


@dataclass(frozen=True)
class RewardTable:
    """Outcome -> number, plus named terms that are logged raw and weighted.

    Attributes:
        outcomes: reward of each outcome.
        length_penalty: taken off the reward for every sampled token of the reply (>= 0).
        steps: reward of each step of a multi-step task, by what it amounted to (`Interactive.step_outcomes`);
            0 for those not named.
    """

    outcomes: Mapping[str, float]
    length_penalty: float = 0.0
    steps: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> RewardTable:
        given = dict(raw)
        steps = bind_numbers(given.pop(STEPS, {}), f"reward.{STEPS}")
        numbers = bind_numbers(given, "reward")
        penalty = numbers.pop(LENGTH_PENALTY, 0.0)
        require(penalty >= 0, LENGTH_PENALTY, penalty, ">= 0")
        return cls(numbers, penalty, steps)

    def to_mapping(self) -> dict[str, Any]:
        steps = {STEPS: dict(self.steps)} if self.steps else {}
        return {**self.outcomes, LENGTH_PENALTY: self.length_penalty, **steps}

    def check(self, task: Task) -> None:
        """Refuse a table that does not name exactly the outcomes of ``task``, or prices steps that it lacks.

        Raises:
            SettingsError: naming the missing or the unknown outcome.
        """
        steps = task.step_outcomes if isinstance(task, Interactive) else ()
        if self.steps and not steps:
            raise SettingsError(
                f"reward.{STEPS} = {dict(self.steps)}, but task {task.name} tells of no steps"
            )
        for name in self.steps:
            if name not in steps:
                raise unknown_key(f"reward.{STEPS}.{name}", steps)
        fitting = f"task {task.name} wants a table of its own: reward=NAME, one of conf/reward/"
        for name in self.outcomes:
            if name not in task.outcomes:
                error = unknown_key(f"reward.{name}", [*task.outcomes, LENGTH_PENALTY])
                raise SettingsError(error.message, hint=fitting)
        for name in task.outcomes:
            if name not in self.outcomes:
                message = f"missing setting reward.{name}: the task has this outcome"
                raise SettingsError(message, hint=fitting)

    def reward(self, outcome: str, n_tokens: int) -> float:
        """Reward of one reply of ``n_tokens`` sampled tokens that ended in ``outcome``."""
        return self.outcomes[outcome] - self.length_penalty * n_tokens

    def step(self, outcome: str) -> float:
        """Reward of one step that amounted to ``outcome``."""
        return self.steps.get(outcome, 0.0)
