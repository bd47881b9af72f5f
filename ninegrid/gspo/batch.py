"""A rollout batch: which boards, their rollouts, rewards, and the credit of each token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ninegrid.errors import TrainingError
from ninegrid.gspo.advantages import group_advantages, informative
from ninegrid.gspo.algorithms.names import FACTS
from ninegrid.gspo.control import Shuffle
from ninegrid.gspo.credit import branch_advantages, turn_advantages
from ninegrid.gspo.exploration import EntropyBonus
from ninegrid.gspo.settings import TrainSettings
from ninegrid.policy.rollout import Rollout
from ninegrid.reward import RewardTable
from ninegrid.tasks.protocol import Example

Floats = NDArray[np.float64]


def boards_of_round(examples: Sequence[Example], index: int, n_boards: int, seed: int) -> list[Example]:
    """The boards of one round of sampling: a fresh permutation for every pass over the training set.

    Depends on its arguments alone, so a resumed run needs no sampler state.  What is left over
    at the end of a permutation is dropped; a round never holds a board twice.
    """
    per_epoch = len(examples) // n_boards
    epoch, place = divmod(index, per_epoch)
    order = np.random.default_rng([seed, epoch]).permutation(len(examples))
    return [examples[i] for i in order[place * n_boards : (place + 1) * n_boards]]


@dataclass(frozen=True)
class RolloutBatch:
    """G groups of N rollouts.

    Attributes:
        groups: the rollouts, G lists of N.
        rewards: under the reward table in force, [G, N].
        advantages: group-relative, [G, N].
        credit: for each rollout, its advantage alone, or one for each of its tokens; [G][N] of [1] or [T].
    """

    groups: list[list[Rollout]]
    rewards: Floats
    advantages: Floats
    credit: list[list[Floats]]

    @property
    def rollouts(self) -> list[Rollout]:
        """All rollouts, group after group, [G * N]."""
        return [rollout for group in self.groups for rollout in group]

    @property
    def informative(self) -> NDArray[np.bool_]:
        """Which groups carry a gradient, [G]."""
        return informative(self.advantages)

    def take(self, chosen: Sequence[int]) -> RolloutBatch:
        """A batch of some of the groups."""
        groups, credit = [self.groups[i] for i in chosen], [self.credit[i] for i in chosen]
        return RolloutBatch(groups, self.rewards[chosen], self.advantages[chosen], credit)


def make_batch(
    groups: list[list[Rollout]],
    table: RewardTable,
    settings: TrainSettings,
    *,
    bonus: EntropyBonus | None = None,
    shuffle: Shuffle | None = None,
) -> RolloutBatch:
    """Reward the rollouts and compare them within their groups.

    Args:
        bonus: is added to the credit of deciding tokens.
        shuffle: deals the rewards anew, for a control run.

    Raises:
        TrainingError: a reward or an advantage is not finite; names the board.
    """
    rewards = np.array([[rollout_reward(r, table) for r in g] for g in groups])
    if shuffle is not None:
        rewards = shuffle.deal(rewards, groups)
    leave_one_out = FACTS[settings.algorithm].leave_one_out
    advantages = group_advantages(rewards, scale_by_std=settings.scale_by_std, leave_one_out=leave_one_out)
    for group, row in zip(groups, np.isfinite(rewards) & np.isfinite(advantages), strict=True):
        if not row.all():
            raise TrainingError(f"reward or advantage of {group[0].example.id} is not finite")
    credit = _credit(groups, rewards, advantages, table, settings)
    # A rollout in which nothing was sampled counts among the others, and has nothing to learn.
    credit = [
        [given if rollout.turns else np.zeros(1) for given, rollout in zip(row, group, strict=True)]
        for row, group in zip(credit, groups, strict=True)
    ]
    if bonus is not None:
        credit = [bonus.add(credits, group) for credits, group in zip(credit, groups, strict=True)]
    return RolloutBatch(groups, rewards, advantages, credit)


def join(batches: Sequence[RolloutBatch]) -> RolloutBatch:
    """The groups of several rounds as one batch."""
    return RolloutBatch(
        groups=[group for batch in batches for group in batch.groups],
        rewards=np.concatenate([batch.rewards for batch in batches]),
        advantages=np.concatenate([batch.advantages for batch in batches]),
        credit=[credit for batch in batches for credit in batch.credit],
    )


def rollout_reward(rollout: Rollout, table: RewardTable) -> float:
    """What a rollout earns in all: its outcome, its steps, and the penalty for its length."""
    steps = sum(table.step(turn.outcome) for turn in rollout.turns)
    return table.reward(rollout.judgement.outcome, rollout.n_sampled) + steps


def _credit(
    groups: list[list[Rollout]],
    rewards: Floats,
    advantages: Floats,
    table: RewardTable,
    settings: TrainSettings,
) -> list[list[Floats]]:
    scale = settings.scale_by_std
    match settings.credit:
        case "sequence":
            return [[np.array([advantage]) for advantage in row] for row in advantages]
        case "branch":
            tokens = [[r.completion.tokens for r in group] for group in groups]
            credits = [
                branch_advantages(t, row, scale_by_std=scale) for t, row in zip(tokens, rewards, strict=True)
            ]
        case "turn":
            credits = [
                turn_advantages(g, row, table, scale_by_std=scale)
                for g, row in zip(groups, rewards, strict=True)
            ]
    return [
        [np.where(r.sampled, credit, 0.0) for r, credit in zip(group, row, strict=True)]
        for group, row in zip(groups, credits, strict=True)
    ]


def choose_groups(batch: RolloutBatch, n_boards: int) -> list[int]:
    """The groups to train on: the first with a spread of rewards, filled up with others to ``n_boards``."""
    return sorted(np.argsort(~batch.informative, kind="stable")[:n_boards].tolist())
