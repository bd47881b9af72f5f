"""What holds for every algorithm."""

import subprocess
import sys
from typing import get_args

import pytest
import torch

from ninegrid.gspo.algorithms.names import FACTS, AlgorithmName
from ninegrid.gspo.algorithms.objective import ClipRange, Totals
from ninegrid.gspo.algorithms.registry import OBJECTIVES, objective_of

NAMES = get_args(AlgorithmName)
PER_TOKEN = [name for name in NAMES if FACTS[name].per_token]
PER_REPLY = [name for name in NAMES if not FACTS[name].per_token]

CLIP = ClipRange(0.05, 0.1)  # narrow enough to act on every algorithm's ratios
LENGTHS = torch.tensor([1, 7, 4, 5, 2, 7])
MASK = (torch.arange(7) < LENGTHS[:, None]).double()
TOTALS = Totals(samples=8, tokens=40, max_tokens=7)  # 2 samples with 14 tokens were left out of scoring


def batch(name, seed=0, drift=0.3):
    """New and old log-probs, mask and advantages, for each token where the algorithm takes them."""
    draw = torch.Generator().manual_seed(seed)
    new = -torch.rand(6, 7, generator=draw, dtype=torch.float64)
    # Replies drift as a whole too, or their ratios would stay near 1.
    shift = torch.randn(6, 1, generator=draw, dtype=torch.float64)
    old = new + drift * (shift + torch.randn(6, 7, generator=draw, dtype=torch.float64))
    width = 7 if FACTS[name].per_token else 1
    return new, old, MASK, torch.randn(6, width, generator=draw, dtype=torch.float64)


def gradient(name, new, old, mask, advantage, clip=CLIP):
    new = new.clone().requires_grad_()
    objective = objective_of(name)(new, old, mask, advantage, clip, TOTALS)
    objective.loss.backward()
    return objective, new.grad


def test_names_and_registry_agree():
    assert list(FACTS) == list(OBJECTIVES) == list(NAMES)
    assert [objective_of(name).__name__ for name in NAMES] == list(NAMES)


def test_the_names_are_read_without_torch():
    code = "import sys, ninegrid.gspo.algorithms.names; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", NAMES)
def test_without_advantage_there_is_no_gradient(name):
    new, old, mask, advantage = batch(name)
    objective, grad = gradient(name, new, old, mask, torch.zeros_like(advantage))
    assert objective.loss.item() == 0
    assert (grad == 0).all()
    assert not objective.clipped_U.any()


@pytest.mark.parametrize("name", NAMES)
def test_on_policy_the_gradient_is_a_policy_gradient(name):
    new, _, mask, advantage = batch(name)
    objective, grad = gradient(name, new, new, mask, advantage)
    assert (objective.ratio_U == 1).all()
    assert not objective.clipped_U.any()
    # Descent raises each log-prob in proportion to its advantage, by a factor that is positive and the
    # same throughout a reply.
    factor = -grad / advantage
    for row, length in zip(factor, LENGTHS.tolist(), strict=True):
        assert row[0] > 0
        torch.testing.assert_close(row[:length], row[:1].expand(length))


