"""GRPO's objective against values worked out by hand, and its gradients."""

import math

import pytest

from ninegrid.gspo.algorithms.grpo import grpo
from tests.objectives import NAN, RANGE, TOTALS, WIDE, batch, ratios_around_the_range, rows


def test_value_and_gradient_by_hand():
    new, old, mask = batch()
    objective = grpo(new, old, mask, rows([3.0], [-2.0]), WIDE, TOTALS)
    objective.loss.backward()
    # Means over tokens of r_t A: (2 * 3 + 8 * 3) / 2 = 15 and 0.5 * -2 = -1.  Loss: -(15 - 1) / 4 samples.
    assert objective.loss.item() == pytest.approx(-3.5)
    assert objective.terms_S.tolist() == pytest.approx([-3.75, 0.25])
    assert objective.ratio_U.tolist() == pytest.approx([2.0, 8.0, 0.5])
    assert objective.clipped_U.tolist() == [False, False, False]
    # -r_t A / |y| / 4: -6 / 8, -24 / 8, and 1 / 4.
    assert new.grad.flatten().tolist() == pytest.approx([-0.75, -3.0, 0.25, 0.0])


def test_an_advantage_for_each_token_by_hand():
    new, old, mask = batch()
    objective = grpo(new, old, mask, rows([3.0, -1.0], [-2.0, NAN]), WIDE, TOTALS)
    objective.loss.backward()
    # (2 * 3 - 8 * 1) / 2 = -1 and -1: loss 2 / 4.
    assert objective.loss.item() == pytest.approx(0.5)
    assert new.grad.flatten().tolist() == pytest.approx([-0.75, 1.0, 0.25, 0.0])


def test_on_policy_the_ratio_is_one():
    new = rows([-1.0, -2.0]).requires_grad_()
    objective = grpo(new, new, rows([1, 1]), rows([3.0]), WIDE, TOTALS)
    objective.loss.backward()
    assert objective.ratio_U.tolist() == [1.0, 1.0]
    assert objective.loss.item() == -0.75  # -3 / 4 samples
    assert new.grad.tolist() == [[-0.375, -0.375]]


@ratios_around_the_range
def test_clipping_acts_on_single_tokens(ratio, advantage, clipped, gain):
    new = rows([-1.0, -1.0]).requires_grad_()
    old = new.detach() - rows([math.log(ratio), 0.0])  # the second token is on-policy
    objective = grpo(new, old, rows([1, 1]), rows([advantage]), RANGE, TOTALS)
    objective.loss.backward()
    assert objective.loss.item() == pytest.approx(-(gain + advantage) / 2 / 4)
    assert objective.clipped_U.tolist() == [clipped, False]
    expected = 0.0 if clipped else -ratio * advantage / 8
    assert new.grad.flatten().tolist() == pytest.approx([expected, -advantage / 8])
