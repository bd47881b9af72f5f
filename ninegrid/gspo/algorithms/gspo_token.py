"""GSPO-token: a sequence ratio with an advantage for each token (arXiv 2507.18071, equations 13, 14)."""

from __future__ import annotations

from torch import Tensor

from ninegrid.gspo.algorithms.objective import (
    ClipRange,
    Objective,
    Totals,
    clipped_gain,
    lengths,
    log_ratio,
    result_of_tokens,
    sequence_ratio,
    token_advantage,
)


def gspo_token(
    new_ST: Tensor, old_ST: Tensor, mask_ST: Tensor, advantage_ST: Tensor, clip: ClipRange, totals: Totals
) -> Objective:
    """Maximise the mean over samples of the mean over tokens of min(s_t A_t, clip(s_t) A_t).

    s_t = sg[s] pi(y_t) / sg[pi(y_t)] has the value of GSPO's s, and each token's gradient reaches its
    own log-prob alone, weighted by its own advantage.  With equal advantages throughout a reply it
    is GSPO, in value and gradient.  Whether a token is clipped depends on the sign of its own advantage, so
    the units are tokens, with s repeated for each.

    Args:
        new_ST, old_ST, mask_ST: as for `gspo`; every real token's ratio enters s.
        advantage_ST: one for each reply, [S, 1], or for each token, [S, T].
        clip: the range of s.
        totals: of the minibatch; the sum of the replies' means is divided by its samples.
    """
    advantage_ST = token_advantage(advantage_ST, mask_ST)
    own_ST = log_ratio(new_ST, new_ST, mask_ST).exp()  # the value 1 with the gradient of log pi
    ratio_ST = sequence_ratio(new_ST, old_ST, mask_ST).detach()[:, None] * own_ST
    gain_ST, clipped_ST = clipped_gain(ratio_ST, advantage_ST, clip)
    term_S = -gain_ST.sum(-1) / lengths(mask_ST) / totals.samples
    return result_of_tokens(term_S, ratio_ST, clipped_ST, mask_ST)
