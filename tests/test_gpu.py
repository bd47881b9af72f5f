"""What must hold on a GPU too.  Each test runs on the CPU in the ordinary suite; `pytest -m gpu` is for CUDA.

Where there is no CUDA device, its variants are skipped.
"""

import copy
import hashlib

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM

from ninegrid.gspo.optimizer import make_optimizer, step_with_change
from ninegrid.gspo.settings import TrainSettings
from ninegrid.policy.adapters import Lora, attach
from ninegrid.policy.quantization import loading_config, run_unpacked
from ninegrid.tree import engine as engine_module
from ninegrid.tree.choice import choose_engine
from ninegrid.tree.draw import draw_tokens, uniforms
from ninegrid.tree.engine import Request
from ninegrid.tree.padded_engine import PaddedEngine
from ninegrid.tree.scan import by_doubling, sum_in_order
from ninegrid.tree.settings import EngineSettings
from ninegrid.tree.tree_engine import TreeEngine

CUDA = pytest.param(
    "cuda",
    marks=[
        pytest.mark.gpu,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device here"),
    ],
)
on_both = pytest.mark.parametrize("device", ["cpu", CUDA])

STOP = frozenset({3})
LLAMA = {
    "vocab_size": 600,  # more than one span of the vocabulary that a draw looks at
    "hidden_size": 64,
    "intermediate_size": 128,  # packed weights come in blocks of 64
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
BAILING = {
    "vocab_size": 600,
    "hidden_size": 32,
    "intermediate_size": 48,
    "moe_intermediate_size": 16,
    "num_hidden_layers": 3,
    "layer_group_size": 3,  # two layers of linear attention, then one of full attention
    "first_k_dense_replace": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
    "num_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "pad_token_id": 0,
    "eos_token_id": 3,
}
PROMPTS = [[1, 2, 5, 6], [1, 2, 5, 7, 8], [1, 2], [1, 2, 5, 6]]


@pytest.fixture(autouse=True)
def deterministic(monkeypatch):
    """As the stages run: an operation that CUDA cannot repeat exactly is an error."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(before)


def make(device, dtype=torch.float32, model_type="llama", shape=LLAMA):
    torch.manual_seed(0)  # drawn on the CPU, so that both devices get the same weights
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **shape), dtype=torch.float32)
    for parameter in model.parameters():  # spread the logits, so that the distribution is not flat
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    return model.to(device=device, dtype=dtype).eval()


def sample(engine, n=4):
    wanted = [Request(p, uniforms(8, "gpu", i, s)) for i, p in enumerate(PROMPTS) for s in range(n)]
    said = engine.sample(wanted, stop=STOP, max_new_tokens=8, temperature=1.0)
    return [r.prompt for r in wanted], said


def weighted(members, new_ST):
    """A loss in which no two tokens weigh alike, made where the log-probs are."""
    weight = torch.linspace(-1, 1, new_ST.numel(), device=new_ST.device).view_as(new_ST)
    return (new_ST * weight).sum() * (1 + members.start)


def gradients(model, engine, prompts, completions, budget=10_000):
    model.zero_grad(set_to_none=True)
    engine.backward(prompts, completions, 1.0, budget, weighted)
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


@on_both
def test_the_tree_says_and_learns_what_the_padded_batch_does(device):
    model = make(device)
    prompts, tree = sample(TreeEngine(model))
    _, padded = sample(PaddedEngine(model))
    assert [c.tokens for c in tree] == [c.tokens for c in padded]
    assert len({c.tokens for c in tree}) > 8
    completions = [c.tokens for c in tree]
    found = gradients(model, TreeEngine(model), prompts, completions)
    for name, gradient in gradients(model, PaddedEngine(model), prompts, completions).items():
        assert (found[name] - gradient).norm() <= 1e-4 * gradient.norm(), name


@on_both
@pytest.mark.parametrize("kind", ["llama", "bailing_hybrid"])
def test_bfloat16_scores_what_it_sampled(device, kind):
    """One number format in sampling and scoring, but other shapes: the difference that the ratio starts from.

    0.1 nats at a token, 0.02 on average; a reply's ratio takes the mean over its tokens.
    """
    model = make(device, torch.bfloat16, kind, LLAMA if kind == "llama" else BAILING)
    engine = choose_engine(model, EngineSettings())
    prompts, said = sample(engine)
    with torch.no_grad():
        scored = engine.logprobs(prompts, [c.tokens for c in said], 1.0)
    assert scored.dtype == torch.float32  # the ratio is formed from these
    rows = scored.cpu().numpy()
    differences = np.concatenate(
        [row[: len(c.tokens)] - c.logprobs for row, c in zip(rows, said, strict=True)]
    )
    assert np.abs(differences).max() < 0.1
    assert np.abs(differences).mean() < 0.02


@on_both
def test_the_same_step_again_gives_the_same_bytes(device):
    def stepped():
        model = make(device)
        engine = TreeEngine(model)
        prompts, said = sample(engine)
        engine.backward(prompts, [c.tokens for c in said], 1.0, 30, weighted)
        parameters = [p for p in model.parameters() if p.grad is not None]
        make_optimizer(parameters, TrainSettings(learning_rate=1e-3)).step()
        whole = hashlib.sha256()
        for parameter in model.parameters():
            whole.update(parameter.detach().cpu().numpy().tobytes())
        return whole.hexdigest(), [c.tokens for c in said]

    assert stepped() == stepped()


@on_both
@pytest.mark.parametrize("name", ["adamw", "adamw_8bit", "paged_adamw", "paged_adamw_8bit"])
def test_the_first_step_of_each_optimiser_is_one_learning_rate_long(name, device):
    # Adam's first step: m = (1 - b1) g and v = (1 - b2) g^2, both unbiased: lr * g / |g|.
    weight = torch.nn.Parameter(torch.full((64, 128), 2.0, device=device))
    settings = TrainSettings(optimizer=name, learning_rate=0.25)
    optimizer = make_optimizer([weight], settings)
    sign = torch.where(torch.arange(128, device=device) % 2 == 0, 1.0, -1.0)
    weight.grad = (0.5 * sign).expand(64, 128).clone()
    step_with_change(optimizer, [weight])
    # 8-bit state keeps the largest value of a block exactly, and here all are as large: 2 -+ 0.25.
    torch.testing.assert_close(weight.detach(), (2.0 - 0.25 * sign).expand(64, 128), atol=2e-3, rtol=0)


@on_both
def test_an_adapter_beside_weights_of_four_bits_takes_a_step(device, tmp_path):
    """Sampled and scored with the packed weights, which stay as they are; the adapter moves off zero."""
    make("cpu").save_pretrained(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(
        tmp_path,
        dtype=torch.bfloat16,
        device_map={"": device},
        quantization_config=loading_config("nf4", torch.bfloat16),
    ).eval()
    run_unpacked(model)
    attach(model, Lora(method="lora", rank=4, alpha=8.0, targets=(), merge=True), seed=1)
    engine = choose_engine(model, EngineSettings())
    prompts, said = sample(engine)
    trained = [p for p in model.parameters() if p.requires_grad]
    frozen = {n: p.detach().clone() for n, p in model.named_parameters() if not p.requires_grad}
    engine.backward(prompts, [c.tokens for c in said], 1.0, 60, weighted)
    change = step_with_change(make_optimizer(trained, TrainSettings(learning_rate=1e-3)), trained)
    # B begins at zero, and Adam's first step is one learning rate long whatever the gradient is.
    outer = [p for n, p in model.named_parameters() if "lora_B" in n]
    assert change.relative > 0 and outer
    for weights in outer:
        torch.testing.assert_close(weights.detach().abs().max().item(), 1e-3, atol=1e-5, rtol=0)
    for name, weights in model.named_parameters():
        if name in frozen:
            assert torch.equal(weights, frozen[name]), name
    with torch.no_grad():
        after = engine.logprobs(prompts, [c.tokens for c in said], 1.0)
    assert torch.isfinite(after).all()


class HostReads(TorchDispatchMode):
    """Collects the operations for which the host would wait for a GPU."""

    READS = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "_unique2")

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        masks = name in ("index", "index_put", "_index_put_impl_") and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        )
        if name in self.READS or masks:
            self.found.append(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("chunk", [256, 7])
def test_scoring_reads_nothing_back(chunk, monkeypatch):
    """On the CPU, by the operations: forward and backward, logits in one chunk or in many.

    Not seen here: the copies of the layout to a device, and the one list of counts that chunks need.
    """
    monkeypatch.setattr(engine_module, "HEAD_CHUNK", chunk)
    model = make("cpu")
    engine = TreeEngine(model)
    prompts, said = sample(engine)
    with HostReads() as host:
        passes = engine.backward(prompts, [c.tokens for c in said], 1.0, 60, weighted)
    assert passes > 60
    assert host.found == []
    with HostReads() as host:
        float(torch.ones(()))
    assert host.found == ["_local_scalar_dense"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device here")
@pytest.mark.parametrize("chunk", [256, 7])
def test_the_backward_pass_never_waits_for_the_gpu(chunk, monkeypatch):
    """CUDA's own check, from the loss to the last gradient; before, the layout is copied there."""
    monkeypatch.setattr(engine_module, "HEAD_CHUNK", chunk)
    model = make("cuda")
    engine = TreeEngine(model)
    prompts, said = sample(engine)
    engine.release()

    def loss(members, new_ST):
        value = weighted(members, new_ST)
        torch.cuda.set_sync_debug_mode("error")
        return value

    try:
        engine.backward(prompts, [c.tokens for c in said], 1.0, 10_000, loss)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(p.grad is not None for p in model.parameters())


@on_both
@pytest.mark.parametrize("width", [1, 2, 7, 256])
def test_sums_by_doubling_are_running_sums(device, width):
    values = torch.rand(3, width, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(width))
    found = by_doubling(values.to(device), 1).cpu()
    torch.testing.assert_close(found, torch.from_numpy(np.cumsum(values.numpy(), axis=1)))


@on_both
def test_draws_are_the_same_on_every_device(device):
    logits = torch.randn(4, 600, generator=torch.Generator().manual_seed(1))
    uniform_S = np.linspace(0.001, 0.999, 64)
    row_S = [i % 4 for i in range(64)]
    drawn = draw_tokens(logits.to(device), row_S, uniform_S, 0.8)
    # The definition, in float64 and without spans: the first token whose cumulative probability is beyond.
    probability = torch.softmax(logits.double() / 0.8, -1).numpy()
    wanted = [
        int(np.searchsorted(np.cumsum(probability[r]), u, side="right"))
        for r, u in zip(row_S, uniform_S, strict=True)
    ]
    assert drawn.tokens_S == wanted
    np.testing.assert_allclose(drawn.logprobs_S, np.log(probability[row_S, wanted]), atol=1e-4)


@on_both
@pytest.mark.parametrize("recompute", [False, True])
def test_linear_attention_with_sums_in_order_is_what_it_was(device, recompute, monkeypatch):
    """On CUDA it would not run at all without; with gradient checkpointing a layer runs again."""
    seen = []

    def counted(values, dim):  # on the CPU too
        seen.append(values.shape[dim])
        return by_doubling(values, dim)

    monkeypatch.setattr("ninegrid.tree.scan.running_sum", counted)
    plain = make("cpu", model_type="bailing_hybrid", shape=BAILING)
    ordered = copy.deepcopy(plain).to(device)
    assert sum_in_order(ordered) == 2
    if recompute:
        ordered.activation_checkpointing_enable({"use_reentrant": False})
        ordered.train()
    prompts, completions = [[1, 2, 5, 6], [1, 2, 7]], [(8, 9, 3), (4, 3)]
    wanted = gradients(plain, PaddedEngine(plain), prompts, completions)
    found = gradients(ordered, PaddedEngine(ordered), prompts, completions)
    for name, gradient in wanted.items():
        assert (found[name].cpu() - gradient).norm() <= 1e-3 * gradient.norm() + 1e-7, name
    assert seen == [64, 64] * (2 if recompute else 1)  # two layers, in chunks of 64 tokens
    assert torch.overrides._get_current_function_mode_stack() == []
