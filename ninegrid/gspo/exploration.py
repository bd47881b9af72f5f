"""An entropy bonus where it cannot be gamed: at the one token that decides.

A policy-gradient method that maximises E[r] + c H(pi) adds -c log pi(a) to the reward of action a.
Taken over all tokens of a reply the bonus destroys the format; taken over the whole reply it is
earned by text around the call.  Here the action is the deciding token (for tic-tac-toe the square), and
only replies that are valid are compared with each other: what varies among them is the decision alone.
In a conversation first replies are compared with first ones, second with second ones, and so on.
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
        if not self.coefficient:
            return given
        for index in range(max((len(rollout.turns) for rollout in rollouts), default=0)):
            self._add_to_turn(index, given, rollouts)
        return given

    def _add_to_turn(self, index: int, given: list[Floats], rollouts: Sequence[Rollout]) -> None:
        places = {
            i: at for i, rollout in enumerate(rollouts) if (at := self._place(rollout, index)) is not None
        }
        if not places:
            return
        surprise = np.array([-float(rollouts[i].completion.logprobs[at]) for i, at in places.items()])
        extras = self.coefficient * (surprise - surprise.mean())
        for (i, at), extra in zip(places.items(), extras, strict=True):
            given[i] = np.broadcast_to(given[i], len(rollouts[i].completion.tokens)).copy()
            given[i][at] += extra

    def _place(self, rollout: Rollout, index: int) -> int | None:
        """The deciding token of reply number ``index``, if there is one and the reply is valid.

        A reply that others follow is valid; the last one is if the outcome says so.
        """
        if index >= len(rollout.turns):
            return None
        last = index == len(rollout.turns) - 1
        valid = not last or rollout.judgement.outcome in self.valid
        return rollout.turns[index].decision if valid else None