@pytest.mark.parametrize("junk", [0.0, 1e30, float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("name", NAMES)
def test_masked_slots_never_matter(name, junk):
    new, old, mask, advantage = batch(name)
    clean, clean_grad = gradient(name, new, old, mask, advantage)
    hidden = mask == 0
    spoilt = advantage.masked_fill(hidden, junk) if FACTS[name].per_token else advantage
    dirty, dirty_grad = gradient(
        name, new.masked_fill(hidden, junk), old.masked_fill(hidden, -junk), mask, spoilt
    )
    assert torch.equal(clean.loss, dirty.loss)
    assert torch.equal(clean_grad, dirty_grad)
    assert (dirty_grad[hidden] == 0).all()
    assert dirty.ratio_U.shape == dirty.clipped_U.shape == clean.ratio_U.shape
    assert torch.isfinite(dirty.ratio_U).all()


@pytest.mark.parametrize("sizes", [[6], [1, 5], [2, 2, 2]])
@pytest.mark.parametrize("name", NAMES)
def test_parts_of_a_minibatch_add_up(name, sizes):
    new, old, mask, advantage = batch(name)
    whole, whole_grad = gradient(name, new, old, mask, advantage)
    assert whole.clipped_U.any() and not whole.clipped_U.all()
    parts = []
    for members in torch.arange(6).split(sizes):
        # As the engine does, cut a part to its longest reply.
        width = int(LENGTHS[members].max())
        cut = [value[members, :width] for value in (new, old, mask, advantage)]
        parts.append((members, width, *gradient(name, *cut)))
    torch.testing.assert_close(sum(objective.loss for _, _, objective, _ in parts), whole.loss)
    for members, width, objective, grad in parts:
        torch.testing.assert_close(objective.terms_S, whole.terms_S[members])
        torch.testing.assert_close(grad, whole_grad[members, :width])


@pytest.mark.parametrize("name", NAMES)
def test_terms_add_up_to_the_loss_and_only_the_loss_has_a_gradient(name):
    new, old, mask, advantage = batch(name)
    old.requires_grad_()
    objective, grad = gradient(name, new, old, mask, advantage)
    assert objective.terms_S.shape == (6,)
    torch.testing.assert_close(objective.terms_S.sum(), objective.loss.detach())
    assert not any(
        value.requires_grad for value in (objective.terms_S, objective.ratio_U, objective.clipped_U)
    )
    assert old.grad is None
    assert (grad != 0).any()


@pytest.mark.parametrize("name", NAMES)
def test_facts_tell_whether_the_ratio_spans_the_reply(name):
    wide = ClipRange(1.0, 99.0)
    new, old, mask, advantage = batch(name)
    _, before = gradient(name, new, old, mask, advantage, wide)
    old[1, 0] -= 0.1  # one token of one reply moves
    _, after = gradient(name, new, old, mask, advantage, wide)
    moved = ~torch.isclose(before, after, rtol=1e-6, atol=0)
    expected = torch.zeros_like(moved)
    expected[1, : 7 if FACTS[name].sequence_ratio else 1] = True
    assert torch.equal(moved, expected)


@pytest.mark.parametrize("name", PER_REPLY)
def test_with_one_ratio_a_reply_advantages_for_tokens_are_refused(name):
    new, old, mask, _ = batch(name)
    with pytest.raises(ValueError, match=rf"{name} has one ratio.*\(6, 1\), got \(6, 7\); gspo_token takes"):
        objective_of(name)(new, old, mask, torch.ones(6, 7), CLIP, TOTALS)


@pytest.mark.parametrize("name", PER_TOKEN)
def test_where_advantages_for_tokens_are_taken_one_for_each_reply_means_the_same_for_all(name):
    new, old, mask, advantage = batch(name)
    one, one_grad = gradient(name, new, old, mask, advantage[:, :1])
    all_equal, all_grad = gradient(name, new, old, mask, advantage[:, :1].expand(6, 7))
    assert torch.equal(one.loss, all_equal.loss)
    assert torch.equal(one_grad, all_grad)


@pytest.mark.parametrize("shape", [(6,), (7,), (1, 1), (6, 3)])
@pytest.mark.parametrize("name", NAMES)
def test_advantages_that_would_broadcast_wrongly_are_refused(name, shape):
    new, old, mask, _ = batch(name)
    with pytest.raises(ValueError, match="expected advantages of shape"):
        objective_of(name)(new, old, mask, torch.ones(shape), CLIP, TOTALS)


@pytest.mark.parametrize("name", NAMES)
def test_log_probs_of_another_shape_are_refused(name):
    new, old, mask, advantage = batch(name)
    with pytest.raises(ValueError, match=r"shapes \(6, 7\), \(6, 1\), \(6, 7\)"):
        objective_of(name)(new, old[:, :1], mask, advantage, CLIP, TOTALS)
