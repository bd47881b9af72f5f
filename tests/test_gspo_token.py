"""GSPO-token: by hand, and the same as GSPO when advantages are equal throughout a reply."""

import math

import pytest
import torch

from ninegrid.gspo.algorithms.gspo import gspo
from ninegrid.gspo.algorithms.gspo_token import gspo_token
from ninegrid.gspo.algorithms.objective import ClipRange, Totals
from tests.objectives import NAN, RANGE, TOTALS, WIDE, batch, rows

ONE = Totals(samples=1, tokens=2, max_tokens=2)


def test_value_and_gradient_by_hand():
    new, old, mask = batch()
    objective = gspo_token(new, old, mask, rows([3.0, -1.0], [-2.0, NAN]), WIDE, TOTALS)
    objective.loss.backward()
    # Means over tokens of s A_t: (4 * 3 - 4 * 1) / 2 = 4 and 0.5 * -2 = -1.  Loss: -(4 - 1) / 4.
    assert objective.loss.item() == pytest.approx(-0.75)
    assert objective.terms_S.tolist() == pytest.approx([-1.0, 0.25])
    assert objective.ratio_U.tolist() == pytest.approx([4.0, 4.0, 0.5])  # s, for each real token
    assert objective.clipped_U.tolist() == [False, False, False]
    # -s A_t / |y| / 4: -12 / 8, 4 / 8, and 1 / 4.  Each token has its own advantage only.
    assert new.grad.flatten().tolist() == pytest.approx([-1.5, 0.5, 0.25, 0.0])


def test_on_policy_the_ratio_is_one():
    new = rows([-1.0, -2.0]).requires_grad_()
    objective = gspo_token(new, new, rows([1, 1]), rows([3.0, -1.0]), WIDE, ONE)
    objective.loss.backward()
    assert objective.ratio_U.tolist() == [1.0, 1.0]
    assert objective.loss.item() == -1.0  # -(3 - 1) / 2
    assert new.grad.tolist() == [[-1.5, 0.5]]


@pytest.mark.parametrize(
    ("ratio", "clipped", "gradient"),
    [
        # The range is [0.8, 1.3]; token 0 has advantage 1 and token 1 has -1.
        (2.0, [True, False], [0.0, 1.0]),  # too far up: no further up, but back, by 2 * 1 / 2 tokens
        (0.5, [False, True], [-0.25, 0.0]),  # too far down: no further down, but back
        (1.25, [False, False], [-0.625, 0.625]),
    ],
)
def test_clipping_goes_by_the_sign_of_the_tokens_own_advantage(ratio, clipped, gradient):
    new = rows([-1.0, -1.0]).requires_grad_()
    old = new.detach() - math.log(ratio)
    objective = gspo_token(new, old, rows([1, 1]), rows([1.0, -1.0]), RANGE, ONE)
    objective.loss.backward()
    assert objective.clipped_U.tolist() == clipped
    assert new.grad.flatten().tolist() == pytest.approx(gradient)


@pytest.mark.parametrize("per_token", [False, True], ids=["one a reply", "equal throughout"])
@pytest.mark.parametrize("drift", [0.0, 0.3], ids=["on-policy", "off-policy"])
@pytest.mark.parametrize("clip", [WIDE, ClipRange(0.02, 0.03)], ids=["wide", "narrow"])
@pytest.mark.parametrize("seed", range(5))
def test_with_one_advantage_a_reply_it_is_gspo(seed, clip, drift, per_token):
    draw = torch.Generator().manual_seed(seed)
    new = -torch.rand(6, 9, generator=draw, dtype=torch.float64)
    old = new + drift * torch.randn(6, 9, generator=draw, dtype=torch.float64)
    mask = (torch.arange(9) < torch.tensor([1, 9, 4, 6, 2, 9])[:, None]).double()
    advantage = torch.randn(6, 1, generator=draw, dtype=torch.float64)
    totals = Totals(samples=8, tokens=40, max_tokens=9)

    left, right = new.clone().requires_grad_(), new.clone().requires_grad_()
    whole = gspo(left, old, mask, advantage, clip, totals)
    for_each = advantage.expand(6, 9) if per_token else advantage
    each = gspo_token(right, old, mask, for_each, clip, totals)
    whole.loss.backward()
    each.loss.backward()

    torch.testing.assert_close(each.loss, whole.loss, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(each.terms_S, whole.terms_S, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(right.grad, left.grad, rtol=1e-12, atol=1e-14)
    lengths = mask.sum(1).long()
    assert torch.equal(each.clipped_U, whole.clipped_U.repeat_interleave(lengths))
    assert whole.clipped_U.any().item() is (drift > 0 and clip is not WIDE)  # clipping did act
