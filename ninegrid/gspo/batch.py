"""A rollout batch: which boards, their rollouts, rewards and advantages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ninegrid.errors import TrainingError
from ninegrid.gspo.advantages import group_advantages
from ninegrid.policy.rollout import Rollout
from ninegrid.reward import RewardTable
from ninegrid.tasks.protocol import Example

Floats = NDArray[np.float64]


def boards_of_step(examples: Sequence[Example], step: int, n_boards: int, seed: int) -> list[Example]:
    """The boards of one step: a fresh permutation for every pass over the training set.

    Depends on its arguments alone, so a resumed run needs no sampler state.  What is left over
    at the end of a permutation is dropped; a batch never holds a board twice.
    """
    per_epoch = len(examples) // n_boards
    epoch, index = divmod(step, per_epoch)
    order = np.random.default_rng([seed, epoch]).permutation(len(examples))
    return [examples[i] for i in order[index * n_boards : (index + 1) * n_boards]]


@dataclass(frozen=True)
class RolloutBatch:
    """G groups of N rollouts.

    Attributes:
        groups: the rollouts, G lists of N.
        rewards: under the reward table in force, [G, N].
        advantages: group-relative, [G, N].
    """

    groups: list[list[Rollout]]
    rewards: Floats
    advantages: Floats

    @property
    def rollouts(self) -> list[Rollout]:
        """All rollouts, group after group, [G * N]."""
        return [rollout for group in self.groups for rollout in group]


def make_batch(groups: list[list[Rollout]], table: RewardTable, *, scale_by_std: bool) -> RolloutBatch:
    """Reward the rollouts and compare them within their groups.

    Raises:
        TrainingError: a reward or an advantage is not finite; names the board.
    """
    rewards = np.array(
        [[table.reward(r.judgement.outcome, len(r.completion.tokens)) for r in g] for g in groups]
    )
    advantages = group_advantages(rewards, scale_by_std=scale_by_std)
    for group, row in zip(groups, np.isfinite(rewards) & np.isfinite(advantages), strict=True):
        if not row.all():
            raise TrainingError(f"reward or advantage of {group[0].example.id} is not finite")
    return RolloutBatch(groups, rewards, advantages)
