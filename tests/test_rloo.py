"""RLOO's objective against values worked out by hand, and its gradients."""

import math

import pytest

from ninegrid.gspo.algorithms.rloo import rloo
from tests.objectives import RANGE, TOTALS, WIDE, batch, ratios_around_the_range, rows


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


@ratios_around_the_range
def test_clipping_zeroes_the_gradient_only_out_of_range_and_outwards(ratio, advantage, clipped, gain):
    new = rows([-1.0, -1.0]).requires_grad_()
    old = new.detach() - rows([math.log(ratio) + 5, -5.0])  # only the product of the token ratios counts
    objective = rloo(new, old, rows([1, 1]), rows([advantage]), RANGE, TOTALS)
    objective.loss.backward()
    assert objective.loss.item() == pytest.approx(-gain / 4)
    assert objective.clipped_U.tolist() == [clipped]
    expected = 0.0 if clipped else -ratio * advantage / 4
    assert new.grad.flatten().tolist() == pytest.approx([expected, expected])
