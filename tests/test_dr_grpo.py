"""Dr. GRPO's objective against values worked out by hand, and its gradients."""

import math

import pytest
import torch

from ninegrid.gspo.algorithms.dr_grpo import dr_grpo
from ninegrid.gspo.algorithms.objective import ClipRange, Totals

WIDE = ClipRange(0.9, 9.0)
TOTALS = Totals(samples=4, tokens=10, max_tokens=5)  # divides by 4 * 5 = 20
LN2, NAN = math.log(2), math.nan


def rows(*values):
    return torch.tensor(values, dtype=torch.float64)


def batch():
    """Two replies of 2 tokens and 1 token: new log-probs, old ones, mask; ratios 2 and 8, and 1/2."""
    new = rows([-1.0, -2.0], [-3.0, NAN]).requires_grad_()
    old = rows([-1.0 - LN2, -2.0 - 3 * LN2], [-3.0 + LN2, 7.0])
    return new, old, rows([1, 1], [1, 0])


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
def test_clipping_acts_on_single_tokens(ratio, advantage, clipped, gain):
    new = rows([-1.0, -1.0]).requires_grad_()
    old = new.detach() - rows([math.log(ratio), 0.0])  # the second token is on-policy
    objective = dr_grpo(new, old, rows([1, 1]), rows([advantage]), ClipRange(0.2, 0.3), TOTALS)
    objective.loss.backward()
    assert objective.loss.item() == pytest.approx(-(gain + advantage) / 20)
    assert objective.clipped_U.tolist() == [clipped, False]
    expected = 0.0 if clipped else -ratio * advantage / 20
    assert new.grad.flatten().tolist() == pytest.approx([expected, -advantage / 20])
