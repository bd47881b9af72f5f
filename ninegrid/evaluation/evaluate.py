"""The evaluation that the baseline and the retest share: every example, sampled and greedy."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ninegrid.evaluation.episodes import GREEDY, SAMPLED, Episode, make_episode
from ninegrid.evaluation.settings import EvalSettings
from ninegrid.policy.rollout import Rollout
from ninegrid.policy.sampler import Sampler
from ninegrid.progress import Progress
from ninegrid.reward import RewardTable
from ninegrid.tasks.protocol import Example


def evaluate(
    sampler: Sampler, examples: Sequence[Example], settings: EvalSettings, table: RewardTable, label: str
) -> list[Episode]:
    """Measure the policy behind ``sampler`` on ``examples``.

    Args:
        sampler: draws judged rollouts.
        examples: all of them are used, in order.
        settings: seed and number of samples.
        table: the reward in force; the fixed score is the task's.
        label: names the evaluation on progress lines.

    Returns:
        First the sampled episodes, then the greedy ones, each in the order of ``examples``.
    """
    progress = Progress(f"{label}: board", len(examples), every=5.0)
    milestone, members = next(iter(sampler.task.milestones.items()))
    episodes: list[Episode] = []
    good = 0
    with torch.no_grad():
        for groups in sampler.groups(examples, settings.n_samples, ("eval", settings.seed), greedy=True):
            batch = [_episode(rollout, sampler, table) for group in groups for rollout in group]
            episodes += batch
            good += sum(e.outcome in members for e in batch)
            progress.advance(f"{milestone} {good / len(episodes):.0%}", units=len(groups))
    return sorted(episodes, key=lambda e: e.decoding == GREEDY)


def _episode(rollout: Rollout, sampler: Sampler, table: RewardTable) -> Episode:
    return make_episode(rollout, GREEDY if rollout.greedy else SAMPLED, sampler.task.score, table)
