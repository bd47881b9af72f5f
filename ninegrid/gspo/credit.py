"""Credit finer than one number for a whole rollout: by branches of the tree, or by turns of a conversation.

**Branches**: what each token did to the expected reward, judged by its siblings.  A group-relative
advantage praises every token of a reply that ended well, the move of a reply that was merely well-formed
included.  The rollouts of one board form a tree: a node's value is the mean reward of the samples that pass
through it, and the advantage of an edge is the value of its child minus the value of its parent.  Along a
reply these add up to the group-relative advantage; where all samples agree, or a sample stands alone, there
is nothing to compare and the advantage is 0.

Relatives, which also turn a rollout tree into finer advantages: TreeRPO (arXiv 2506.05183),
Tree-GRPO (arXiv 2509.21240), TreeAdv (arXiv 2601.03703).

**Turns**: a reply is credited with what came after it alone, compared with the replies of the same number
in the other rollouts of the board (turn-level credit, arXiv 2505.11821, here with the return that is still
to come: a policy gradient whose baseline depends on the time step).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ninegrid.gspo.advantages import TIE
from ninegrid.policy.rollout import Rollout
from ninegrid.reward import RewardTable

Floats = NDArray[np.float64]


def branch_advantages(
    completions: Sequence[Sequence[int]], reward_N: Floats, *, scale_by_std: bool
) -> list[Floats]:
    """An advantage for each token of each of N completions of one board.

    Args:
        completions: token ids.
        reward_N: their rewards.
        scale_by_std: divide by the population standard deviation of the rewards.

    Returns:
        N arrays, as long as the completions.
    """
    advantages = [np.zeros(len(tokens)) for tokens in completions]
    if np.ptp(reward_N) <= TIE:
        return advantages
    scale = reward_N.std() if scale_by_std else 1.0
    pending = [(0, list(range(len(completions))))]
    while pending:
        depth, members = pending.pop()
        value = reward_N[members].mean()
        for child in _children(completions, depth, members):
            gain = reward_N[child].mean() - value
            if abs(gain) > TIE and len(child) < len(members):
                for sample in child:
                    advantages[sample][depth] = gain / scale
            if len(child) > 1:
                pending.append((depth + 1, child))
    return advantages


def _children(completions: Sequence[Sequence[int]], depth: int, members: Sequence[int]) -> list[list[int]]:
    """The members that go on beyond ``depth``, by the token they go on with."""
    children: dict[int, list[int]] = {}
    for sample in members:
        if len(completions[sample]) > depth:
            children.setdefault(completions[sample][depth], []).append(sample)
    return list(children.values())


def turn_advantages(
    rollouts: Sequence[Rollout], reward_N: Floats, table: RewardTable, *, scale_by_std: bool
) -> list[Floats]:
    """An advantage for each token of each of N rollouts of one board, the same for all tokens of a turn.

    With the reward r of turn k (its step's, and at the last one all the rest) and the return still to come
    G_k = r_k + r_(k+1) + ..., it is G_k minus the mean of G_k over the rollouts that have a turn k.

    Args:
        rollouts: their turns say which tokens were sampled, and what each step amounted to.
        reward_N: what each earned in all.
        table: prices the steps.
        scale_by_std: divide by the population standard deviation of those G_k.

    Returns:
        N arrays, as long as the completions, 0 for what was not sampled.
    """
    advantages = [np.zeros(len(rollout.completion.tokens)) for rollout in rollouts]
    to_come = [_returns(rollout, reward, table) for rollout, reward in zip(rollouts, reward_N, strict=True)]
    for index in range(max(len(rollout.turns) for rollout in rollouts)):
        members = [i for i, rollout in enumerate(rollouts) if index < len(rollout.turns)]
        return_M = np.array([to_come[i][index] for i in members])
        if np.ptp(return_M) <= TIE:
            continue
        scale = return_M.std() if scale_by_std else 1.0
        for i, gain in zip(members, (return_M - return_M.mean()) / scale, strict=True):
            turn = rollouts[i].turns[index]
            advantages[i][turn.start : turn.stop] = gain
    return advantages


def _returns(rollout: Rollout, reward: float, table: RewardTable) -> list[float]:
    """What is still to come at each turn; at the first it is all of ``reward``."""
    before = np.cumsum([0.0, *(table.step(turn.outcome) for turn in rollout.turns[:-1])])
    return [float(reward - earned) for earned in before]
