"""Adapters and weights of few bits: what is trained, what is saved, and what comes back."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from ninegrid.chat.format import ChatSettings
from ninegrid.config import bind
from ninegrid.errors import DataError, ModelSourceError, SettingsError
from ninegrid.gspo.checkpoint import Checkpoints
from ninegrid.gspo.run import train_policy, write_training
from ninegrid.gspo.settings import TrainSettings
from ninegrid.merge import merge_policy
from ninegrid.params import compose
from ninegrid.policy.adapters import AdapterSettings, attach, is_adapted, merge
from ninegrid.policy.loading import load_policy, weights_sha256
from ninegrid.policy.needs import Needs, base_of, read_needs, write_needs
from ninegrid.policy.quantization import is_packed, unpack, weights_count
from ninegrid.policy.settings import LocalSource, ModelSettings
from ninegrid.policy.sources.local import fill
from ninegrid.reward import RewardTable
from ninegrid.settings import validate
from ninegrid.tree.settings import DecodingSettings, EngineSettings
from ninegrid.warm_start.record import Start

PLAIN = ModelSettings(name="talker", source=LocalSource("local", "unused"), device="cpu")
PACKED = replace(PLAIN, quantization="nf4")
LORA = {"method": "lora", "rank": 4, "alpha": 8.0, "targets": [], "merge": True}
PROMPT = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])


def lora(**changes):
    return bind(AdapterSettings, {**LORA, **changes}, "adapter")


def logits(policy):
    with torch.no_grad():
        return policy.model(PROMPT).logits


class Mirror:
    """Where a training's figures go."""

    def metrics(self, values, step):
        pass


@pytest.fixture
def base(talker_dir, tmp_path):
    """The talker as the model of a project."""
    return Path(shutil.copytree(talker_dir, tmp_path / "data" / "model"))


@pytest.fixture
def run(base, tictactoe, tmp_path):
    """Trains on the talker, and writes the policy beside it."""

    def trained(adapter, model=PLAIN, name="policy", **changes):
        settings = SimpleNamespace(
            model=model,
            chat=ChatSettings(worked_examples=1),
            decoding=DecodingSettings(max_new_tokens=4),
            engine=EngineSettings(threads=1),
            reward=RewardTable(dict(tictactoe.score)),
            adapter=adapter,
            train=TrainSettings(
                **{
                    **{"steps": 2, "n_boards": 4, "n_samples": 8, "learning_rate": 1e-2},
                    **{"clip_low": 0.2, "clip_high": 0.2, "checkpoint_every": 0},
                    **changes,
                }
            ),
        )
        checkpoints = Checkpoints(tmp_path / "checkpoints", name)
        start = Start(base, "none")
        result = train_policy(start, tictactoe, tictactoe.generate(8, 3), settings, checkpoints, Mirror())
        folder = base.parent / name
        write_training(result, settings, folder, base.parent / f"{name}-train")
        return result, folder

    return trained


# ---- what is trained -------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [PLAIN, PACKED], ids=["plain", "nf4"])
def test_an_adapter_adds_nothing_at_first_and_alone_can_be_trained(base, settings):
    policy = load_policy(base, settings)
    before = logits(policy)
    attach(policy.model, lora().lora, seed=1)
    assert torch.equal(logits(policy), before)
    trained = {n: p for n, p in policy.model.named_parameters() if p.requires_grad}
    assert all("lora_" in name and p.dtype == torch.float32 for name, p in trained.items())
    # An adapter of rank 4 beside a layer from a to b has 4 (a + b) weights.  In each of 2 layers of width 32:
    # q and o to 32, k and v to 16: 4 x (64 + 64 + 48 + 48) = 896; gate, up and down, 32 and 48: 3 x 4 x 80.
    assert sum(p.numel() for p in trained.values()) == 2 * (896 + 960)


def test_packed_weights_take_half_a_byte_each(base):
    plain, packed = load_policy(base, PLAIN), load_policy(base, PACKED)
    layer = packed.model.model.layers[0].mlp.up_proj
    assert is_packed(packed.model) and not is_packed(plain.model)
    assert layer.weight.numel() * layer.weight.element_size() == 32 * 48 / 2
    assert weights_count(packed.model) == weights_count(plain.model)
    assert packed.model.get_output_embeddings().weight.dtype == torch.float32


