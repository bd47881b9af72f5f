"""What a completion may say: constraints on sampling, as masks over the vocabulary.

An engine knows a constraint as a function from the tokens sampled so far to those that may come next.  What
text it stands for, and what makes the masks, is known elsewhere (`ninegrid.chat.forced`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Mask = NDArray[np.bool_]


class Constraint(Protocol):
    """Decides which tokens may follow."""

    def allowed(self, sampled: Sequence[int]) -> Mask:
        """The tokens that may follow ``sampled``, at least one, [V] or shorter; what is beyond may not.

        Args:
            sampled: the completion so far, without its prompt and without a stop token.

        It is asked at every draw, so it should remember its answers.
        """
        ...


def restrict(
    logits_RV: Tensor,
    row_S: Sequence[int],
    constraint_S: Sequence[Constraint | None],
    sampled_S: Sequence[Sequence[int]],
) -> tuple[Tensor, list[int]]:
    """Set the logits of tokens that may not follow to minus infinity.

    Args:
        logits_RV: next-token logits of each row.
        row_S: the row each sample stands on.
        constraint_S: each sample's constraint, or None.
        sampled_S: the tokens of each sample so far.

    Returns:
        Rows of logits, and the row each sample stands on now.  Samples on one row that have sampled the same
        under the same constraint still share a row.  Without any constraint nothing is touched.
    """
    if all(constraint is None for constraint in constraint_S):
        return logits_RV, list(row_S)
    places: dict[tuple[int, int, tuple[int, ...]], int] = {}
    standing_S, sources, masks = list[int](), list[int](), list[Mask]()
    for row, constraint, sampled in zip(row_S, constraint_S, sampled_S, strict=True):
        key = (row, id(constraint), () if constraint is None else tuple(sampled))
        if key not in places:
            places[key] = len(sources)
            sources.append(row)
            masks.append(_mask(constraint, sampled, logits_RV.shape[1]))
        standing_S.append(places[key])
    allowed_QV = torch.from_numpy(np.stack(masks)).to(logits_RV.device)
    return logits_RV[sources].masked_fill(~allowed_QV, -torch.inf), standing_S


def _mask(constraint: Constraint | None, sampled: Sequence[int], vocabulary: int) -> Mask:
    """A mask as wide as the logits, [V]."""
    if constraint is None:
        return np.ones(vocabulary, dtype=np.bool_)
    allowed = constraint.allowed(sampled)[:vocabulary]
    return np.pad(allowed, (0, vocabulary - len(allowed)))
