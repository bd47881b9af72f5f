"""Which algorithms there are, and what settings must know of them; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

AlgorithmName = Literal["gspo", "gspo_token", "grpo", "dr_grpo", "dapo", "cispo", "rloo"]


@dataclass(frozen=True)
class Facts:
    """What an algorithm is made for.

    Attributes:
        per_token: it takes an advantage for each token, not only one for each reply.
        sequence_ratio: its ratio spans the whole reply, so every token's log-prob enters it, also
            where the token's own advantage is 0.
        leave_one_out: it compares a sample with the mean of the group's other samples: its
            advantages are the group-relative ones times N / (N - 1).
    """

    per_token: bool
    sequence_ratio: bool
    leave_one_out: bool


FACTS: dict[AlgorithmName, Facts] = {
    "gspo": Facts(per_token=False, sequence_ratio=True, leave_one_out=False),
    "gspo_token": Facts(per_token=True, sequence_ratio=True, leave_one_out=False),
    "grpo": Facts(per_token=True, sequence_ratio=False, leave_one_out=False),
    "dr_grpo": Facts(per_token=True, sequence_ratio=False, leave_one_out=False),
    "dapo": Facts(per_token=True, sequence_ratio=False, leave_one_out=False),
    "cispo": Facts(per_token=True, sequence_ratio=False, leave_one_out=False),
    "rloo": Facts(per_token=False, sequence_ratio=True, leave_one_out=True),
}
