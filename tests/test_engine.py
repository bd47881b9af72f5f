"""The tree against the padded reference: same tokens, same log-probs, same gradients.

Tiny random models cover the architectures; the real SmolLM2 covers the claim.
"""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import chi2_contingency
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig

from ninegrid.errors import SettingsError
from ninegrid.tree.choice import TREE_ARCHITECTURES, choose_engine, obstacle
from ninegrid.tree.draw import GREEDY, draw_tokens, uniforms
from ninegrid.tree.engine import HEAD_CHUNK, Request
from ninegrid.tree.few_rows import few_rows
from ninegrid.tree.padded_engine import PaddedEngine
from ninegrid.tree.recompute import recomputed
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
    return tiny(AutoConfig.for_model(request.param, **SHAPE))


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


def test_a_prompt_that_goes_on_runs_what_is_new(model):
    """Without gradients: the beginning that is known is not run again, and nothing else changes."""
    start, on = [1, 2, 5, 6, 7, 8, 9, 4], [1, 2, 5, 6, 7, 8, 9, 4, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]
    engine = Counted(model)
    with torch.no_grad():
        for prompt in (start, on, start[:3], [9, 9, 9]):
            wanted = [Request(prompt, uniforms(12, "on", s)) for s in range(4)]
            before = sum(engine.tokens_run)
            found = sample(engine, wanted)
            ran = sum(engine.tokens_run) - before
            for one, other in zip(found, sample(PaddedEngine(model), wanted), strict=True):
                assert one.tokens == other.tokens
                np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-4)
            sampled = sum(len(c.tokens) for c in found)
            if prompt is on:
                assert ran <= len(on) - len(start) + 2 + 2 * sampled


class Counted(TreeEngine):
    """Counts forward passes and the tokens in them."""

    passes_run = 0

    def __init__(self, model):
        super().__init__(model)
        self.tokens_run = []

    def _forward(self, tokens_R, *rest):
        self.passes_run += 1
        self.tokens_run.append(len(tokens_R))
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


WINDOWED = {
    "gemma3_text": {
        "sliding_window_pattern": 2,
        "head_dim": 16,
        "query_pre_attn_scalar": 24,
        "final_logit_softcapping": 2.0,
    },
    "mistral": {},
    "qwen3": {"use_sliding_window": True, "max_window_layers": 1},
}
"""Architectures with layers that see a window only, some of them next to layers that see all."""


@pytest.mark.parametrize("window", [2, 3, 7, 12, 40])
@pytest.mark.parametrize("architecture", sorted(WINDOWED))
def test_windows_count_depth_and_not_places(architecture, window):
    """Windows that end in a branch, in the trunk, and beyond the first token."""
    shape = {**SHAPE, **WINDOWED[architecture], "sliding_window": window, "pad_token_id": 0}
    model = tiny(AutoConfig.for_model(architecture, **shape))
    engine = choose_engine(model, EngineSettings())
    assert engine.name == "tree"
    prompts = [[*TRUNK, *rest] for rest in ([5, 6], [5, 6], [5, 7], [8])]
    completions = [[4, 9, 7, 3], [4, 9, 8, 8, 1, 3], [6, 3], [5, 5, 5, 5, 3]]
    # Sequence by sequence through the model itself: its own masks, its own logits.
    wanted = [plain_logprobs(model, p, c) for p, c in zip(prompts, completions, strict=True)]
    for lead in ([], TRUNK[:4], TRUNK):  # a trunk from before, of which this one is a continuation
        with torch.no_grad():
            sample(engine, [Request([*lead, 2, 2], None)])
            found = engine.logprobs(prompts, completions, 1.0)
        for row, expected in zip(found, wanted, strict=True):
            torch.testing.assert_close(row[: len(expected)], expected, atol=2e-5, rtol=1e-4)
    drawn = [Request(p, uniforms(12, "window", i)) for i, p in enumerate(prompts)]
    for one, other in zip(sample(engine, drawn), sample(PaddedEngine(model), drawn), strict=True):
        assert one.tokens == other.tokens
    for request, reply in zip(drawn, sample(engine, drawn), strict=True):
        expected = plain_logprobs(model, request.prompt, reply.tokens)
        np.testing.assert_allclose(reply.logprobs, expected, atol=1e-4)
    _, tree = accumulated(model, engine, prompts, completions, 30)
    model.zero_grad()
    padded = PaddedEngine(model).logprobs(prompts, completions, 0.8)
    squares(prompts, completions)(range(len(prompts)), padded).backward()
    assert_same(tree, {n: p.grad for n, p in model.named_parameters()})


