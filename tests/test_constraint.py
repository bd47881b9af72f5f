"""Constrained sampling: only what is allowed, from the right distribution, by both engines alike."""

import numpy as np
import pytest
import torch
from transformers import AutoConfig

from ninegrid.tree.constraint import restrict
from ninegrid.tree.draw import uniforms
from ninegrid.tree.engine import Request
from ninegrid.tree.padded_engine import PaddedEngine
from ninegrid.tree.tree_engine import TreeEngine
from tests.test_engine import SHAPE, VOCAB, Counted, requests, sample, tiny


class Thirds:
    """What may follow depends on how much was said, and on the last token; counts how often it is asked."""

    def __init__(self, width=VOCAB):
        self.width, self.asked = width, 0

    def allowed(self, sampled):
        self.asked += 1
        shift = len(sampled) + (sampled[-1] if sampled else 0)
        return (np.arange(self.width) + shift) % 3 == 0


class Steps:
    """Token 5, then 6, then the stop token."""

    def allowed(self, sampled):
        return np.arange(VOCAB) == (5, 6, 3)[len(sampled)]


@pytest.fixture(scope="module")
def model():
    return tiny(AutoConfig.for_model("llama", **SHAPE))


def constrained(wanted, constraint):
    return [Request(r.prompt, r.uniforms, constraint) for r in wanted]


def assert_alike(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        assert one.tokens == other.tokens
        assert one.finish == other.finish
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-4)
        np.testing.assert_allclose(one.entropies, other.entropies, atol=1e-4)


@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_both_engines_say_only_what_is_allowed_and_agree(model, greedy, temperature):
    wanted = constrained(requests(greedy=greedy), Thirds())
    tree = sample(TreeEngine(model), wanted, temperature)
    assert_alike(tree, sample(PaddedEngine(model), wanted, temperature))
    for completion in tree:
        for position, token in enumerate(completion.tokens):
            assert Thirds().allowed(completion.tokens[:position])[token]
    free = sample(TreeEngine(model), requests(greedy=greedy), temperature)
    assert [c.tokens for c in free] != [c.tokens for c in tree]


def test_log_probs_and_entropies_are_those_of_what_is_allowed(model):
    """One sequence, no engine: the model's logits, normalised over the allowed tokens alone."""
    prompt = [1, 2, 5]
    (completion,) = sample(TreeEngine(model), [Request(prompt, uniforms(12, "one"), Thirds())], 0.8)
    logits = model(torch.tensor([prompt + list(completion.tokens)])).logits[0].detach() / 0.8
    for position, token in enumerate(completion.tokens):
        allowed = torch.from_numpy(Thirds().allowed(completion.tokens[:position]))
        among = torch.log_softmax(logits[len(prompt) - 1 + position][allowed], -1)
        chosen = int(allowed[:token].sum())
        assert completion.logprobs[position] == pytest.approx(among[chosen].item(), abs=1e-4)
        entropy = -(among.exp() * among).sum().item()
        assert completion.entropies[position] == pytest.approx(entropy, abs=1e-4)


def test_the_mask_holds_along_guessed_paths(model):
    """A second batch follows what the first one taught, in fewer passes, and still says what is allowed."""
    wanted = constrained(requests(seed=0), Thirds())
    engine = Counted(model)
    first = sample(engine, wanted, 0.1)
    without = engine.passes_run
    second = sample(engine, wanted, 0.1)
    assert engine.passes_run - without < without
    assert_alike(first, second)
    # Guesses learned without a constraint lead elsewhere: they must not be followed.
    free = Counted(model)
    sample(free, requests(seed=0), 0.1)
    assert_alike(sample(free, wanted, 0.1), first)


@pytest.mark.parametrize("engine", [TreeEngine, PaddedEngine])
def test_a_forced_text_is_certain(model, engine):
    (completion,) = sample(engine(model), [Request([1, 2], uniforms(12, "sure"), Steps())])
    assert completion.tokens == (5, 6, 3)
    assert completion.finish == "stop"
    assert completion.logprobs.tolist() == [0, 0, 0]
    assert completion.entropies.tolist() == [0, 0, 0]


@pytest.mark.parametrize("engine", [TreeEngine, PaddedEngine])
def test_samples_with_and_without_a_constraint_share_a_batch(model, engine):
    """One node of the tree, different pasts: [1, 2] that said 5, and the prompt [1, 2, 5]."""
    prompts = [[1, 2], [1, 2, 5], [1, 2]]
    draws = [uniforms(12, "mixed", i) for i in range(3)]
    ways = [Steps(), Steps(), None]
    mixed = sample(engine(model), [Request(*r) for r in zip(prompts, draws, ways, strict=True)])
    assert [c.tokens for c in mixed[:2]] == [(5, 6, 3), (5, 6, 3)]
    (alone,) = sample(engine(model), [Request(prompts[2], draws[2])])
    assert mixed[2].tokens == alone.tokens


def test_without_a_constraint_the_logits_are_not_touched():
    logits_RV = torch.randn(2, VOCAB)
    rows_RV, standing_S = restrict(logits_RV, [0, 1, 1], [None] * 3, [[], [4], [4]])
    assert rows_RV is logits_RV
    assert standing_S == [0, 1, 1]


def test_samples_that_said_the_same_share_a_row_and_a_question():
    constraint = Thirds()
    rows_RV, standing_S = restrict(
        torch.zeros(2, VOCAB), [0, 1, 1, 1], [constraint] * 4, [[], [4], [4], [9, 4]]
    )
    assert standing_S == [0, 1, 1, 2]
    assert constraint.asked == 3
    assert [int(n) for n in torch.isfinite(rows_RV).sum(-1)] == [8, 8, 8]


def test_tokens_beyond_the_mask_are_not_allowed():
    """Output layers are often wider than the tokenizer's vocabulary, and sometimes narrower."""
    rows_RV, _ = restrict(torch.zeros(1, VOCAB), [0], [Thirds(width=7)], [[]])
    assert torch.isfinite(rows_RV[0]).nonzero().flatten().tolist() == [0, 3, 6]
    rows_RV, _ = restrict(torch.zeros(1, 5), [0], [Thirds()], [[]])
    assert torch.isfinite(rows_RV[0]).tolist() == [True, False, False, True, False]
