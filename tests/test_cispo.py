"""CISPO's objective against values worked out by hand, and its gradients, which clipping bounds but keeps."""

import math

import pytest

from ninegrid.gspo.algorithms.cispo import cispo
from ninegrid.gspo.algorithms.objective import ClipRange
from tests.objectives import NAN, RANGE, TOTALS, batch, rows

UP_TO_FIVE = ClipRange(1.0, 4.0)  # no lower bound


def test_value_and_gradient_by_hand():
    new, old, mask = batch()
    objective = cispo(new, old, mask, rows([3.0], [-2.0]), UP_TO_FIVE, TOTALS)
    objective.loss.backward()
    # Weights 2, 5 (of 8) and 0.5.  Sum of w A log pi: 2*3*-1 + 5*3*-2 + 0.5*-2*-3 = -6 - 30 + 3 = -33.
    assert objective.loss.item() == pytest.approx(3.3)  # 33 / 10 tokens of the minibatch
    assert objective.terms_S.tolist() == pytest.approx([3.6, -0.3])
    assert objective.ratio_U.tolist() == pytest.approx([2.0, 8.0, 0.5])  # before clipping
    assert objective.clipped_U.tolist() == [False, True, False]
    # -w A / 10: -6 / 10, -15 / 10, and 1 / 10; the weight itself has no gradient.
    assert new.grad.flatten().tolist() == pytest.approx([-0.6, -1.5, 0.1, 0.0])


def test_an_advantage_for_each_token_by_hand():
    new, old, mask = batch()
    objective = cispo(new, old, mask, rows([3.0, -1.0], [-2.0, NAN]), UP_TO_FIVE, TOTALS)
    objective.loss.backward()
    # 2*3*-1 + 5*-1*-2 + 0.5*-2*-3 = -6 + 10 + 3 = 7.
    assert objective.loss.item() == pytest.approx(-0.7)
    assert new.grad.flatten().tolist() == pytest.approx([-0.6, 0.5, 0.1, 0.0])


def test_on_policy_it_is_the_policy_gradient():
    new = rows([-1.0, -2.0]).requires_grad_()
    objective = cispo(new, new, rows([1, 1]), rows([3.0]), UP_TO_FIVE, TOTALS)
    objective.loss.backward()
    assert objective.ratio_U.tolist() == [1.0, 1.0]
    assert new.grad.flatten().tolist() == pytest.approx([-0.3, -0.3])  # -A / 10


@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize(
    ("ratio", "weight"),
    [
        # The range is [0.8, 1.3]; unlike in GRPO the sign of the advantage plays no part.
        (2.0, 1.3),
        (0.5, 0.8),
        (1.25, 1.25),
        (0.9, 0.9),
    ],
)
def test_clipping_bounds_the_weight_and_keeps_the_gradient(ratio, weight, advantage):
    new = rows([-1.0, -1.0]).requires_grad_()
    old = new.detach() - rows([math.log(ratio), 0.0])  # the second token is on-policy
    objective = cispo(new, old, rows([1, 1]), rows([advantage]), RANGE, TOTALS)
    objective.loss.backward()
    assert objective.loss.item() == pytest.approx((weight + 1) * advantage / 10)  # both log-probs are -1
    assert objective.clipped_U.tolist() == [weight != ratio, False]
    assert new.grad.flatten().tolist() == pytest.approx([-weight * advantage / 10, -advantage / 10])


def test_clip_low_of_one_is_no_lower_bound():
    new = rows([-9.0]).requires_grad_()
    objective = cispo(new, rows([-2.0]), rows([1]), rows([1.0]), UP_TO_FIVE, TOTALS)
    objective.loss.backward()
    assert objective.clipped_U.tolist() == [False]
    assert new.grad.item() == pytest.approx(-math.exp(-7) / 10)