def plain_logprobs(model, prompt, completion):
    """Log softmax of the model's own logits."""
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *completion]])).logits[0]
    rows = torch.log_softmax(logits, -1)[len(prompt) - 1 : -1]
    return rows[torch.arange(len(completion)), torch.tensor(completion)]


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


def squares(prompts, completions):
    """A loss in which no two tokens weigh alike, and which needs whole replies."""

    def loss(members, new_ST):
        total = 0.0
        for row, sequence in zip(new_ST, members, strict=True):
            n = len(completions[sequence])
            total = total + (row[:n] * torch.linspace(0.5, 1 + sequence, n)).sum() ** 2
        return total

    return loss


def accumulated(model, engine, prompts, completions, budget):
    model.zero_grad()
    tokens = engine.backward(prompts, completions, 0.8, budget, squares(prompts, completions))
    return tokens, {n: p.grad.clone() for n, p in model.named_parameters()}


def assert_same(found, wanted):
    for name, gradient in wanted.items():
        assert (found[name] - gradient).norm() <= 1e-4 * gradient.norm(), name


@pytest.mark.parametrize("budget", [10_000, 40, 1])
def test_accumulated_gradients_agree_whatever_the_budget(model, budget):
    wanted = requests()
    prompts = [r.prompt for r in wanted]
    completions = [c.tokens for c in sample(PaddedEngine(model), wanted)]
    model.zero_grad()
    logp_ST = PaddedEngine(model).logprobs(prompts, completions, 0.8)
    squares(prompts, completions)(range(len(prompts)), logp_ST).backward()
    plain = {n: p.grad.clone() for n, p in model.named_parameters()}
    for engine in (TreeEngine(model), PaddedEngine(model)):
        tokens, found = accumulated(model, engine, prompts, completions, budget)
        assert_same(found, plain)
        assert tokens > 100


@pytest.mark.parametrize("prompt", [[4], [4, 5, 6]])
def test_a_single_prompt_and_one_without_a_trunk(model, prompt):
    wanted = [Request(prompt, uniforms(12, "alone", s)) for s in range(5)]
    engine = TreeEngine(model)
    sampled, padded = sample(engine, wanted), sample(PaddedEngine(model), wanted)
    assert [c.tokens for c in sampled] == [c.tokens for c in padded]
    prompts, completions = [prompt] * 5, [c.tokens for c in sampled]
    _, found = accumulated(model, engine, prompts, completions, 10_000)
    _, plain = accumulated(model, PaddedEngine(model), prompts, completions, 10_000)
    assert_same(found, plain)


TRUNK = [1, 2, 5, 6, 7, 8, 1, 2, 4, 9]


def long_requests(seed=0):
    """Prompts that share ten tokens."""
    return [
        Request([*TRUNK, *rest], uniforms(12, "long", seed, i, s))
        for i, rest in enumerate([[5, 6], [5, 7], [8]])
        for s in range(3)
    ]


def test_the_trunk_of_sampling_serves_scoring_and_is_run_once(model):
    wanted = long_requests()
    prompts = [r.prompt for r in wanted]
    engine = Counted(model)
    completions = [c.tokens for c in sample(engine, wanted)]
    assert engine.tokens_run[0] == len(TRUNK)
    before = engine.passes_run
    _, found = accumulated(model, engine, prompts, completions, 10_000)
    assert engine.passes_run == before + 1  # the branches alone
    _, plain = accumulated(model, PaddedEngine(model), prompts, completions, 10_000)
    assert_same(found, plain)


def test_a_trunk_is_kept_for_other_prompts_that_begin_with_it(model):
    engine = Counted(model)
    with torch.no_grad():
        sample(engine, long_requests())
        first = engine.passes_run
        found = sample(engine, [Request([*TRUNK[:9], 3, 3], uniforms(12, "other"))])
    assert len(TRUNK) not in engine.tokens_run[first:]
    assert (
        found[0].tokens
        == sample(PaddedEngine(model), [Request([*TRUNK[:9], 3, 3], uniforms(12, "other"))])[0].tokens
    )


def test_scoring_without_gradients_starts_from_the_kept_trunk(model):
    engine, prompt = Counted(model), [*TRUNK, 5, 6]
    completions = [[4, 3], [7, 7, 3], [4, 8, 3]]
    with torch.no_grad():
        sample(engine, [Request(prompt, None)])
        before = engine.passes_run
        found = engine.logprobs([prompt] * 3, completions, 0.7)
        # The last token of the prompt, 4 3 with 8 3 as a branch, and 7 7 3.
        assert engine.tokens_run[before:] == [1 + 4 + 3]
        plain = PaddedEngine(model).logprobs([prompt] * 3, completions, 0.7)
    torch.testing.assert_close(found, plain, atol=1e-4, rtol=0)


