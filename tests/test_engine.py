"""The tree against the padded reference: same tokens, same log-probs, same gradients.

Tiny random models cover the architectures; the real SmolLM2 covers the claim.
"""

from collections import Counter

import numpy as np
import pytest
import torch
from scipy.stats import chi2_contingency
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config

from ninegrid.errors import SettingsError
from ninegrid.tree.choice import choose_engine, obstacle
from ninegrid.tree.draw import GREEDY, draw_tokens, uniforms
from ninegrid.tree.engine import HEAD_CHUNK, Request
from ninegrid.tree.padded_engine import PaddedEngine
from ninegrid.tree.settings import EngineSettings
from ninegrid.tree.tree_engine import TreeEngine

VOCAB = 24
STOP = frozenset({3})
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}


def tiny(config):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    for parameter in model.parameters():  # spread the logits, so that the distribution is not flat
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def model(request):
    return tiny(LlamaConfig(**SHAPE) if request.param == "llama" else Qwen3Config(**SHAPE))


def requests(n_samples=6, greedy=False, seed=0):
    """Prompts of different lengths that share a beginning, one of them twice."""
    prompts = [[1, 2, 5, 6], [1, 2, 5, 7, 8], [1, 2], [9, 1], [1, 2, 5, 6]]
    return [
        Request(p, None if greedy else uniforms(12, "test", seed, i, s))
        for i, p in enumerate(prompts)
        for s in range(n_samples)
    ]


def sample(engine, wanted, temperature=1.0):
    return engine.sample(wanted, stop=STOP, max_new_tokens=12, temperature=temperature)


@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.6])
def test_same_draws_give_the_same_completions(model, temperature):
    tree = sample(TreeEngine(model), requests(), temperature)
    padded = sample(PaddedEngine(model), requests(), temperature)
    assert len({c.tokens for c in tree}) > 10  # else agreement would mean little
    assert {c.finish for c in tree} == {"stop", "length"}
    for one, other in zip(tree, padded, strict=True):
        assert one.tokens == other.tokens
        assert one.finish == other.finish
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-4)
        np.testing.assert_allclose(one.entropies, other.entropies, atol=1e-4)


class Counted(TreeEngine):
    """Counts forward passes and the tokens in them."""

    passes_run = 0

    def _forward(self, tokens_R, *rest):
        self.passes_run += 1
        return super()._forward(tokens_R, *rest)


@pytest.mark.parametrize("seed", [0, 1])
def test_guesses_save_passes_and_change_nothing(model, seed):
    """What it learned from a first batch changes no reply; the same again takes fewer passes."""
    plain = [sample(PaddedEngine(model), requests(seed=s), 0.1) for s in (0, seed)]
    engine = Counted(model)
    first = sample(engine, requests(seed=0), 0.1)
    without = engine.passes_run
    second = sample(engine, requests(seed=seed), 0.1)
    assert seed or engine.passes_run - without < without
    for found, wanted in zip([*first, *second], [*plain[0], *plain[1]], strict=True):
        assert found.tokens == wanted.tokens
        assert found.finish == wanted.finish
        np.testing.assert_allclose(found.logprobs, wanted.logprobs, atol=1e-4)
        np.testing.assert_allclose(found.entropies, wanted.entropies, atol=1e-4)


def test_a_resumed_engine_guesses_like_the_one_before(model):
    engine, other = Counted(model), Counted(model)
    sample(engine, requests(seed=0), 0.4)
    other.load(engine.state())
    before = engine.passes_run
    assert [c.tokens for c in sample(engine, requests(seed=1), 0.4)] == [
        c.tokens for c in sample(other, requests(seed=1), 0.4)
    ]
    assert other.passes_run == engine.passes_run - before


def gradients(model, engine, prompts, completions, temperature):
    model.zero_grad()
    logp_ST = engine.logprobs(prompts, completions, temperature)
    weight_ST = torch.linspace(-1, 1, logp_ST.numel()).view_as(logp_ST)  # no two tokens weigh alike
    (logp_ST * weight_ST).sum().backward()
    return logp_ST.detach(), {n: p.grad.clone() for n, p in model.named_parameters()}


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_scoring_and_its_gradients_agree(model, temperature):
    wanted = requests()
    prompts = [r.prompt for r in wanted]
    completions = [c.tokens for c in sample(TreeEngine(model), wanted)]
    tree, tree_grads = gradients(model, TreeEngine(model), prompts, completions, temperature)
    padded, padded_grads = gradients(model, PaddedEngine(model), prompts, completions, temperature)
    torch.testing.assert_close(tree, padded, rtol=1e-4, atol=1e-5)
    for name, gradient in padded_grads.items():
        assert (tree_grads[name] - gradient).norm() <= 1e-4 * gradient.norm(), name


