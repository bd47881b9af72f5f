"""What the tests of the objectives share: one small batch whose ratios are easy to reckon with."""

import math

import pytest
import torch

from ninegrid.gspo.algorithms.objective import ClipRange, Totals

WIDE = ClipRange(0.9, 99.0)
TOTALS = Totals(samples=4, tokens=10, max_tokens=5)
LN2, NAN = math.log(2), math.nan


def rows(*values):
    return torch.tensor(values, dtype=torch.float64)


def batch():
    """Two replies of 2 tokens and 1 token: new log-probs, old ones, mask.

    The token ratios are 2 and 8, and 1/2; what stands in the masked slot must not matter.
    """
    new = rows([-1.0, -2.0], [-3.0, NAN]).requires_grad_()
    old = rows([-1.0 - LN2, -2.0 - 3 * LN2], [-3.0 + LN2, 7.0])
    return new, old, rows([1, 1], [1, 0])


RANGE = ClipRange(0.2, 0.3)

ratios_around_the_range = pytest.mark.parametrize(
    ("ratio", "advantage", "clipped", "gain"),
    [
        # `RANGE` is [0.8, 1.3].
        (2.0, 1.0, True, 1.3),  # too far up, and pushed further up: clipped
        (2.0, -1.0, False, -2.0),  # too far up, pulled back: not clipped
        (0.5, -1.0, True, -0.8),  # too far down, and pushed further down: clipped
        (0.5, 1.0, False, 0.5),  # too far down, pulled back: not clipped
        (1.25, 1.0, False, 1.25),  # inside above, though as far from 1 as the next is below
        (0.75, -1.0, True, -0.8),
    ],
)