def multiply(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.1)


def load_over(model):
    model.load_state_dict({name: 1.1 * weight for name, weight in model.state_dict().items()})


def replace_tensors(model):
    model.load_state_dict({name: 1.1 * weight for name, weight in model.state_dict().items()}, assign=True)


@pytest.mark.parametrize("change", [multiply, load_over, replace_tensors])
@pytest.mark.parametrize("graph", [True, False])
def test_changed_weights_are_noticed(graph, change):
    """A trunk of the old weights would give the old log-probs."""
    model = tiny(LlamaConfig(**SHAPE))
    engine = TreeEngine(model)
    wanted = long_requests()
    prompts = [r.prompt for r in wanted]
    with torch.set_grad_enabled(graph):
        completions = [c.tokens for c in sample(engine, wanted)]
        change(model)
        again, padded = sample(engine, wanted), sample(PaddedEngine(model), wanted)
    assert [c.tokens for c in again] == [c.tokens for c in padded]
    assert [c.tokens for c in again] != completions
    np.testing.assert_allclose(again[0].logprobs, padded[0].logprobs, atol=1e-4)
    _, found = accumulated(model, engine, prompts, completions, 10_000)
    _, plain = accumulated(model, PaddedEngine(model), prompts, completions, 10_000)
    assert_same(found, plain)


def test_evaluation_builds_no_graph(model):
    engine = TreeEngine(model)
    with torch.no_grad():
        sample(engine, long_requests())
        kept = engine._trunks.get(TRUNK, graph=False)
    assert not kept.has_graph


def test_nothing_is_left_after_release(model):
    engine = Counted(model)
    sample(engine, long_requests())
    engine.release()
    before = engine.passes_run
    sample(engine, long_requests())
    assert engine.tokens_run[before] == len(TRUNK)


@pytest.mark.parametrize("tied", [True, False])
def test_the_padding_token_is_not_trained_as_an_input(tied):
    """As in torch: tokens of the prompt that equal the padding token add nothing to the table's gradient."""
    model = tiny(LlamaConfig(**SHAPE, pad_token_id=5, tie_word_embeddings=tied))
    prompts, completions = [[1, 5, 2], [1, 5, 4]], [(6, 3), (7, 8, 3)]
    _, found = accumulated(model, TreeEngine(model), prompts, completions, 10_000)
    _, plain = accumulated(model, PaddedEngine(model), prompts, completions, 10_000)
    assert_same(found, plain)
    if not tied:
        assert not found["model.embed_tokens.weight"][5].any()
        assert found["model.embed_tokens.weight"][1].any()


def test_frozen_embeddings_stay_without_a_gradient(model):
    weight = model.get_input_embeddings().weight
    weight.requires_grad_(False)
    try:
        model.zero_grad()
        TreeEngine(model).backward([[1, 2]], [(4, 3)], 1.0, 100, lambda members, new_ST: new_ST.sum())
        assert weight.grad is None
        assert model.model.layers[0].mlp.up_proj.weight.grad.any()
    finally:
        weight.requires_grad_(True)


@pytest.mark.parametrize("trained", ["layers.0.", "layers.1.mlp", "layers.1.self_attn.v_proj", "layers.2."])
@pytest.mark.parametrize("sampled", [True, False])
def test_a_partly_frozen_model_trains_what_is_left(trained, sampled):
    """As with adapters: part of the trunk has no graph."""
    model = tiny(LlamaConfig(**SHAPE))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(trained in name)
    wanted = long_requests()
    prompts = [r.prompt for r in wanted]
    engine = TreeEngine(model)
    completions = [c.tokens for c in sample(engine, wanted)]
    if not sampled:
        engine.release()
    gradients_of = {}
    for one in (engine, PaddedEngine(model)):
        model.zero_grad()
        one.backward(prompts, completions, 0.8, 40, squares(prompts, completions))
        gradients_of[one.name] = {n: p.grad.clone() for n, p in model.named_parameters() if p.requires_grad}
    assert_same(gradients_of["tree"], gradients_of["padded"])
    assert all(p.grad is None for p in model.parameters() if not p.requires_grad)


