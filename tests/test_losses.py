"""GSPO's objective against values worked out by hand, and its gradients."""

import math

import pytest
import torch

from ninegrid.gspo.losses import ClipRange, gspo, sequence_ratio

WIDE = ClipRange(0.9, 9.0)


def rows(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_sequence_ratio_is_the_geometric_mean_over_real_tokens():
    new = rows([-1.0, -2.0, -9.0], [-0.5, -0.5, -0.5])
    old = rows([-1.2, -2.4, -1.0], [-0.5, -0.5, -0.5])
    mask = rows([1, 1, 0], [1, 1, 1])
    # Row 0: differences 0.2 and 0.4 over two tokens, mean 0.3; the masked third token is ignored.
    # Row 1: no difference, ratio 1.
    assert sequence_ratio(new, old, mask).tolist() == pytest.approx([math.exp(0.3), 1.0])


def test_value_by_hand_and_normalised_by_the_whole_batch():
    new, old, mask = rows([-1.0, -2.0], [-3.0, 0.0]), rows([-1.2, -2.4], [-2.0, 0.0]), rows([1, 1], [1, 0])
    objective = gspo(new, old, mask, torch.tensor([2.0, -1.0], dtype=torch.float64), WIDE, n_samples=4)
    # s = e^0.3 and e^-1; objective sum = 2 e^0.3 - e^-1; loss = -sum / 4.
    assert objective.loss.item() == pytest.approx(-(2 * math.exp(0.3) - math.exp(-1)) / 4)
    assert objective.clipped_S.tolist() == [False, False]


def test_gradient_by_hand():
    new = rows([-1.0, -2.0]).requires_grad_()
    objective = gspo(new, rows([-1.2, -2.4]), rows([1, 1]), torch.tensor([2.0]).double(), WIDE, n_samples=1)
    objective.loss.backward()
    # d(-A s)/d log-prob_t = -A s / |y| = -2 e^0.3 / 2 = -e^0.3 for each of the two tokens.
    assert new.grad.tolist()[0] == pytest.approx([-math.exp(0.3)] * 2)


@pytest.mark.parametrize(
    ("difference", "advantage", "clipped"),
    [
        # Ratios e^0.1 = 1.105 and e^-0.1 = 0.905 leave the range [0.95, 1.05]; 1.01 stays inside.
        (0.1, 1.0, True),  # too far up, and pushed further up: clipped
        (0.1, -1.0, False),  # too far up, pulled back: not clipped
        (-0.1, -1.0, True),  # too far down, and pushed further down: clipped
        (-0.1, 1.0, False),  # too far down, pulled back: not clipped
        (0.01, 1.0, False),
    ],
)
def test_clipping_zeroes_the_gradient_only_out_of_range_and_outwards(difference, advantage, clipped):
    new = rows([-1.0, -1.0]).requires_grad_()
    old = new.detach() - difference
    clip = ClipRange(0.05, 0.05)
    objective = gspo(new, old, rows([1, 1]), torch.tensor([advantage]).double(), clip, n_samples=1)
    objective.loss.backward()
    assert objective.clipped_S.tolist() == [clipped]
    assert (new.grad == 0).all().item() is clipped


def test_the_range_is_asymmetric():
    clip = ClipRange(0.1, 0.3)
    zero = rows([0.0])
    # Up: e^0.2 = 1.22 is inside 1.3, e^0.3 = 1.35 is not.  Down: e^-0.2 = 0.82 is outside 0.9.
    for difference, advantage, clipped in [(0.2, 1.0, False), (0.3, 1.0, True), (-0.2, -1.0, True)]:
        objective = gspo(zero + difference, zero, rows([1]), torch.tensor([advantage]).double(), clip, 1)
        assert objective.clipped_S.item() is clipped


def test_no_gradient_flows_into_the_recorded_log_probs():
    old = rows([-1.0]).requires_grad_()
    new = rows([-1.1]).requires_grad_()
    gspo(new, old, rows([1]), torch.tensor([1.0]).double(), WIDE, 1).loss.backward()
    assert old.grad is None
    assert new.grad is not None
