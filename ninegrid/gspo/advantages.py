"""Group-relative advantages.

The samples of one board are compared with each other, so no value model is needed
(GRPO, arXiv 2402.03300, section 4.1.2; GSPO, arXiv 2507.18071, equation 6).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

TIE = 1e-6
"""Rewards of a group that differ by no more than this are ties: what is left is rounding, and
dividing it by its own standard deviation would turn it into a full-size signal."""


def group_advantages(reward_GN: Floats, *, scale_by_std: bool, leave_one_out: bool = False) -> Floats:
    """Reward minus the mean of its group, optionally over the group's standard deviation.

    Args:
        reward_GN: rewards of N samples for each of G boards.
        scale_by_std: divide by the population standard deviation of the group.  Without it, boards
            with a wider spread weigh more (Dr. GRPO, arXiv 2503.20783, section 3.1).
        leave_one_out: subtract the mean of the other samples instead, which is N / (N - 1) times as
            much (RLOO, arXiv 2402.14740, section 3.2).

    Returns:
        [G, N]; exactly 0 throughout a group whose rewards are ties.
    """
    centred_GN = reward_GN - reward_GN.mean(axis=1, keepdims=True)
    spread_G = np.ptp(reward_GN, axis=1) > TIE
    if leave_one_out:
        centred_GN *= reward_GN.shape[1] / (reward_GN.shape[1] - 1)
    if scale_by_std:
        std_G1 = reward_GN.std(axis=1, keepdims=True)
        centred_GN = np.divide(centred_GN, std_G1, out=np.zeros_like(centred_GN), where=spread_G[:, None])
    return np.where(spread_G[:, None], centred_GN, 0.0)


def informative(advantage_GN: Floats) -> NDArray[np.bool_]:
    """Which groups carry a gradient, [G]."""
    return np.asarray((advantage_GN != 0).any(axis=1))
