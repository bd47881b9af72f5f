"""Dr. GRPO, "GRPO done right" (arXiv 2503.20783, section 3.2)."""

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


def dr_grpo(
    new_ST: Tensor, old_ST: Tensor, mask_ST: Tensor, advantage_ST: Tensor, clip: ClipRange, totals: Totals
) -> Objective:
    """Maximise the mean over samples of the sum over tokens of min(r_t A_t, clip(r_t) A_t).

    GRPO without division by the reply's length, so every token weighs the same and length has no
    bias.  The paper's formula has no divisor for the tokens; its code, and TRL, divide by the constant
    limit of tokens, which only scales the gradient.  Assumes advantages that are not divided by the
    group's standard deviation (``train.scale_by_std: false``), the paper's other half.

    Args:
        new_ST, old_ST, mask_ST, advantage_ST, clip: as for `grpo`.
        totals: of the minibatch; the sum is divided by its samples times the limit of tokens.
    """
    advantage_ST = token_advantage(advantage_ST, mask_ST)
    ratio_ST = token_ratio(new_ST, old_ST, mask_ST)
    gain_ST, clipped_ST = clipped_gain(ratio_ST, advantage_ST, clip)
    term_S = -gain_ST.sum(-1) / (totals.samples * totals.max_tokens)
    return result_of_tokens(term_S, ratio_ST, clipped_ST, mask_ST)
