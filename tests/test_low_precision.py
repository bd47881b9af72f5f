"""Weights of 16 bits: small steps arrive, on average or in the long run, and resumed runs go on alike."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from ninegrid.chat.format import ChatSettings
from ninegrid.errors import SettingsError
from ninegrid.gspo.checkpoint import Checkpoints
from ninegrid.gspo.low_precision import StandIns, round_stochastically
from ninegrid.gspo.optimizer import make_optimizer, step_with_change
from ninegrid.gspo.settings import TrainSettings
from ninegrid.gspo.trainer import Trainer
from ninegrid.gspo.update import Updater, UpdateStats
from ninegrid.policy.adapters import Lora, attach
from ninegrid.policy.agent import open_agent
from ninegrid.policy.loading import weights_sha256
from ninegrid.policy.settings import LocalSource, ModelSettings
from ninegrid.reward import RewardTable
from ninegrid.tree.settings import DecodingSettings, EngineSettings

SETTINGS = TrainSettings(learning_rate=1e-3)
OPTIMIZERS = ("adamw", "adamw_8bit", "paged_adamw", "paged_adamw_8bit")


def weight(value, size=1, dtype=torch.bfloat16):
    return torch.nn.Parameter(torch.full((size,), value, dtype=dtype))


def steps(parameter, settings, count):
    """``count`` steps down a slope of 1: AdamW's is then the learning rate, each time."""
    optimizer = make_optimizer([parameter], settings)
    changes = []
    for _ in range(count):
        parameter.grad = torch.ones_like(parameter)
        changes.append(step_with_change(optimizer, [parameter]))
    return changes


# ---- rounding at random ----------------------------------------------------------------------


def test_what_bfloat16_can_hold_stays():
    values = torch.tensor([0.0, 1.0, -1.0, 0.5, 3.0, 2.0**-20, -1.0078125])
    for seed in range(20):
        rounded = round_stochastically(values, torch.Generator().manual_seed(seed))
        assert torch.equal(rounded.float(), values)


def test_what_is_no_number_stays_none():
    # The bits of nan as CUDA writes it, nan as the CPU does, infinity and its negative.
    bits = torch.tensor([0x7FFFFFFF, 0x7FC00000, 0x7F800000, -0x00800000], dtype=torch.int32)
    rounded = round_stochastically(bits.view(torch.float32), torch.Generator().manual_seed(0))
    assert rounded.isnan().tolist() == [True, True, False, False]
    assert rounded[2:].tolist() == [float("inf"), float("-inf")]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_quarter_of_the_way_is_gone_a_quarter_of_the_time(sign):
    # Between 1 and 2, bfloat16 numbers are 2^-7 apart; 2^-9 is a quarter of that.
    values = sign * torch.full((100_000,), 1 + 2.0**-9)
    rounded = round_stochastically(values, torch.Generator().manual_seed(0)).float()
    assert set(rounded.tolist()) == {sign * 1.0, sign * (1 + 2.0**-7)}
    up = (rounded != sign).float().mean()
    assert up == pytest.approx(0.25, abs=0.006)  # 4 standard errors of sqrt(0.25 * 0.75 / 100,000) = 0.0014


# ---- steps that are smaller than the weights' format tells apart -------------------------------


def test_nearest_loses_them():
    # Below 1, bfloat16 numbers are 2^-8 = 0.0039 apart: 0.999 is rounded back to 1.
    parameter = weight(1.0)
    changes = steps(parameter, replace(SETTINGS, weight_update="nearest"), 10)
    assert parameter.item() == 1.0
    assert [change.share for change in changes] == [0.0] * 10


def test_masters_add_them_up():
    # After n steps the master is 1 - 0.001 n; the nearest bfloat16 is 1 up to a half of 2^-8 = 0.00195.
    parameter = weight(1.0)
    changes = steps(parameter, replace(SETTINGS, weight_update="master"), 2)
    assert [change.share for change in changes] == [0.0, 1.0]
    assert parameter.item() == 1 - 2**-8


def test_rounding_at_random_moves_the_right_distance_on_average():
    # One step of 0.001 is 0.256 of 2^-8: about a quarter of the weights move, by 2^-8.
    parameter = weight(1.0, size=100_000)
    (change,) = steps(parameter, replace(SETTINGS, weight_update="stochastic"), 1)
    moved = (parameter != 1).float().mean().item()
    assert moved == pytest.approx(0.256, abs=0.006)
    assert change.share == pytest.approx(0.256, abs=0.03)
    assert (1 - parameter.float().mean().item()) == pytest.approx(0.001, rel=0.03)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("how", ["master", "stochastic"])
def test_every_optimiser_moves_bfloat16_weights(name, how):
    # Large enough for 8-bit state, which bitsandbytes keeps from 4,096 values on.
    parameter = weight(1.0, size=8192)
    settings = replace(SETTINGS, optimizer=name, weight_update=how, learning_rate=0.01)
    steps(parameter, settings, 3)
    assert 1 - parameter.float().mean().item() == pytest.approx(0.03, rel=0.06)


def test_paged_state_is_the_same_numbers():
    ends = {}
    for name in OPTIMIZERS:
        parameter = torch.nn.Parameter(torch.linspace(-1, 1, 8192))
        optimizer = make_optimizer([parameter], replace(SETTINGS, optimizer=name))
        for step in range(3):
            parameter.grad = torch.linspace(1, -2, 8192) * (step + 1)
            optimizer.step()
        ends[name] = parameter.detach()
    assert torch.equal(ends["adamw_8bit"], ends["paged_adamw_8bit"])
    torch.testing.assert_close(ends["adamw"], ends["paged_adamw"])
    torch.testing.assert_close(ends["adamw"], ends["adamw_8bit"], atol=2e-3, rtol=0)  # one step's length
    assert not torch.equal(ends["adamw"], ends["adamw_8bit"])


