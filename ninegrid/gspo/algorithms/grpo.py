"""Group relative policy optimisation (arXiv 2402.03300, equation 3), without its KL penalty."""

from __future__ import annotations

from torch import Tensor

from ninegrid.gspo.algorithms.objective import (
    ClipRange,
    Objective,
    Totals,
    clipped_gain,
    lengths,
    result_of_tokens,
    token_advantage,
    token_ratio,
)


def grpo(
    new_ST: Tensor, old_ST: Tensor, mask_ST: Tensor, advantage_ST: Tensor, clip: ClipRange, totals: Totals
) -> Objective:
    """Maximise the mean over samples of the mean over tokens of min(r_t A_t, clip(r_t) A_t).

    Each token has its own ratio and is clipped by itself.  Assumes that replies should count alike: a
    long reply's tokens weigh less than a short one's, which favours short good replies and long bad ones.
    The paper adds a KL penalty towards a reference model; later recipes and this project do not.

    Args:
        new_ST: log-probs under the policy being trained, with gradient.
        old_ST: log-probs recorded when the completions were sampled.
        mask_ST: 1 for tokens of the completion, 0 beyond.
        advantage_ST: one for each reply, [S, 1], or for each token, [S, T].
        clip: the range of a token's ratio.
        totals: of the minibatch; the sum of the replies' means is divided by its samples.
    """
    advantage_ST = token_advantage(advantage_ST, mask_ST)
    ratio_ST = token_ratio(new_ST, old_ST, mask_ST)
    gain_ST, clipped_ST = clipped_gain(ratio_ST, advantage_ST, clip)
    term_S = -gain_ST.sum(-1) / lengths(mask_ST) / totals.samples
    return result_of_tokens(term_S, ratio_ST, clipped_ST, mask_ST)
