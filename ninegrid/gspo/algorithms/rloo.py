"""REINFORCE leave-one-out (RLOO, arXiv 2402.14740), with the importance ratio of TRL's RLOOTrainer."""

from __future__ import annotations

from torch import Tensor

from ninegrid.gspo.algorithms.objective import (
    ClipRange,
    Objective,
    Totals,
    clipped_gain,
    log_ratio,
    reply_advantage,
    result_of_replies,
)


def rloo(
    new_ST: Tensor, old_ST: Tensor, mask_ST: Tensor, advantage_ST: Tensor, clip: ClipRange, totals: Totals
) -> Objective:
    """Maximise the mean over samples of min(r A, clip(r, 1 - low, 1 + high) A), r = pi(y) / pi_old(y).

    Assumes that the whole reply is one action.  The paper's estimator is on-policy, the mean of A grad
    log pi(y); the gradient here is that as long as r = 1, and importance sampling with PPO's clipping
    keeps it usable for further updates.  Unlike GSPO's, the ratio is not normalised by the length, so
    it leaves the range sooner the longer the reply, and a long reply has the larger gradient.

    Args:
        new_ST, old_ST, mask_ST: as for `gspo`.
        advantage_ST: reward minus the mean reward of the *other* samples of the board, [S, 1]: the
            group-relative advantage times N / (N - 1).
        clip: the range of r.
        totals: of the minibatch; the sum is divided by its samples.

    Raises:
        ValueError: there is an advantage for each token.
    """
    advantage_S = reply_advantage(advantage_ST, mask_ST, "rloo")
    ratio_S = log_ratio(new_ST, old_ST, mask_ST).sum(-1).exp()
    gain_S, clipped_S = clipped_gain(ratio_S, advantage_S, clip)
    return result_of_replies(-gain_S / totals.samples, ratio_S, clipped_S)
