"""`python -m benchmarks gpu`: its arithmetic by hand, and all of it on the CPU with tiny shapes."""

import re
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks import gpu, results
from benchmarks.pieces.gpu import _alternating, active_weights
from ninegrid.params import compose
from ninegrid.settings import validate
from tests.test_benchmarks import _number, _sections, _tables, command


def test_rates_and_shares_by_hand():
    found = {
        "weights": 2e9,
        "active": 1e9,
        "dtype": "bfloat16",
        "gpu_peak": 3 * 2**30,
        "matrix": 1e14,
        "steps": [
            {"rollout": 1.0, "update": 3.0, "sampled": 1500, "scored": 9000},
            {"rollout": 3.0, "update": 1.0, "sampled": 500, "scored": 3000},
        ],
    }
    (row,) = gpu.steps_table([("a model", found, 1)]).rows
    # 2000 tokens in 4 s; 12000 in 4 s.  2 x 1e9 x 500 = 1e12 of 1e14; 6 x 1e9 x 3000 = 1.8e13 of 1e14.
    assert row[:4] == ["a model", "2,000.0 M", "1,000.0 M", "bfloat16"]
    assert row[4:] == ["4.00 (4.00–4.00)", "500", "3,000", "100.00", "1%", "18%", "3.00"]
    # Without a GPU the process's peak counts, and an update in which nothing was scored has no rate.
    idle = {**found, "gpu_peak": None, "steps": [{"rollout": 1.0, "update": 0.0, "sampled": 5, "scored": 0}]}
    (row,) = gpu.steps_table([("a model", idle, 2**29)]).rows
    assert row[6] == "0" and row[-1] == "0.50"


@pytest.mark.parametrize(("tied", "met"), [(True, 40), (False, 40)])
def test_a_token_meets_some_experts_and_no_embedding(tied, met):
    # Head 20, attention 12, four experts of 4 of which two are chosen: 20 + 12 + 2 x 4 = 40.
    head = torch.nn.Parameter(torch.zeros(5, 4))
    table = head if tied else torch.nn.Parameter(torch.zeros(5, 4))
    named = {"embed": table, "attention": torch.nn.Parameter(torch.zeros(12))}
    named["mlp.experts.up"] = torch.nn.Parameter(torch.zeros(4, 4))
    if not tied:
        named["head"] = head
    model = SimpleNamespace(
        config=SimpleNamespace(num_experts=4, num_experts_per_tok=2),
        get_output_embeddings=lambda: SimpleNamespace(weight=head),
        get_input_embeddings=lambda: SimpleNamespace(weight=table),
        named_parameters=lambda: named.items(),
    )
    assert active_weights(model) == met


def test_the_real_shapes_have_the_weights_of_their_models():
    """In billions, without a device: Qwen3-1.7B has 1.72 with its tied table; Ling-3.0-tiny 7.9."""
    counts = []
    for shape in gpu.SHAPES:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**shape.architecture))
        counts.append((sum(p.numel() for p in model.parameters()) / 1e9, active_weights(model) / 1e9))
        validate(compose(list(shape.overrides)))
    (qwen, qwen_met), (ling, ling_met) = counts
    assert qwen == pytest.approx(1.72, abs=0.01) and qwen_met == qwen
    assert ling == pytest.approx(7.9, abs=0.05) and 0.9 < ling_met < 1.3  # published with the embedding


def test_made_up_advantages_teach_every_board():
    batch = _alternating([[object()] * 3, [object()] * 3])
    assert batch.advantages.tolist() == [[1, -1, 1]] * 2
    assert batch.informative.all()
    assert [credit.tolist() for credit in batch.credit[1]] == [[1.0], [-1.0], [1.0]]


def test_the_section_is_kept_beside_those_of_another_machine(tmp_path):
    file = tmp_path / "RESULTS.md"
    file.write_text("# Benchmarks\n\nMachine: here.\n\n## step: one\n\ntext\n")
    results.put(file, "gpu", "## gpu: first\n\nold\n")
    results.put(file, "gpu", "## gpu: second\n\nnew\n")
    assert (
        file.read_text()
        == "# Benchmarks\n\nMachine: here.\n\n## step: one\n\ntext\n\n## gpu: second\n\nnew\n"
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, and this would measure for an hour")
def test_without_a_gpu_one_message_says_what_was_not_measured():
    result = command("gpu")
    assert result.returncode == 2
    assert result.stdout == ""
    said = result.stderr
    assert re.match(r"benchmarks gpu: torch sees no CUDA device here, so these were not measured: ", said)
    for part in ("tests", "strong", "Qwen3-1.7B", "Ling-3.0-tiny", "python -m benchmarks gpu --tiny"):
        assert part in said
    assert "Traceback" not in said


def test_figures_that_mean_nothing_are_not_kept():
    result = command("gpu", "--tiny", "--save")
    assert result.returncode == 2
    assert "those of --tiny mean nothing" in result.stderr


@pytest.mark.slow
def test_the_tiny_run_does_every_part():
    before = results.FILE.read_bytes()
    result = command("gpu", "--tiny")
    assert result.returncode == 0, result.stderr
    assert results.FILE.read_bytes() == before
    counts, preset, steps = _tables(_sections(result.stdout)["gpu"])
    ran, idle = ("passed", "skipped") if torch.cuda.is_available() else ("skipped", "passed")
    assert int(counts[0][ran]) > 10 and counts[0][idle] == counts[0]["failed"] == "0"
    assert preset[0]["steps"] == "2"
    assert [row["steps of"] for row in steps] == ["strong, tiny", "Qwen3 shape, tiny", "Ling shape, tiny"]
    for row in steps:
        for column in ("rollout tokens/s", "update tokens/s", "matrix TFLOP/s", "peak GiB"):
            assert _number(row[column].replace(",", "")) >= (0 if column == "matrix TFLOP/s" else 0.01), row
    # The embedding of 49,152 x 32 is apart from the head in Ling's shape, and six of its eight experts rest.
    weights, met = (_number(steps[2][column]) for column in ("weights", "a token meets"))
    assert met < weights - 1.5
