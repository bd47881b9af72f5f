"""One row of figures a step: what the rollouts were like, and what the update did.

Columns are named as people know them from other trainers; the loss comes last because its value
says little on-policy.  A figure that does not exist in a step (no group was informative, no reply
held a call) is None: an empty cell, not a zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ninegrid.gspo.batch import RolloutBatch
from ninegrid.gspo.update import UpdateStats
from ninegrid.policy.rollout import Rollout
from ninegrid.tasks.protocol import Task

Row = dict[str, float | int | None]


def health_row(
    step: int,
    sampled: RolloutBatch,
    chosen: Sequence[int],
    stats: UpdateStats,
    task: Task,
    learning_rate: float,
    entropy_bonus: float,
) -> Row:
    """The row of ``step`` (counted from 1).

    Args:
        sampled: all groups of the step.  Rewards and outcomes are those of all of them: the chosen ones alone
            would flatter or belittle the policy.
        chosen: the groups that were trained on.
        stats: of their updates.
        learning_rate, entropy_bonus: as they were in this step.
    """
    return {
        "step": step,
        "rollout/boards": len(sampled.groups),
        **_rollout_figures(sampled, task),
        **_group_figures(sampled),
        "train/trained_groups": int(sampled.take(chosen).informative.sum()),
        "train/entropy_bonus": entropy_bonus,
        **_update_figures(stats, learning_rate),
    }


def _rollout_figures(batch: RolloutBatch, task: Task) -> Row:
    rollouts = batch.rollouts
    outcomes = [r.judgement.outcome for r in rollouts]
    row: Row = {
        "rollout/rewards_mean": float(batch.rewards.mean()),
        "rollout/rewards_std": float(batch.rewards.std()),
        "rollout/score_mean": _mean(task.score[o] for o in outcomes),
        "rollout/response_len_mean": _mean(r.n_sampled for r in rollouts),
        "rollout/truncated_rate": _mean(r.truncated for r in rollouts),
    }
    for name, members in task.milestones.items():
        row[f"rollout/milestone/{name}"] = _mean(o in members for o in outcomes)
    for name in task.outcomes:
        row[f"rollout/outcome/{name}"] = _mean(o == name for o in outcomes)
    entropies = np.concatenate([r.completion.entropies[r.sampled] for r in rollouts])
    row["rollout/entropy"] = float(entropies.mean()) if entropies.size else None
    row["rollout/decision_entropy"] = _mean(_known(rollouts))
    return row


def _group_figures(batch: RolloutBatch) -> Row:
    carries = batch.informative
    cut = np.array([all(r.truncated for r in group) for group in batch.groups])
    return {
        "train/informative_groups": _mean(carries),
        "train/groups_all_truncated": _mean(~carries & cut),
        "train/groups_equal_reward": _mean(~carries & ~cut),
    }


def _update_figures(stats: UpdateStats, learning_rate: float) -> Row:
    return {
        "train/grad_norm": _mean(stats.grad_norms),
        "train/weight_change": sum(stats.weight_changes),
        "train/weights_changed": _mean(stats.weights_changed),
        "train/learning_rate": learning_rate,
        "train/clip_fraction": _mean(stats.clipped),
        "train/ratio_min": min(stats.ratios, default=None),
        "train/ratio_max": max(stats.ratios, default=None),
        "train/logprob_diff": stats.logprob_diff,
        "train/distinct_tokens": stats.tokens,
        "train/updates": len(stats.losses),
        "train/loss": _mean(stats.losses),
    }


def _known(rollouts: Sequence[Rollout]) -> list[float]:
    return [r.decision_entropy for r in rollouts if r.decision_entropy is not None]


def _mean(values: Iterable[float | bool]) -> float | None:
    numbers = [float(v) for v in values]
    return sum(numbers) / len(numbers) if numbers else None
