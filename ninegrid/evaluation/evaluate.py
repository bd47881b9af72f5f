"""The evaluation that the baseline and the retest share: every example, sampled and greedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ninegrid.evaluation.episodes import GREEDY, SAMPLED, Episode, make_episode
from ninegrid.evaluation.settings import EvalSettings
from ninegrid.policy.rollout import Rollout, Sampler
from ninegrid.progress import Progress
from ninegrid.tasks.protocol import Example
from ninegrid.tasks.reward import RewardTable


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
    progress = Progress(f"{label}: board", 2 * len(examples), every=5.0)
    episodes = []
    for decoding, rollout_groups in _plans(sampler, examples, settings):
        good = seen = 0
        for groups in rollout_groups:
            batch = [make_episode(r, decoding, sampler.task.score, table) for r in _flat(groups)]
            episodes += batch
            milestone, members = next(iter(sampler.task.milestones.items()))
            good, seen = good + sum(e.outcome in members for e in batch), seen + len(batch)
            progress.advance(f"{decoding}  {milestone} {good / seen:.0%}", units=len(groups))
    return episodes


def _plans(
    sampler: Sampler, examples: Sequence[Example], settings: EvalSettings
) -> Iterator[tuple[str, Iterator[list[list[Rollout]]]]]:
    yield SAMPLED, sampler.groups(examples, settings.n_samples, ("eval", settings.seed))
    yield GREEDY, sampler.groups(examples, 1, None)


def _flat(groups: list[list[Rollout]]) -> list[Rollout]:
    return [rollout for group in groups for rollout in group]