def test_packed_layers_compute_one_thing_with_a_gradient_and_without(base):
    """And the gradient is the one of the weights that they stand for."""
    policy = load_policy(base, PACKED)
    layer = policy.model.model.layers[0].mlp.up_proj
    rows = torch.randn(5, 32, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        quiet = layer(rows)
    loud = rows.clone().requires_grad_()
    out = layer(loud)
    assert torch.equal(out, quiet)
    out.square().sum().backward()
    weight = quiet.new_tensor(layer(torch.eye(32)).T.tolist())
    torch.testing.assert_close(loud.grad, 2 * (rows @ weight.T) @ weight)


def test_unpacked_layers_compute_what_packed_ones_did(base):
    policy = load_policy(base, PACKED)
    before = logits(policy)
    unpack(policy.model)
    assert not is_packed(policy.model)
    torch.testing.assert_close(logits(policy), before, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("settings", [PLAIN, PACKED], ids=["plain", "nf4"])
def test_training_moves_the_adapter_and_leaves_the_model(run, base, settings):
    result, _ = run(lora(merge=False), settings)
    model = result.agent.policy.model
    fresh = dict(load_policy(base, settings).model.named_parameters())
    kept = {n.replace(".base_layer", ""): p for n, p in model.named_parameters() if "lora_" not in n}
    assert kept.keys() == fresh.keys()
    assert all(torch.equal(kept[name], fresh[name]) for name in fresh)
    assert any(p.abs().max() > 0 for n, p in model.named_parameters() if "lora_B" in n)
    assert result.rows[0]["train/weights_changed"] > 0.1


def test_the_seed_decides_the_first_values(base):
    def first(seed):
        policy = load_policy(base, PLAIN)
        attach(policy.model, lora().lora, seed)
        return weights_sha256(policy.model)

    assert first(1) == first(1) != first(2)


def test_rank_alpha_and_targets_act(base):
    def shapes(**changes):
        policy = load_policy(base, PLAIN)
        attach(policy.model, lora(**changes).lora, 1)
        layers = dict(policy.model.named_modules())
        adapted = [name for name in layers if name.endswith("lora_A")]
        scale = layers["model.layers.0.self_attn.q_proj"].scaling["default"]
        return len(adapted), layers["model.layers.0.self_attn.q_proj"].lora_A.default.weight.shape[0], scale

    assert shapes() == (14, 4, 2.0)
    assert shapes(rank=2, alpha=1.0, targets=["q_proj", "v_proj"]) == (4, 2, 0.5)


def test_layers_are_run_again_only_when_asked(run, monkeypatch):
    """And what is learned is the same."""
    from transformers.models.llama.modeling_llama import LlamaMLP

    plain, calls = LlamaMLP.forward, []

    def counted(self, x):
        calls.append(torch.is_grad_enabled())
        return plain(self, x)

    monkeypatch.setattr(LlamaMLP, "forward", counted)
    ends, passes = [], []
    for again in (False, True):
        calls.clear()
        result, _ = run(lora(), gradient_checkpointing=again)
        ends.append(weights_sha256(result.agent.policy.model))
        passes.append(sum(calls))
    assert ends[0] == ends[1]
    assert passes[1] == 2 * passes[0] > 0


# ---- what is saved ---------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [PLAIN, PACKED], ids=["plain", "nf4"])
def test_merged_policies_are_plain_models_that_compute_the_same(run, settings):
    alone, apart = run(lora(merge=False), settings, "apart")
    _, merged = run(lora(), settings, "merged")
    # The settings still ask for packed weights: what a policy needs goes before them.
    policy = load_policy(merged, settings)
    assert not is_packed(policy.model) and not is_adapted(policy.model)
    assert read_needs(merged) == Needs("float32")
    torch.testing.assert_close(logits(policy), logits(alone.agent.policy), atol=1e-4, rtol=1e-4)
    # And so does the adapter that was saved alone: bit for bit.
    loaded = load_policy(apart, settings)
    assert torch.equal(logits(loaded), logits(alone.agent.policy))
    assert weights_sha256(loaded.model) == weights_sha256(alone.agent.policy.model)
    assert read_needs(apart).quantization == settings.quantization


def test_peft_itself_reads_the_adapter(run, base):
    from peft import PeftModel

    alone, apart = run(lora(merge=False))
    theirs = PeftModel.from_pretrained(load_policy(base, PLAIN).model, str(apart))
    with torch.no_grad():
        torch.testing.assert_close(theirs(PROMPT).logits, logits(alone.agent.policy))


def test_equal_trainings_write_equal_files(run):
    (_, one), (_, two) = run(lora(merge=False), name="one"), run(lora(merge=False), name="two")
    assert {p.name: p.read_bytes() for p in one.iterdir()} == {p.name: p.read_bytes() for p in two.iterdir()}


def test_an_adapter_without_its_model_is_refused(run, base):
    _, apart = run(lora(merge=False))
    weights = load_file(base / "model.safetensors")
    first = next(iter(weights))
    save_file({**weights, first: weights[first] + 1}, base / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DataError, match=r"adapter of another model: .*model.safetensors is [0-9a-f]{64}"):
        load_policy(apart, PLAIN)
    shutil.rmtree(base)
    with pytest.raises(DataError, match=r"is an adapter of the model in .*model: there is no folder"):
        load_policy(apart, PLAIN)


def test_a_damaged_adapter_is_refused_by_name(run):
    _, apart = run(lora(merge=False))
    kept = load_file(apart / "adapter_model.safetensors")
    lost = min(kept)
    kept.pop(lost)
    save_file(kept, apart / "adapter_model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DataError, match=f"no adapter of this model: 1 tensors are missing.*first {lost}"):
        load_policy(apart, PLAIN)


def test_merging_later_gives_a_whole_model(run, tmp_path):
    alone, apart = run(lora(merge=False), PACKED)
    target = tmp_path / "whole"
    command = [sys.executable, "-m", "ninegrid.merge"]
    done = subprocess.run([*command, apart, target], capture_output=True, text=True, check=True)
    assert "holds a whole model" in done.stdout + done.stderr
    policy = load_policy(target, PLAIN)
    torch.testing.assert_close(logits(policy), logits(alone.agent.policy), atol=1e-4, rtol=1e-4)
    # It serves as what it was trained for.
    decoding = "generation_config.json"
    assert (target / decoding).read_bytes() == (apart / decoding).read_bytes()
    with pytest.raises(DataError, match="is a whole model already"):
        merge_policy(target, tmp_path / "again")
    merge_policy(apart, target)  # what an earlier merge wrote may be written anew


@pytest.mark.parametrize("name", ["", "model", "policy", "other"])
def test_merging_replaces_nothing_but_an_earlier_merge(run, name):
    """Neither what is read nor what holds it, nor a folder of something else."""
    _, apart = run(lora(merge=False))
    data = apart.parent
    (data / "other").mkdir()
    (data / "other" / "notes.txt").write_text("mine")
    before = sorted(path.name for path in data.rglob("*"))
    with pytest.raises(DataError, match=r"what is read|no merged policy"):
        merge_policy(apart, data / name)
    assert sorted(path.name for path in data.rglob("*")) == before


def test_an_adapter_without_its_decoding_is_not_merged(run, tmp_path):
    _, apart = run(lora(merge=False))
    (apart / "generation_config.json").unlink()
    with pytest.raises(DataError, match=r"generation_config.json is missing"):
        merge_policy(apart, tmp_path / "whole")


def test_an_adapter_is_no_model_to_start_from(run, tmp_path):
    _, apart = run(lora(merge=False))
    with pytest.raises(ModelSourceError, match="holds an adapter"):
        fill(LocalSource("local", str(apart)), tmp_path, tmp_path)


def test_a_full_disk_is_the_systems_error(run, base):
    from ninegrid.policy.adapters import write_adapter

    policy = load_policy(base, PLAIN)
    attach(policy.model, lora().lora, 1)
    with pytest.raises(OSError, match="absent"):
        write_adapter(policy.model, base / "absent")


def test_bfloat16_is_merged_in_float32(base):
    settings = replace(PLAIN, dtype="bfloat16")
    policy = load_policy(base, settings)
    attach(policy.model, lora().lora, 1)
    layer = policy.model.model.layers[0].self_attn.q_proj
    assert layer.lora_A.default.weight.dtype == torch.float32
    torch.nn.init.constant_(layer.lora_B.default.weight, 0.01)
    before = layer.get_base_layer().weight.detach().float()
    a, b = (layer.get_parameter(f"lora_{x}.default.weight").detach() for x in "AB")
    merge(policy.model)
    after = policy.model.model.layers[0].self_attn.q_proj.weight
    # alpha / rank = 8 / 4
    assert torch.equal(after, (before + 2.0 * b @ a).to(torch.bfloat16))


# ---- what is refused -------------------------------------------------------------------------


def test_packed_weights_want_an_adapter():
    with pytest.raises(SettingsError, match=r"model.quantization = 'nf4'.*cannot be trained"):
        validate(compose(["model.quantization=nf4"]))
    validate(compose(["experiment=qlora"]))


@pytest.mark.parametrize("targets", [["q_porj"], ["embed_tokens"]])
def test_unfit_targets_are_named(base, targets):
    policy = load_policy(base, PLAIN)
    with pytest.raises(SettingsError, match=targets[0]):
        attach(policy.model, lora(targets=targets).lora, 1)


@pytest.mark.parametrize(
    "change", [{"rank": 0}, {"alpha": 0.0}, {"targets": ["a b"]}, {"method": "ia3"}, {"dropout": 0.1}]
)
def test_wrong_settings_are_refused(change):
    with pytest.raises(SettingsError, match="adapter." + next(iter(change))):
        lora(**change)


def test_without_an_adapter_there_is_nothing_to_set():
    with pytest.raises(SettingsError, match=r"adapter\.rank"):
        bind(AdapterSettings, {"method": "none", "rank": 4}, "adapter")


def test_a_damaged_statement_of_needs_is_refused(run):
    _, folder = run(lora())
    for key, value in (("quantization", "int3"), ("dtype", "floaty")):
        (folder / "needs.json").write_text(json.dumps({"dtype": "float32", key: value}))
        with pytest.raises(DataError, match=rf"needs.json is damaged: .*{key} = '{value}'"):
            load_policy(folder, PLAIN)


def test_needs_survive_writing(base, tmp_path):
    needs = Needs("bfloat16", "nf4", adapter=True, base=base_of(base, base.parent / "policy"))
    write_needs(tmp_path, needs)
    assert read_needs(tmp_path) == needs
    assert needs.base_folder(base.parent / "policy") == base
    assert list(needs.base.files) == ["model.safetensors"]


# ---- published weights of few bits -----------------------------------------------------------


def publish(folder, tensors, config):
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    whole = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**whole, "quantization_config": config}))


