"""CISPO: clipped importance weights (MiniMax-M1, arXiv 2506.13585, equations 4 and 5)."""

from __future__ import annotations

from torch import Tensor

from ninegrid.gspo.algorithms.objective import (
    ClipRange,
    Objective,
    Totals,
    real,
    result_of_tokens,
    token_advantage,
    token_ratio,
)


def cispo(
    new_ST: Tensor, old_ST: Tensor, mask_ST: Tensor, advantage_ST: Tensor, clip: ClipRange, totals: Totals
) -> Objective:
    """Maximise the mean over all tokens of sg[clip(r_t, 1 - low, 1 + high)] A_t log pi(y_t).

    The clipped ratio only weighs the policy gradient: out of range the weight is bounded and the
    token still learns, where GRPO and DAPO drop it.  Assumes that rare tokens at forks of a reply, whose
    ratios move furthest, are worth learning from.  The weight is bounded whatever the sign of the
    advantage; ``low`` = 1 means no lower bound, as in the paper.  Tokens are pooled as in `dapo`.  The
    loss's value says nothing, since log pi itself is in it; its gradient is what counts.

    Args:
        new_ST, old_ST, mask_ST, advantage_ST: as for `grpo`.
        clip: the range of the weight.
        totals: of the minibatch; the sum is divided by its tokens.
    """
    advantage_ST = token_advantage(advantage_ST, mask_ST)
    ratio_ST = token_ratio(new_ST, old_ST, mask_ST).detach()
    weight_ST = ratio_ST.clamp(1 - clip.low, 1 + clip.high)
    gain_ST = weight_ST * advantage_ST * real(new_ST, mask_ST)
    clipped_ST = (weight_ST != ratio_ST) & (advantage_ST != 0)
    return result_of_tokens(-gain_ST.sum(-1) / totals.tokens, ratio_ST, clipped_ST, mask_ST)
