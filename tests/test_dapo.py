"""DAPO's objective against values worked out by hand, and its gradients."""

import math

import pytest

from ninegrid.gspo.algorithms.dapo import dapo
from ninegrid.gspo.algorithms.objective import ClipRange
from tests.objectives import NAN, TOTALS, WIDE, batch, rows


def test_value_and_gradient_by_hand():
    new, old, mask = batch()
    objective = dapo(new, old, mask, rows([3.0], [-2.0]), WIDE, TOTALS)
    objective.loss.backward()
    # Sum over all tokens of r_t A: 2 * 3 + 8 * 3 - 0.5 * 2 = 29.  Loss: -29 / 10 tokens of the minibatch.
    assert objective.loss.item() == pytest.approx(-2.9)
    assert objective.terms_S.tolist() == pytest.approx([-3.0, 0.1])
    assert objective.ratio_U.tolist() == pytest.approx([2.0, 8.0, 0.5])
    assert objective.clipped_U.tolist() == [False, False, False]
    # -r_t A / 10: -6 / 10, -24 / 10, and 1 / 10.
    assert new.grad.flatten().tolist() == pytest.approx([-0.6, -2.4, 0.1, 0.0])


def test_an_advantage_for_each_token_by_hand():
    new, old, mask = batch()
    objective = dapo(new, old, mask, rows([3.0, -1.0], [-2.0, NAN]), WIDE, TOTALS)
    objective.loss.backward()
    # 2 * 3 - 8 * 1 - 0.5 * 2 = -3: loss 3 / 10.
    assert objective.loss.item() == pytest.approx(0.3)
    assert new.grad.flatten().tolist() == pytest.approx([-0.6, 0.8, 0.1, 0.0])


def test_on_policy_the_ratio_is_one():
    new = rows([-1.0, -2.0]).requires_grad_()
    objective = dapo(new, new, rows([1, 1]), rows([3.0]), WIDE, TOTALS)
    objective.loss.backward()
    assert objective.ratio_U.tolist() == [1.0, 1.0]
    assert objective.loss.item() == pytest.approx(-0.6)  # -2 tokens * 3 / 10
    assert new.grad.flatten().tolist() == pytest.approx([-0.3, -0.3])


@pytest.mark.parametrize(
    ("ratio", "advantage", "clipped", "gain"),
    [
        # Clip-higher with the paper's range, [0.8, 1.28].
        (1.3, 1.0, True, 1.28),  # too far up, and pushed further up: clipped
        (1.3, -1.0, False, -1.3),  # too far up, pulled back: not clipped
        (0.7, -1.0, True, -0.8),  # too far down, and pushed further down: clipped
        (0.7, 1.0, False, 0.7),  # too far down, pulled back: not clipped
        (1.25, 1.0, False, 1.25),  # inside above, though as far from 1 as the next is below
        (0.75, -1.0, True, -0.8),
    ],
)
def test_clipping_acts_on_single_tokens_and_later_above(ratio, advantage, clipped, gain):
    new = rows([-1.0, -1.0]).requires_grad_()
    old = new.detach() - rows([math.log(ratio), 0.0])  # the second token is on-policy
    objective = dapo(new, old, rows([1, 1]), rows([advantage]), ClipRange(0.2, 0.28), TOTALS)
    objective.loss.backward()
    assert objective.loss.item() == pytest.approx(-(gain + advantage) / 10)
    assert objective.clipped_U.tolist() == [clipped, False]
    expected = 0.0 if clipped else -ratio * advantage / 10
    assert new.grad.flatten().tolist() == pytest.approx([expected, -advantage / 10])
