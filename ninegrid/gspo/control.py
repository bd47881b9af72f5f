"""The control: the same training under rewards that say nothing.

What a policy learns from shuffled rewards it did not learn from the task.  Rewards are dealt anew
among the replies of one board, so that every board keeps its rewards and its spread.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ninegrid.gspo.settings import Control
from ninegrid.policy.rollout import Rollout


@dataclass(frozen=True)
class Shuffle:
    """Deals rewards anew among the replies of each board.

    Attributes:
        kind: ``shuffle_all`` deals to all replies: neither format nor play can be learned.
            ``shuffle_valid`` deals among valid replies only: the format can be learned, play cannot.
        valid: outcomes of valid replies.
        key: seeds the permutations, together with the number of the board in the batch.
    """

    kind: Control
    valid: Collection[str]
    key: tuple[int, ...]

    def deal(
        self, reward_GN: NDArray[np.float64], groups: Sequence[Sequence[Rollout]]
    ) -> NDArray[np.float64]:
        """The rewards of G boards x N replies, dealt anew within each board."""
        dealt_GN = reward_GN.copy()
        for g, group in enumerate(groups):
            members = [i for i, r in enumerate(group) if self._takes_part(r)]
            order = np.random.default_rng([*self.key, g]).permutation(len(members))
            dealt_GN[g, members] = reward_GN[g, members][order]
        return dealt_GN

    def _takes_part(self, rollout: Rollout) -> bool:
        return self.kind == "shuffle_all" or rollout.judgement.outcome in self.valid
