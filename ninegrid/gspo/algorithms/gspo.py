"""Group sequence policy optimisation (arXiv 2507.18071, equation 5)."""

from __future__ import annotations

from torch import Tensor

from ninegrid.gspo.algorithms.objective import (
    ClipRange,
    Objective,
    Totals,
    clipped_gain,
    reply_advantage,
    result_of_replies,
    sequence_ratio,
)


def gspo(
    new_ST: Tensor, old_ST: Tensor, mask_ST: Tensor, advantage_ST: Tensor, clip: ClipRange, totals: Totals
) -> Objective:
    """Maximise the mean over samples of min(s A, clip(s, 1 - low, 1 + high) A).

    Assumes that the reward judges the reply as a whole, so that the ratio should span it too: s is the
    geometric mean of the token ratios, and a reply is clipped as a whole or not at all.  Because
    of the mean, s stays near 1 and wants a much narrower range than a token's ratio.

    Args:
        new_ST: log-probs under the policy being trained, with gradient.
        old_ST: log-probs recorded when the completions were sampled.
        mask_ST: 1 for tokens of the completion, 0 beyond.
        advantage_ST: one advantage for each reply, [S, 1].
        clip: the range of s.
        totals: of the minibatch; the sum is divided by its samples.

    Raises:
        ValueError: there is an advantage for each token.
    """
    advantage_S = reply_advantage(advantage_ST, mask_ST, "gspo")
    ratio_S = sequence_ratio(new_ST, old_ST, mask_ST)
    gain_S, clipped_S = clipped_gain(ratio_S, advantage_S, clip)
    return result_of_replies(-gain_S / totals.samples, ratio_S, clipped_S)
