"""GSPO's objective against values worked out by hand, and its gradients."""

import math

import pytest

from ninegrid.gspo.algorithms.gspo import gspo
from ninegrid.gspo.algorithms.objective import Totals, sequence_ratio
from tests.objectives import LN2, RANGE, TOTALS, WIDE, batch, ratios_around_the_range, rows

ONE = Totals(samples=1, tokens=2, max_tokens=2)


def test_sequence_ratio_is_the_geometric_mean_over_real_tokens():
    # Row 0: (2 * 8)^(1/2) = 4.  Row 1 has one real token: 1/2.
    assert sequence_ratio(*batch()).tolist() == pytest.approx([4.0, 0.5])


def test_value_and_gradient_by_hand():
    new, old, mask = batch()
    objective = gspo(new, old, mask, rows([3.0], [-2.0]), WIDE, TOTALS)
    objective.loss.backward()
    # Gains s A: 4 * 3 = 12 and 0.5 * -2 = -1.  Loss: -(12 - 1) / 4 samples = -2.75.
    assert objective.loss.item() == pytest.approx(-2.75)
    assert objective.terms_S.tolist() == pytest.approx([-3.0, 0.25])
    assert objective.ratio_U.tolist() == pytest.approx([4.0, 0.5])
    assert objective.clipped_U.tolist() == [False, False]
    # d(-s A / 4) / d log-prob = -s A / |y| / 4: -12 / 2 / 4 = -1.5 for each token, and 1 / 1 / 4.
    assert new.grad.flatten().tolist() == pytest.approx([-1.5, -1.5, 0.25, 0.0])


def test_on_policy_the_ratio_is_one():
    new = rows([-1.0, -2.0]).requires_grad_()
    objective = gspo(new, new, rows([1, 1]), rows([3.0]), WIDE, ONE)
    objective.loss.backward()
    assert objective.ratio_U.tolist() == [1.0]
    assert objective.loss.item() == -3.0
    assert new.grad.tolist() == [[-1.5, -1.5]]  # -A / |y|


@ratios_around_the_range
def test_clipping_zeroes_the_gradient_only_out_of_range_and_outwards(ratio, advantage, clipped, gain):
    new = rows([-1.0, -1.0]).requires_grad_()
    old = new.detach() - math.log(ratio)
    objective = gspo(new, old, rows([1, 1]), rows([advantage]), RANGE, ONE)
    objective.loss.backward()
    assert objective.loss.item() == pytest.approx(-gain)
    assert objective.clipped_U.tolist() == [clipped]
    expected = 0.0 if clipped else -ratio * advantage / 2
    assert new.grad.flatten().tolist() == pytest.approx([expected, expected])


def test_a_reply_is_clipped_as_a_whole():
    new = rows([-1.0, -1.0]).requires_grad_()
    # Ratios 4 and 1/2: one token is too far up and one too far down; s = (4 / 2)^(1/2) = 1.41 > 1.3.
    old = new.detach() - rows([2 * LN2, -LN2])
    gspo(new, old, rows([1, 1]), rows([1.0]), RANGE, ONE).loss.backward()
    assert new.grad.tolist() == [[0.0, 0.0]]