def test_scoring_reproduces_the_log_probs_of_sampling(model):
    for engine in (TreeEngine(model), PaddedEngine(model)):
        wanted = requests()
        sampled = sample(engine, wanted, 0.8)
        scored = engine.logprobs([r.prompt for r in wanted], [c.tokens for c in sampled], 0.8)
        for completion, row in zip(sampled, scored.detach().numpy(), strict=True):
            n = len(completion.tokens)
            np.testing.assert_allclose(row[:n], completion.logprobs, atol=1e-4)
            assert (row[n:] == 0).all()


def test_log_probs_are_those_of_a_plain_forward_pass(model):
    """One sequence, no engine: log softmax of the model's own logits."""
    prompt, completion = [1, 2, 5], [7, 4, 3]
    logits = model(torch.tensor([prompt + completion])).logits[0].detach()
    expected = [torch.log_softmax(logits[2 + t], -1)[token].item() for t, token in enumerate(completion)]
    for engine in (TreeEngine(model), PaddedEngine(model)):
        scored = engine.logprobs([prompt], [completion], 1.0)[0].tolist()
        assert scored == pytest.approx(expected, abs=1e-5)


def test_logits_in_chunks_change_nothing(model, monkeypatch):
    wanted = requests()
    prompts = [r.prompt for r in wanted]
    completions = [c.tokens for c in sample(TreeEngine(model), wanted)]
    assert HEAD_CHUNK > 100
    whole, whole_grads = gradients(model, TreeEngine(model), prompts, completions, 1.0)
    monkeypatch.setattr("ninegrid.tree.engine.HEAD_CHUNK", 7)
    parts, part_grads = gradients(model, TreeEngine(model), prompts, completions, 1.0)
    torch.testing.assert_close(parts, whole)
    for name, gradient in whole_grads.items():
        torch.testing.assert_close(part_grads[name], gradient, rtol=1e-4, atol=1e-5)


def test_greedy_does_not_depend_on_the_batch(model):
    wanted = requests(n_samples=1, greedy=True)
    together = sample(TreeEngine(model), wanted)
    for index, request in enumerate(wanted):
        alone = sample(TreeEngine(model), [request])[0]
        padded = sample(PaddedEngine(model), [request])[0]
        assert alone.tokens == together[index].tokens == padded.tokens
    reversed_batch = sample(TreeEngine(model), wanted[::-1])[::-1]
    assert [c.tokens for c in reversed_batch] == [c.tokens for c in together]


def test_greedy_and_sampled_in_one_batch_are_what_they_are_apart(model):
    drawn, greedy = requests(n_samples=2), requests(n_samples=1, greedy=True)
    for engine in (TreeEngine(model), PaddedEngine(model)):
        mixed = sample(engine, [*drawn, *greedy])
        apart = [*sample(engine, drawn), *sample(engine, greedy)]
        assert [c.tokens for c in mixed] == [c.tokens for c in apart]


def test_samples_do_not_depend_on_the_batch(model):
    wanted = requests()
    together = sample(TreeEngine(model), wanted)
    alone = [sample(TreeEngine(model), [request])[0] for request in wanted[:8]]
    assert [c.tokens for c in alone] == [c.tokens for c in together[:8]]


def test_tree_samples_are_distributed_like_independent_ones(model):
    """4,000 three-token replies from each path on different draws: a chi-square test of equality."""
    n = 4000

    def counts(engine, seed):
        wanted = [Request([1, 2, 5], uniforms(3, seed, s)) for s in range(n)]
        replies = engine.sample(wanted, stop=STOP, max_new_tokens=3, temperature=0.7)
        return Counter(c.tokens for c in replies)

    tree, padded = counts(TreeEngine(model), "a"), counts(PaddedEngine(model), "b")
    common = [k for k in tree | padded if tree[k] + padded[k] >= 20]
    rest = [n - sum(c[k] for k in common) for c in (tree, padded)]
    table = np.array([[*(c[k] for k in common), r] for c, r in zip((tree, padded), rest, strict=True)])
    table = table[:, table.sum(0) > 0]
    assert table.shape[1] >= 10
    assert chi2_contingency(table).pvalue > 0.01


