"""Credit on the tree: what each token did to the expected reward, judged by its siblings.

A group-relative advantage praises every token of a reply that ended well, the move of a reply that
was merely well-formed included.  The rollouts of one board form a tree: a node's value is the mean
reward of the samples that pass through it, and the advantage of an edge is the value of its child
minus the value of its parent.  Along a reply these add up to the group-relative advantage; where
all samples agree, or a sample stands alone, there is nothing to compare and the advantage is 0.

Relatives, which also turn a rollout tree into finer advantages: TreeRPO (arXiv 2506.05183),
Tree-GRPO (arXiv 2509.21240), TreeAdv (arXiv 2601.03703).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ninegrid.gspo.advantages import TIE

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