def test_float32_weights_among_others_are_moved_directly():
    low, full = weight(1.0), weight(1.0, dtype=torch.float32)
    for how in ("master", "stochastic"):
        optimizer = make_optimizer([low, full], replace(SETTINGS, weight_update=how))
        low.grad, full.grad = torch.ones_like(low), torch.ones_like(full)
        optimizer.step()
    assert full.item() == pytest.approx(1 - 0.002)


def test_weights_without_a_gradient_stay():
    one, other = weight(1.0), weight(1.0)
    for how in ("master", "stochastic"):
        optimizer = make_optimizer([one, other], replace(SETTINGS, weight_update=how, learning_rate=0.1))
        one.grad, other.grad = torch.ones_like(one), None
        optimizer.step()
    assert one.item() < 1
    assert other.item() == 1


def test_float32_weights_need_no_stand_ins():
    assert not isinstance(make_optimizer([weight(1.0, dtype=torch.float32)], SETTINGS), StandIns)


def test_float16_cannot_be_rounded_at_random():
    settings = replace(SETTINGS, weight_update="stochastic")
    with pytest.raises(
        SettingsError, match=r"'stochastic' goes with bfloat16 weights; these are torch.float16"
    ):
        make_optimizer([weight(1.0, dtype=torch.float16)], settings)
    parameter = weight(1.0, dtype=torch.float16)
    steps(parameter, replace(settings, weight_update="master", learning_rate=0.1), 1)
    assert parameter.item() == pytest.approx(0.9, abs=1e-3)


# ---- resumed runs ------------------------------------------------------------------------------

RECIPES = {
    "bf16-master": ("bfloat16", "none", None, {}),
    "bf16-stochastic-8bit": (
        "bfloat16",
        "none",
        None,
        {"optimizer": "adamw_8bit", "weight_update": "stochastic"},
    ),
    "lora": ("float32", "none", "lora", {}),
    "qlora-8bit": ("float32", "nf4", "lora", {"optimizer": "paged_adamw_8bit"}),
}


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_a_resumed_run_ends_with_the_same_weights(talker_dir, tictactoe, tmp_path, recipe):
    """Killed after the second of four steps, whatever is trained and however it is moved."""
    dtype, quantization, adapter, changes = recipe
    model = ModelSettings(
        name="talker",
        source=LocalSource("local", str(talker_dir)),
        device="cpu",
        dtype=dtype,
        quantization=quantization,
    )
    settings = SimpleNamespace(
        model=model,
        chat=ChatSettings(worked_examples=1),
        decoding=DecodingSettings(max_new_tokens=4),
        engine=EngineSettings(threads=1),
    )
    train = TrainSettings(
        steps=4, n_boards=4, n_samples=8, learning_rate=1e-2, clip_low=0.2, clip_high=0.2, checkpoint_every=2
    )
    train = replace(train, **changes)

    def prepare(policy):
        if adapter is not None:
            attach(policy.model, Lora(method="lora", rank=4, alpha=8.0, targets=(), merge=False), 1)

    def run(folder, stop_after=None):
        agent = open_agent(talker_dir, tictactoe, settings, prepare=prepare)
        checkpoints = Checkpoints(tmp_path / folder, "run")
        trainer = Trainer(agent.policy, agent.sampler, RewardTable(dict(tictactoe.score)), train, checkpoints)

        def on_step(row, costs):
            if row["step"] == stop_after and costs:
                raise KeyboardInterrupt

        try:
            trainer.run(tictactoe.generate(16, 3), on_step)
        except KeyboardInterrupt:
            return None
        return weights_sha256(agent.policy.model)

    whole = run("whole")
    assert run("cut", stop_after=3) is None
    assert (tmp_path / "cut" / "run" / "checkpoint.pt").exists()
    assert run("cut") == whole


def test_gradients_are_let_go_of_one_after_the_other(talker_dir, tictactoe):
    """While the optimiser moves one weight, those before it hold none, and no list keeps any alive."""
    import weakref

    settings = SimpleNamespace(
        model=ModelSettings(
            name="talker", source=LocalSource("local", str(talker_dir)), device="cpu", dtype="bfloat16"
        ),
        chat=ChatSettings(worked_examples=1),
        decoding=DecodingSettings(max_new_tokens=4),
        engine=EngineSettings(threads=1),
    )
    agent = open_agent(talker_dir, tictactoe, settings)
    weights = list(agent.policy.model.parameters())
    optimizer = make_optimizer(weights, SETTINGS)
    for parameter in weights:
        parameter.grad = torch.ones_like(parameter)
    alive = [weakref.ref(parameter.grad) for parameter in weights]
    counts = []
    inner = optimizer._optimizer.step

    def counted():
        counts.append(sum(ref() is not None for ref in alive))
        inner()

    optimizer._optimizer.step = counted
    updater = Updater(agent.policy.model, agent.sampler.engine, optimizer, SETTINGS, agent.sampler.decoding)
    updater._take_step([], UpdateStats())
    n = len(weights)
    assert counts == [n, *range(n - 1, -1, -1)]