def test_batches_hold_what_the_budget_allows(model):
    prompts = [[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 3, 6], [9, 9]]
    # Two replies of at most 5 tokens: the first prompt takes 4 + 10, one that shares 3 tokens 1 + 10.
    tree = TreeEngine(model)
    # 14 + 11 = 25; then 14, and 2 + 10 more would be 26.
    assert tree.batches(prompts, 2, 5, 25) == [range(0, 2), range(2, 3), range(3, 4)]
    assert tree.batches(prompts, 2, 5, 26) == [range(0, 2), range(2, 4)]
    assert tree.batches(prompts, 2, 5, 36) == [range(0, 3), range(3, 4)]
    # Padded, every reply takes a row of 4 + 5 = 9 tokens: 18 a prompt.
    assert PaddedEngine(model).batches(prompts, 2, 5, 36) == [range(0, 2), range(2, 4)]
    for engine in (tree, PaddedEngine(model)):
        assert engine.batches(prompts, 2, 5, 1) == [range(i, i + 1) for i in range(4)]
        assert engine.batches([], 2, 5, 100) == []


@pytest.mark.parametrize("count", range(1, 11))
def test_few_rows_give_what_many_give(model, count):
    rows = torch.randn(1, count, 32, generator=torch.Generator().manual_seed(count))
    layer = model.model.layers[0].mlp
    wanted = layer(rows)
    with torch.no_grad(), few_rows(count, rows.device):
        torch.testing.assert_close(layer(rows), wanted)
        # A layer with a bias, and calls by name, go their usual way.
        plain = torch.nn.Linear(32, 4)
        torch.testing.assert_close(plain(rows), rows @ plain.weight.T + plain.bias)
        torch.testing.assert_close(
            torch.nn.functional.linear(input=rows, weight=plain.weight), rows @ plain.weight.T
        )


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


@pytest.mark.parametrize("vocabulary", [7, 256, 257, 1000])
def test_draws_are_those_of_one_running_sum(vocabulary):
    generator = np.random.default_rng(vocabulary)
    logits = torch.from_numpy(generator.normal(scale=3, size=(3, vocabulary))).float()
    rows, draws = generator.integers(0, 3, 500), generator.random(500)
    drawn = draw_tokens(logits, rows.tolist(), draws, 1.0)
    running = torch.softmax(logits, -1).double().cumsum(-1).numpy()
    wanted = [
        int(np.searchsorted(running[r], u * running[r][-1], side="right"))
        for r, u in zip(rows, draws, strict=True)
    ]
    # Sums in another order may differ in the last digit: a uniform that close to a border is left out.
    near = [abs(running[r] - u * running[r][-1]).min() < 1e-7 for r, u in zip(rows, draws, strict=True)]
    assert sum(near) < 5
    for token, expected, close in zip(drawn.tokens_S, wanted, near, strict=True):
        assert close or token == expected


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


@pytest.mark.parametrize("architecture", sorted(TREE_ARCHITECTURES))
def test_every_architecture_that_takes_the_tree_is_exact_on_it(architecture):
    # SmolLM3's own padding token lies beyond a vocabulary this small.
    extra = {"smollm3": {"pad_token_id": 0}, "mistral": {"sliding_window": None}}.get(architecture, {})
    model = tiny(AutoConfig.for_model(architecture, **{**SHAPE, "num_hidden_layers": 4}, **extra))
    engine = choose_engine(model, EngineSettings())
    assert engine.name == "tree"
    wanted = long_requests()
    prompts = [r.prompt for r in wanted]
    sampled, padded = sample(engine, wanted, 0.7), sample(PaddedEngine(model), wanted, 0.7)
    completions = [c.tokens for c in sampled]
    assert completions == [c.tokens for c in padded]
    np.testing.assert_allclose(sampled[0].logprobs, padded[0].logprobs, atol=1e-4)
    _, found = accumulated(model, engine, prompts, completions, 40)
    _, plain = accumulated(model, PaddedEngine(model), prompts, completions, 10_000)
    assert_same(found, plain)


def test_a_model_without_layers_to_run_again_is_refused():
    with (
        pytest.raises(SettingsError, match=r"gradient_checkpointing = True, but Linear has no layers"),
        recomputed(torch.nn.Linear(2, 2)),
    ):
        pass


def test_recurrent_layers_get_the_padded_path():
    config = AutoConfig.for_model("bailing_hybrid", num_hidden_layers=2, layer_group_size=2)
    assert obstacle(config) == "it has layers of type linear_attention"
    hybrid = SimpleNamespace(config=config)
    with pytest.raises(SettingsError, match=r"engine\.path = 'tree', but it has layers of type linear"):
        choose_engine(hybrid, EngineSettings(path="tree"))


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