def test_published_fp8_weights_are_unpacked(base):
    """Blocks of 16 x 16 that share a scale: w = q * scale."""
    plain = load_file(base / "model.safetensors")
    packed, expected = {}, {}
    for name, w in plain.items():
        if "proj" not in name:
            packed[name] = w
            continue
        rows, columns = w.shape
        blocks = w.view(rows // 16, 16, columns // 16, 16)
        scale = blocks.abs().amax((1, 3)) / 448  # the largest float8_e4m3fn
        spread = scale.repeat_interleave(16, 0).repeat_interleave(16, 1)
        packed[name] = (w / spread).to(torch.float8_e4m3fn)
        packed[name.replace("weight", "weight_scale_inv")] = scale
        expected[name] = packed[name].float() * spread
    publish(base, packed, {"quant_method": "fp8", "weight_block_size": [16, 16]})
    check_unpacked(base, expected)


def test_published_int4_weights_are_unpacked(base):
    """Groups of 16 in a row that share a scale: eight whole numbers of -8..7 in each 32-bit word."""
    packed, expected = {}, {}
    for name, w in load_file(base / "model.safetensors").items():
        if "proj" not in name:
            packed[name] = w
            continue
        groups = w.view(w.shape[0], -1, 16)
        scale = groups.abs().amax(-1, keepdim=True) / 7
        whole = (groups / scale).round().clamp(-8, 7).to(torch.int64)
        nibbles = (whole.view(w.shape[0], -1, 8) + 8) << (4 * torch.arange(8))
        words = nibbles.sum(-1)
        signed = torch.where(words >= 2**31, words - 2**32, words)
        packed[name.replace("weight", "weight_packed")] = signed.int()
        packed[name.replace("weight", "weight_scale")] = scale[..., 0]
        packed[name.replace("weight", "weight_shape")] = torch.tensor(w.shape)
        expected[name] = (whole * scale).view(w.shape)
    weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 16}
    group = {"targets": ["Linear"], "weights": weights}
    shape = {"format": "pack-quantized", "quantization_status": "compressed", "ignore": ["lm_head"]}
    publish(base, packed, {"quant_method": "compressed-tensors", **shape, "config_groups": {"g": group}})
    check_unpacked(base, expected)


def check_unpacked(folder, expected):
    assert len(expected) == 14
    policy = load_policy(folder, PLAIN)
    loaded = dict(policy.model.named_parameters())
    for name, weight in expected.items():
        torch.testing.assert_close(loaded[name].detach(), weight)
        assert loaded[name].requires_grad
    attach(policy.model, lora().lora, 1)  # an adapter goes on top
    policy.model(PROMPT).logits.sum().backward()
    with pytest.raises(DataError, match="packed already"):
        load_policy(folder, PACKED)


def test_weights_packed_otherwise_are_refused(base):
    publish(base, load_file(base / "model.safetensors"), {"quant_method": "gptq", "bits": 4})
    with pytest.raises(DataError, match=r"quant_method = 'gptq', expected one of fp8, compressed-tensors"):
        load_policy(base, PLAIN)