def test_passes_cover_everything_within_the_budget(model):
    wanted = requests()
    prompts = [r.prompt for r in wanted]
    completions = [c.tokens for c in sample(TreeEngine(model), wanted)]
    for engine in (TreeEngine(model), PaddedEngine(model)):
        passes = engine.passes(prompts, completions, 60)
        assert len(passes) > 1
        assert [i for p in passes for i in p.members] == list(range(len(wanted)))
        assert all(p.tokens <= 60 for p in passes)
        alone = engine.passes(prompts, completions, 1)  # nothing fits: each goes by itself
        assert [list(p.members) for p in alone] == [[i] for i in range(len(wanted))]
        assert engine.passes([], [], 60) == []


def test_inverse_transform_by_hand():
    logits = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).log()
    # Cumulative: 0.1, 0.3, 0.6, 1.0.
    draws = np.array([0.0, 0.0999, 0.1001, 0.2999, 0.3001, 0.5999, 0.6001, 1 - 1e-16])
    drawn = draw_tokens(logits, [0] * len(draws), draws, 1.0)
    assert drawn.tokens_S == [0, 0, 1, 1, 2, 2, 3, 3]
    assert drawn.logprobs_S == pytest.approx(np.log([0.1, 0.1, 0.2, 0.2, 0.3, 0.3, 0.4, 0.4]))
    # -sum p ln p = 0.1*2.302585 + 0.2*1.609438 + 0.3*1.203973 + 0.4*0.916291 = 1.279854
    assert drawn.entropies_S[0] == pytest.approx(1.279854, abs=1e-5)


def test_greedy_and_drawn_samples_may_stand_on_one_row():
    logits = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).log()
    assert draw_tokens(logits, [0, 0, 0], np.array([0.05, GREEDY, 0.15]), 1.0).tokens_S == [0, 3, 1]


def test_a_token_of_probability_zero_is_never_drawn():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf], [0.0, -torch.inf, -torch.inf]])
    drawn = draw_tokens(logits, [1, 0, 0, 1], np.array([0.0, 0.0, 1 - 1e-16, 1 - 1e-16]), 1.0)
    assert drawn.tokens_S == [0, 1, 1, 0]
    assert drawn.entropies_S.tolist() == [0.0, 0.0, 0.0, 0.0]


def test_draws_depend_on_their_key_alone():
    assert uniforms(5, "a", 1).tolist() == uniforms(5, "a", 1).tolist()
    assert uniforms(3, "a", 1).tolist() == uniforms(5, "a", 1)[:3].tolist()
    assert uniforms(5, "a", 1).tolist() != uniforms(5, "a", 2).tolist()
    assert uniforms(5, "a", 11).tolist() != uniforms(5, "a1", 1).tolist()
    assert abs(uniforms(20_000, "mean").mean() - 0.5) < 0.01


def test_the_engine_is_chosen_by_architecture_and_can_be_forced(model):
    assert choose_engine(model, EngineSettings()).name == "tree"
    assert choose_engine(model, EngineSettings(path="padded")).name == "padded"


def test_recurrent_and_sliding_layers_get_the_padded_path():
    config = Qwen3Config(**SHAPE, use_sliding_window=True, sliding_window=4, max_window_layers=1)
    assert "sliding" in obstacle(config)
    windowed = tiny(config)
    assert choose_engine(windowed, EngineSettings()).name == "padded"
    with pytest.raises(SettingsError, match=r"engine\.path = 'tree', but it has layers of type sliding"):
        choose_engine(windowed, EngineSettings(path="tree"))


@pytest.mark.slow
def test_both_paths_agree_on_smollm2(load, smollm2_dir):
    policy = load(smollm2_dir, "smollm2_135m")
    encode = lambda text: policy.tokenizer(text)["input_ids"]  # noqa: E731
    shared = "Answer with one word. The capital of France is Paris. The capital of "
    prompts = [encode(shared + country) for country in ("Italy is", "Spain is", "the United Kingdom is")]
    wanted = [Request(p, uniforms(12, i, s)) for i, p in enumerate(prompts) for s in range(3)]
    replies = [
        engine(policy.model).sample(wanted, stop=frozenset({2}), max_new_tokens=12, temperature=1.0)
        for engine in (TreeEngine, PaddedEngine)
    ]
    assert [c.tokens for c in replies[0]] == [c.tokens for c in replies[1]]
    of = [r.prompt for r in wanted]
    completions = [c.tokens for c in replies[0]]
    tree, tree_grads = gradients(policy.model, TreeEngine(policy.model), of, completions, 1.0)
    padded, padded_grads = gradients(policy.model, PaddedEngine(policy.model), of, completions, 1.0)
    torch.testing.assert_close(tree, padded, rtol=1e-4, atol=1e-4)
    for name, gradient in padded_grads.items():
        assert (tree_grads[name] - gradient).norm() <= 1e-4 * gradient.norm(), name
