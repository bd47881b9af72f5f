"""An entropy bonus where it cannot be gamed: at the one token that decides.

A policy-gradient method that maximises E[r] + c H(pi) adds -c log pi(a) to the reward of action a.
Taken over all tokens of a reply the bonus destroys the format; taken over the whole reply it is
earned by text around the call.  Here the action is the deciding token (for tic-tac-toe the square), and
only replies that are valid are compared with each other: what varies among them is the decision alone.
At the optimum the policy plays in proportion to exp(r / c) (maximum-entropy reinforcement learning,
Ziebart 2010, equation 5.9; Haarnoja et al., arXiv 1702.08165, theorem 1).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ninegrid.policy.rollout import Rollout

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class EntropyBonus:
    """Adds the bonus to the credit of a board's rollouts.

    Attributes:
        coefficient: c, in units of reward per nat.
        valid: outcomes of the replies that are compared with each other.
    """

    coefficient: float
    valid: Collection[str]

    def add(self, credits: Sequence[Floats], rollouts: Sequence[Rollout]) -> list[Floats]:
        """Credit of N rollouts with c (-log pi(a) - its mean over the valid ones) at each deciding token.

        It favours decisions that the policy rarely makes, and adds up to 0 over the board.

        Args:
            credits: the advantage of each reply alone, [1], or of each of its tokens, [T].
            rollouts: the replies, in the same order.

        Returns:
            The same credits, one for each token where a bonus was added.
        """
        given = list(credits)
        valid = [
            i for i, r in enumerate(rollouts) if r.decision is not None and r.judgement.outcome in self.valid
        ]
        if not valid or not self.coefficient:
            return given
        surprise = np.array([_surprise(rollouts[i]) for i in valid])
        for i, extra in zip(valid, self.coefficient * (surprise - surprise.mean()), strict=True):
            given[i] = np.broadcast_to(given[i], len(rollouts[i].completion.tokens)).copy()
            given[i][rollouts[i].decision] += extra
        return given


def _surprise(rollout: Rollout) -> float:
    """-log pi of the deciding token, as it was sampled."""
    assert rollout.decision is not None
    return -float(rollout.completion.logprobs[rollout.decision])
