"""Llama, Qwen3, Gemma 3 and Bailing hybrid (Ling 3), tiny and random, from a folder of files to a server.

Every claim is held against the model itself, run on one sequence at a time: its own masks, its own logits.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import openai
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from ninegrid.chat.format import ChatSettings
from ninegrid.chat.parser import parse_reply
from ninegrid.config import bind
from ninegrid.gspo.checkpoint import Checkpoints
from ninegrid.gspo.settings import TrainSettings
from ninegrid.gspo.trainer import Trainer
from ninegrid.params import compose
from ninegrid.policy.agent import open_agent
from ninegrid.policy.loading import (
    load_policy,
    save_policy,
    weights_sha256,
    write_model,
    write_serving_defaults,
)
from ninegrid.policy.settings import LocalSource, ModelSettings
from ninegrid.policy.sources import fetch
from ninegrid.reward import RewardTable
from ninegrid.tree.choice import obstacle
from ninegrid.tree.draw import uniforms
from ninegrid.tree.engine import Request
from ninegrid.tree.padded_engine import PaddedEngine
from ninegrid.tree.settings import DecodingSettings, EngineSettings
from ninegrid.tree.tree_engine import TreeEngine
from tests.servers import free_port, is_served, running
from tests.talker import talker_tokenizer
from tests.test_engine import accumulated, assert_same, plain_logprobs, squares

LENGTH = 6
"""Tokens of the longest reply."""

SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "bos_token_id": None,
}
ARCHITECTURES = {
    "llama": {},
    "qwen3": {"head_dim": 16},
    # Width and scale of its heads are its own; a prompt is several windows long, and two layers see one each.
    "gemma3_text": {
        "head_dim": 16,
        "query_pre_attn_scalar": 20,
        "sliding_window": 24,
        "sliding_window_pattern": 3,
    },
    # Linear and full attention, the latter with experts.
    "bailing_hybrid": {
        "num_hidden_layers": 2,
        "layer_group_size": 2,
        "first_k_dense_replace": 1,
        "num_mtp_layers": 0,
        "num_key_value_heads": 4,
        "head_dim": 8,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 4,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "moe_intermediate_size": 16,
    },
}
ENGINES = {"bailing_hybrid": "padded"}
"""The engine that an architecture gets, if it is not the tree."""
GROUPS = ("tiny_random", "tiny_qwen3", "tiny_gemma3", "tiny_bailing_hybrid")
TRAINING = TrainSettings(
    steps=2,
    n_boards=2,
    n_samples=5,
    learning_rate=1e-2,
    clip_low=0.2,
    clip_high=0.2,
    checkpoint_every=1,
    max_tokens_per_pass=10_000,
)


def write(architecture, folder):
    """Random weights whose distributions are not flat; the tokenizer says whole calls in one token."""
    tokenizer = talker_tokenizer()
    ends = dict.fromkeys(("eos_token_id", "pad_token_id"), tokenizer.eos_token_id)
    shape = {**SHAPE, **ARCHITECTURES[architecture], **ends, "vocab_size": len(tokenizer)}
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(architecture, **shape), dtype=torch.float32)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    folder.mkdir()
    write_model(model, tokenizer, folder)
    return model


@pytest.fixture(scope="module", params=ARCHITECTURES)
def architecture(request):
    return request.param


@pytest.fixture(scope="module")
def written(architecture, tmp_path_factory):
    folder = tmp_path_factory.mktemp("architecture") / architecture
    return folder, write(architecture, folder).eval()


def opened(folder, task):
    settings = SimpleNamespace(
        model=ModelSettings(name=folder.name, source=LocalSource("local", str(folder)), device="cpu"),
        chat=ChatSettings(worked_examples=0),
        decoding=DecodingSettings(max_new_tokens=LENGTH),
        engine=EngineSettings(threads=1),
    )
    return open_agent(folder, task, settings)


@pytest.fixture(scope="module")
def agent(written, tictactoe):
    """For reading; who trains opens another."""
    return opened(written[0], tictactoe)


@pytest.fixture(scope="module")
def prompts(agent):
    """Prompts of two boards, one of them asked twice, and beginnings of different lengths."""
    one, other = (agent.chat.encode(example) for example in agent.chat.task.generate(2, 1))
    return [one, other, one, one[:-1], other[:-5], [*one, *other[-8:]]]


def engines(agent):
    """Both paths where both exist."""
    model = agent.policy.model
    return [agent.sampler.engine, *([PaddedEngine(model)] if agent.sampler.engine.name == "tree" else [])]


def test_it_loads_as_it_was_saved(agent, written, architecture, prompts):
    _, model = written
    assert type(agent.policy.model) is type(model)
    assert weights_sha256(agent.policy.model) == weights_sha256(model)
    assert torch.equal(
        plain_logprobs(agent.policy.model, prompts[0], [1, 2]), plain_logprobs(model, prompts[0], [1, 2])
    )
    assert agent.sampler.engine.name == ENGINES.get(architecture, "tree")
    assert not any(module.training for module in agent.policy.model.modules())


class Alternating:
    """A whole call or the stop token first, then odd and even ids in turn."""

    def __init__(self, vocabulary):
        self._ids = np.arange(vocabulary)

    def allowed(self, sampled):
        return self._ids % 2 == len(sampled) % 2 if sampled else self._ids >= len(self._ids) - 12


def wanted_logprobs(model, prompt, tokens, constraint):
    """Of each token in turn, from one plain run of the whole sequence."""
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 :]
    found = []
    for place, token in enumerate(tokens):
        row = logits[place]
        if constraint is not None:
            row = row.masked_fill(~torch.from_numpy(constraint.allowed(tokens[:place])), -torch.inf)
        found.append(torch.log_softmax(row, -1)[token].item())
    return found


@pytest.mark.parametrize("constrained", [False, True])
def test_replies_are_those_of_each_prompt_alone(agent, prompts, constrained):
    """Whatever is shared, copied or dropped on the way."""
    vocabulary = agent.policy.model.config.vocab_size
    stop = agent.chat.stop_ids | set(range(0, vocabulary, 5))  # lest most replies be of full length
    constraint = Alternating(vocabulary) if constrained else None
    wanted = [
        Request(prompt, uniforms(LENGTH, "alone", i, s), constraint)
        for i, prompt in enumerate(prompts)
        for s in range(2)
    ]

    def sample(engine, requests):
        return engine.sample(requests, stop=stop, max_new_tokens=LENGTH, temperature=1.0)

    drawn = [sample(engine, wanted) for engine in engines(agent)]
    assert len({len(c.tokens) for c in drawn[0]}) > 2 and len({c.tokens for c in drawn[0]}) > 5
    for replies in drawn[1:]:
        assert [c.tokens for c in replies] == [c.tokens for c in drawn[0]]
    for index, request in enumerate(wanted):
        alone = sample(engines(agent)[-1], [request])[0]
        expected = wanted_logprobs(agent.policy.model, request.prompt, alone.tokens, constraint)
        for replies in drawn:
            assert replies[index].tokens == alone.tokens
            np.testing.assert_allclose(replies[index].logprobs, expected, atol=5e-5)


def replies_to(prompts):
    """Replies of different lengths, some of which begin alike."""
    return [[1, 2, 3], [1, 2, 4, 5], [1, 2], [20, 21, 22, 23, 24], [20, 9], [7]][: len(prompts)]


def test_scores_are_those_of_each_sequence_alone(agent, prompts):
    """Padding, on the right of shorter sequences, reaches neither values nor gradients."""
    model, completions = agent.policy.model, replies_to(prompts)
    plain = PaddedEngine(model)
    model.zero_grad()
    rows = [plain.logprobs([p], [c], 0.8)[0] for p, c in zip(prompts, completions, strict=True)]
    loss = squares(prompts, completions)
    sum(loss(range(i, i + 1), row[None]) for i, row in enumerate(rows)).backward()
    wanted = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    for engine in engines(agent):
        scored = engine.logprobs(prompts, completions, 0.8)
        for found, row, completion in zip(scored, rows, completions, strict=True):
            torch.testing.assert_close(found[: len(completion)], row, atol=2e-5, rtol=1e-4)
            assert not found[len(completion) :].any()
        for budget in (250, 10_000):
            engine.release()
            _, found = accumulated(model, engine, prompts, completions, budget)
            assert_same(found, wanted)


@pytest.mark.parametrize("sampled", [False, True])
def test_recomputed_layers_give_the_same_gradient(agent, prompts, sampled):
    """Each layer is run once more in the backward pass, of scoring alone; no module changes its mode."""
    model, completions, ran = agent.policy.model, replies_to(prompts), []
    norm = model.model.layers[1].post_attention_layernorm
    handle = norm.register_forward_hook(lambda module, *_: ran.append(module.training))
    drawn = [Request(prompt, uniforms(LENGTH, "again", i)) for i, prompt in enumerate(prompts)]
    try:
        for kind in {type(engine) for engine in engines(agent)}:
            found = {}
            for again in (False, True):
                engine = kind(model, checkpoint_layers=again)
                engine.release()
                ran.clear()
                if sampled:  # the tree's trunk is then the one of sampling, with its graph
                    engine.sample(drawn, stop=agent.chat.stop_ids, max_new_tokens=2, temperature=1.0)
                sampling = len(ran)
                _, gradients = accumulated(model, engine, prompts, completions, 400)
                found[again] = (sampling, len(ran) - sampling, gradients)
            assert found[True][0] == found[False][0]
            trunk = (
                1 if sampled and kind is TreeEngine else 0
            )  # run while sampling, again in the backward pass
            assert found[True][1] == 2 * found[False][1] + trunk
            assert_same(found[True][2], found[False][2])
            assert not any(ran)
    finally:
        handle.remove()
    assert not any(module.training for module in model.modules())


def test_finished_replies_and_shared_prefixes_take_no_rows(agent, prompts):
    """In the padded engine: equal prompts one row, then one for each distinct reply that goes on."""
    model, stop = agent.policy.model, next(iter(agent.chat.stop_ids))
    rows = []
    handle = model.get_input_embeddings().register_forward_pre_hook(
        lambda _, arguments: rows.append(tuple(arguments[0].shape))
    )

    class Says:
        def __init__(self, *tokens):
            self._tokens = tokens

        def allowed(self, sampled):
            return np.arange(model.config.vocab_size) == self._tokens[len(sampled)]

    said = [(5, 6, stop), (5, 6, stop), (5, 7, 8, 9, stop), (stop,)]
    prompt, other = prompts[0], prompts[0][:-3]
    wanted = [Request(p, None, Says(*tokens)) for p in (prompt, other) for tokens in said]
    try:
        replies = PaddedEngine(model).sample(
            wanted, stop=agent.chat.stop_ids, max_new_tokens=LENGTH, temperature=1.0
        )
    finally:
        handle.remove()
    assert [c.tokens for c in replies] == 2 * said
    # Both prompts begin with all of the shorter one but its last token; the rests differ in length.  Then for
    # each prompt: token 5; 6 and 7; of these 8 alone goes on, and 9.
    shared = len(other) - 1
    assert rows == [(1, shared), (1, 1), (1, 4), (2, 1), (4, 1), (2, 1), (2, 1)]


def train(agent, examples, folder, on_step=lambda row, costs: None):
    # Random weights seldom play: outcomes that pay alike elsewhere pay differently here.
    table = RewardTable({name: float(place) for place, name in enumerate(agent.chat.task.outcomes)})
    return Trainer(agent.policy, agent.sampler, table, TRAINING, Checkpoints(folder, "run")).run(
        examples, on_step
    )


@pytest.fixture(scope="module")
def trained(written, tictactoe, tmp_path_factory):
    """A trained agent, its rows, and the folder it is saved in."""
    agent = opened(written[0], tictactoe)
    folder = tmp_path_factory.mktemp("trained")
    rows = train(agent, tictactoe.generate(8, 3), folder / "state")
    save_policy(agent.policy, folder / "policy", agent.chat.saved_tokenizer())
    write_serving_defaults(folder / "policy", 1.0)
    return agent, rows, folder / "policy"


def test_an_update_moves_the_weights(trained, agent):
    after, rows, _ = trained
    assert rows[0]["train/updates"] == 1  # else there was nothing to learn from, and this shows nothing
    assert rows[0]["train/logprob_diff"] < 1e-4
    before = dict(agent.policy.model.named_parameters())
    moved = {n for n, p in after.policy.model.named_parameters() if not torch.equal(p, before[n])}
    assert moved == set(before)


def test_a_killed_training_ends_like_one_that_was_not(trained, written, tictactoe, tmp_path):
    whole, rows, _ = trained
    examples = tictactoe.generate(8, 3)

    def killed(row, costs):
        if row["step"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(opened(written[0], tictactoe), examples, tmp_path, killed)
    agent = opened(written[0], tictactoe)
    assert train(agent, examples, tmp_path) == rows
    assert weights_sha256(agent.policy.model) == weights_sha256(whole.policy.model)


@pytest.fixture(scope="module")
def client(tmp_path_factory) -> Iterator[openai.OpenAI]:
    """A server that loads the folder that a request names: one for all architectures."""
    port = free_port()
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", "--port", str(port)]
    log = tmp_path_factory.mktemp("served") / "log"
    with (
        running(command, log, lambda: is_served(f"http://127.0.0.1:{port}/health")),
        openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


def test_the_saved_policy_is_served(client, trained, tictactoe):
    """Greedy replies are those of the engine, calls and all."""
    agent, _, folder = trained
    for example in tictactoe.generate(3, 5):
        prompt = agent.chat.encode(example)
        answer = client.chat.completions.create(
            model=str(folder),
            messages=agent.chat.messages(example),
            tools=list(tictactoe.tools),
            temperature=0,
            max_tokens=LENGTH,
        )
        reply = agent.sampler.engine.sample(
            [Request(prompt, None)], stop=agent.chat.stop_ids, max_new_tokens=LENGTH, temperature=1.0
        )[0]
        calls = [
            (call.name, dict(call.arguments)) for call in parse_reply(agent.chat.decode(reply.tokens)).calls
        ]
        heard = answer.choices[0].message.tool_calls or []
        assert [(call.function.name, json.loads(call.function.arguments)) for call in heard] == calls
        assert answer.usage.prompt_tokens == len(prompt)
        assert answer.usage.completion_tokens == len(reply.tokens)


@pytest.mark.parametrize("group", GROUPS)
def test_the_model_groups_are_what_they_say(group, tiny_dir, tmp_path):
    """Built with the real tokenizer, taken from a folder here."""
    raw = compose([f"model={group}"])["model"]
    raw["source"]["tokenizer"] = {"kind": "local", "path": str(tiny_dir)}
    settings = bind(ModelSettings, raw, "model")
    fetch(settings, tmp_path / group, tmp_path / "downloads")
    config = load_policy(tmp_path / group, settings).model.config
    kinds = set(getattr(config, "layer_types", ["full_attention"]))
    if group == "tiny_gemma3":
        assert kinds == {"full_attention", "sliding_attention"}
        assert config.sliding_window < 100  # a prompt has several hundred tokens
    elif group == "tiny_bailing_hybrid":
        assert kinds == {"full_attention", "linear_attention"}
        assert set(config.mlp_layer_types) == {"dense", "sparse"}
        assert "linear_attention" in obstacle(config)
    else:
        assert kinds == {"full_attention"}
    assert group == "tiny_bailing_hybrid" or obstacle(config) is None
