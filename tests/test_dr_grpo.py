"""Dr. GRPO's objective against values worked out by hand, and its gradients."""

import math

import pytest

from ninegrid.gspo.algorithms.dr_grpo import dr_grpo
from tests.objectives import NAN, RANGE, TOTALS, WIDE, batch, ratios_around_the_range, rows


def test_value_and_gradient_by_hand():
    new, old, mask = batch()
    objective = dr_grpo(new, old, mask, rows([3.0], [-2.0]), WIDE, TOTALS)
    objective.loss.backward()
    # Sums over tokens of r_t A: 2 * 3 + 8 * 3 = 30 and 0.5 * -2 = -1.  Loss: -(30 - 1) / 20.
    assert objective.loss.item() == pytest.approx(-1.45)
    assert objective.terms_S.tolist() == pytest.approx([-1.5, 0.05])
    assert objective.ratio_U.tolist() == pytest.approx([2.0, 8.0, 0.5])
    assert objective.clipped_U.tolist() == [False, False, False]
    # -r_t A / 20: -6 / 20, -24 / 20, and 1 / 20.
    assert new.grad.flatten().tolist() == pytest.approx([-0.3, -1.2, 0.05, 0.0])


def test_an_advantage_for_each_token_by_hand():
    new, old, mask = batch()
    objective = dr_grpo(new, old, mask, rows([3.0, -1.0], [-2.0, NAN]), WIDE, TOTALS)
    objective.loss.backward()
    # 2 * 3 - 8 * 1 = -2 and -1: loss 3 / 20.
    assert objective.loss.item() == pytest.approx(0.15)
    assert new.grad.flatten().tolist() == pytest.approx([-0.3, 0.4, 0.05, 0.0])


def test_on_policy_a_token_weighs_the_same_in_short_and_long_replies():
    new = rows([-1.0, -2.0, -1.0], [-3.0, 0.0, 0.0]).requires_grad_()
    objective = dr_grpo(new, new, rows([1, 1, 1], [1, 0, 0]), rows([2.0], [2.0]), WIDE, TOTALS)
    objective.loss.backward()
    assert objective.ratio_U.tolist() == [1.0] * 4
    assert objective.loss.item() == pytest.approx(-0.4)  # -4 tokens * 2 / 20
    assert new.grad.flatten().tolist() == pytest.approx([-0.1, -0.1, -0.1, -0.1, 0.0, 0.0])


@ratios_around_the_range
def test_clipping_acts_on_single_tokens(ratio, advantage, clipped, gain):
    new = rows([-1.0, -1.0]).requires_grad_()
    old = new.detach() - rows([math.log(ratio), 0.0])  # the second token is on-policy
    objective = dr_grpo(new, old, rows([1, 1]), rows([advantage]), RANGE, TOTALS)
    objective.loss.backward()
    assert objective.loss.item() == pytest.approx(-(gain + advantage) / 20)
    assert objective.clipped_U.tolist() == [clipped, False]
    expected = 0.0 if clipped else -ratio * advantage / 20
    assert new.grad.flatten().tolist() == pytest.approx([expected, -advantage / 20])
