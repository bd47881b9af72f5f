"""DAPO's objective: clip-higher and a token-level loss (arXiv 2503.14476, equations 8, 10 and 12)."""

from __future__ import annotations

from torch import Tensor

from ninegrid.gspo.algorithms.objective import (
    ClipRange,
    Objective,
    Totals,
    clipped_gain,
    result_of_tokens,
    token_advantage,
    token_ratio,
)


def dapo(
    new_ST: Tensor, old_ST: Tensor, mask_ST: Tensor, advantage_ST: Tensor, clip: ClipRange, totals: Totals
) -> Objective:
    """Maximise the mean over all tokens of min(r_t A_t, clip(r_t, 1 - low, 1 + high) A_t), high > low.

    As in GRPO each token has its own ratio, but the tokens of all replies are pooled, so a long reply
    weighs more than a short one.  A wider upper bound leaves unlikely tokens room to grow.  The paper's
    other parts are not here: dynamic sampling is the setting ``train.rounds``, and its penalty for overlong
    replies would be a reward.  The paper pools the tokens of a
    group; this pools those of the minibatch, as the authors' code and TRL do.

    Args:
        new_ST, old_ST, mask_ST, advantage_ST, clip: as for `grpo`.
        totals: of the minibatch; the sum is divided by its tokens.
    """
    advantage_ST = token_advantage(advantage_ST, mask_ST)
    ratio_ST = token_ratio(new_ST, old_ST, mask_ST)
    gain_ST, clipped_ST = clipped_gain(ratio_ST, advantage_ST, clip)
    return result_of_tokens(-gain_ST.sum(-1) / totals.tokens, ratio_ST, clipped_ST, mask_ST)
