"""RLOO's objective against values worked out by hand, and its gradients."""

import math

import pytest
import torch

from ninegrid.gspo.algorithms.objective import ClipRange, Totals
from ninegrid.gspo.algorithms.rloo import rloo

WIDE = ClipRange(0.9, 99.0)
TOTALS = Totals(samples=4, tokens=10, max_tokens=5)
LN2, NAN = math.log(2), math.nan


def rows(*values):
    return torch.tensor(values, dtype=torch.float64)


def batch():
    """Two replies of 2 tokens and 1 token: new log-probs, old ones, mask; token ratios 2 and 8, and 1/2."""
    new = rows([-1.0, -2.0], [-3.0, NAN]).requires_grad_()
    old = rows([-1.0 - LN2, -2.0 - 3 * LN2], [-3.0 + LN2, 7.0])
    return new, old, rows([1, 1], [1, 0])


def test_value_and_gradient_by_hand():
    new, old, mask = batch()
    objective = rloo(new, old, mask, rows([3.0], [-2.0]), WIDE, TOTALS)
    objective.loss.backward()
    # Ratios of whole replies: 2 * 8 = 16 and 0.5.  Loss: -(16 * 3 - 0.5 * 2) / 4 samples = -47 / 4.
    assert objective.loss.item() == pytest.approx(-11.75)
    assert objective.terms_S.tolist() == pytest.approx([-12.0, 0.25])
    assert objective.ratio_U.tolist() == pytest.approx([16.0, 0.5])
    assert objective.clipped_U.tolist() == [False, False]
    # -r A / 4 for every token, however many: -48 / 4 twice, and 1 / 4.
    assert new.grad.flatten().tolist() == pytest.approx([-12.0, -12.0, 0.25, 0.0])


def test_on_policy_it_is_reinforce():
    new = rows([-1.0, -2.0]).requires_grad_()
    objective = rloo(new, new, rows([1, 1]), rows([3.0]), WIDE, TOTALS)
    objective.loss.backward()
    assert objective.ratio_U.tolist() == [1.0]
    assert new.grad.tolist() == [[-0.75, -0.75]]  # -A / 4 samples


@pytest.mark.parametrize(
    ("ratio", "advantage", "clipped", "gain"),
    [
        # The range is [0.8, 1.3].
        (2.0, 1.0, True, 1.3),  # too far up, and pushed further up: clipped
        (2.0, -1.0, False, -2.0),  # too far up, pulled back: not clipped
        (0.5, -1.0, True, -0.8),  # too far down, and pushed further down: clipped
        (0.5, 1.0, False, 0.5),  # too far down, pulled back: not clipped
        (1.25, 1.0, False, 1.25),  # inside above, though as far from 1 as the next is below
        (0.75, -1.0, True, -0.8),
    ],
)
def test_clipping_zeroes_the_gradient_only_out_of_range_and_outwards(ratio, advantage, clipped, gain):
    new = rows([-1.0, -1.0]).requires_grad_()
    old = new.detach() - rows([math.log(ratio) + 5, -5.0])  # only the product of the token ratios counts
    objective = rloo(new, old, rows([1, 1]), rows([advantage]), ClipRange(0.2, 0.3), TOTALS)
    objective.loss.backward()
    assert objective.loss.item() == pytest.approx(-gain / 4)
    assert objective.clipped_U.tolist() == [clipped]
    expected = 0.0 if clipped else -ratio * advantage / 4
    assert new.grad.flatten().tolist() == pytest.approx([expected, expected])
