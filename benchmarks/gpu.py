"""``python -m benchmarks gpu [--tiny] [--quick] [--save]``: what only a GPU can show, in one command.

In this order: the part of the test suite that needs a GPU, the preset `strong` on SmolLM2, and a few steps of
two models with random weights at real size, one shaped like Qwen3-1.7B and one like Ling-3.0-tiny.  Printed
are memory, tokens per second, and the share of the device's own matrix rate that a step reaches.

``--tiny`` runs all of it on the CPU with shapes so small that the figures mean nothing: it shows that the
command works.  Each part runs in a process of its own; this one imports no torch.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.isolated import run_piece
from benchmarks.stats import Spread
from benchmarks.subject import LEARNED, tiny
from benchmarks.tables import Report, Table, gib, percent
from ninegrid.errors import NinegridError
from ninegrid.plan.known import KNOWN, LING_3_TINY
from ninegrid.progress import say
from ninegrid.project import project_root

ABOUT = """
On {device}. Each part ran in a process of its own, under deterministic algorithms, as the stages run. Peak
memory is what torch held on the device (on a CPU, the process's). Rollout: tokens of the replies a second,
prompts not counted. Update: tokens that went through the model a second, forward and backward, optimiser
included. Share of the rate: 2 FLOPs for each weight that a token meets and token that was sampled, 6 for
each that was scored (attention scores, recomputed layers and prompts are not counted), over the best matrix
product of the same process in the same number format. The two models have random weights: they never call
the tool, so every second reply was given an advantage of 1 and the others -1.
"""
PARTS = (
    "the GPU part of the tests, the preset strong, steps of models shaped like Qwen3-1.7B and Ling-3.0-tiny"
)
QUICK_STEPS = 10


@dataclass(frozen=True)
class Shape:
    """A model with random weights, and how a few steps of it are run.

    Attributes:
        name: as in the table.
        architecture: of its transformers configuration.
        overrides: of the settings.
        steps: whose times count, after one that does not.
    """

    name: str
    architecture: Mapping[str, Any]
    overrides: Sequence[str]
    steps: int = 3


QWEN3, LING = dict(KNOWN["Qwen/Qwen3-1.7B"].config), dict(LING_3_TINY)
BF16 = ("model.dtype=bfloat16", "train=gspo", "task.view=grid", "train.optimizer=adamw_8bit")
SIZES = ("train.n_boards=4", "train.n_samples=4", "decoding.max_new_tokens=256")
SHAPES = (
    Shape("Qwen3-1.7B shape", QWEN3, (*BF16, *SIZES, "train.max_tokens_per_pass=8192")),
    Shape(
        "Ling-3.0-tiny shape",
        LING,
        (*BF16, *SIZES, "train.max_tokens_per_pass=2048", "train.gradient_checkpointing=true"),
    ),
)
SMALL = {"vocab_size": 49152, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2}
SMALL_QWEN3 = {**QWEN3, **SMALL, "num_hidden_layers": 2, "num_key_value_heads": 1, "head_dim": 16}
SMALL_LING = {
    **{**LING, **SMALL, "num_key_value_heads": 2, "num_hidden_layers": 2, "layer_group_size": 2},
    **{"moe_intermediate_size": 16, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 16},
    **{
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "n_group": 2,
    },
    **{"topk_group": 1, "head_dim": 16},
}
TINY_SIZES = ("train.n_boards=1", "train.n_samples=2", "decoding.max_new_tokens=3", "chat.worked_examples=0")
TINY_SHAPES = (
    Shape("Qwen3 shape, tiny", SMALL_QWEN3, (*BF16, *TINY_SIZES), 1),
    Shape("Ling shape, tiny", SMALL_LING, (*BF16, *TINY_SIZES, "train.gradient_checkpointing=true"), 1),
)
TINY_LOOP = ("boards.count=64", "train.steps=2", "train.n_boards=2", "train.n_samples=4", "train.rounds=1",
             "train.learning_rate=0.01", "decoding.max_new_tokens=4", "chat.worked_examples=1")  # fmt: skip
MATRIX, TINY_MATRIX = (4096, 4096, 4096), (128, 128, 128)


def main(arguments: Sequence[str]) -> int:
    """Run all parts and print their tables; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gpu", description="Test and measure on a GPU."
    )
    parser.add_argument(
        "--tiny", action="store_true", help="on the CPU, to see that it runs; figures mean nothing"
    )
    parser.add_argument(
        "--quick", action="store_true", help=f"{QUICK_STEPS} steps of `strong` instead of all"
    )
    parser.add_argument(
        "--save", action="store_true", help=f"also write the section into {results.FILE.name}"
    )
    options = parser.parse_args(arguments)
    if options.tiny and options.save:
        parser.error("--save keeps figures, and those of --tiny mean nothing")
    try:
        with tempfile.TemporaryDirectory() as folder:
            report, failed = measure(Path(folder), small=options.tiny, quick=options.quick)
    except NinegridError as error:
        say(f"benchmarks gpu: {error}")
        return 2
    except KeyboardInterrupt:
        say("benchmarks gpu: stopped")
        return 130
    print(report.text("gpu"), flush=True)
    if options.save:
        results.put(results.FILE, "gpu", report.text("gpu"))
    return 1 if failed else 0


def measure(folder: Path, *, small: bool, quick: bool) -> tuple[Report, int]:
    """All parts; returns the report and how many tests failed.

    Raises:
        NinegridError: there is no GPU, or a part did not end well.
    """
    subject = replace(tiny(folder), overrides=(), gpu=not small)
    device = None if small else run_piece("device:describe", subject).data
    if device is None and not small:
        raise NinegridError(
            f"torch sees no CUDA device here, so these were not measured: {PARTS}",
            hint="python -m benchmarks gpu --tiny shows on the CPU, with tiny shapes, that the command works",
        )
    say("benchmarks gpu: 1 of 4: the tests that need a GPU")
    counts = run_tests(folder)
    say("benchmarks gpu: 2 of 4: the preset strong")
    loop = run_piece("gpu:strong", subject, **_loop(folder, small=small, quick=quick))
    rows = []
    for number, shape in enumerate(TINY_SHAPES if small else SHAPES, start=3):
        say(f"benchmarks gpu: {number} of 4: {shape.name}")
        arguments = {"architecture": dict(shape.architecture), "overrides": list(shape.overrides)}
        steps = run_piece("gpu:steps", subject, **arguments, steps=shape.steps, matrix=_matrix(small))
        rows.append((shape.name, steps.data, steps.peak_bytes))
    about = ABOUT.format(device=device or "the CPU, with tiny shapes, whose figures mean nothing")
    tables = [
        test_table(counts),
        strong_table(loop.data, loop.peak_bytes),
        steps_table(
            [("strong, SmolLM2" if not small else "strong, tiny", loop.data, loop.peak_bytes), *rows]
        ),
    ]
    return Report("what only a GPU can show", about, tables), counts["failed"]


def run_tests(folder: Path) -> dict[str, int]:
    """Run the tests marked ``gpu`` and count them.

    Raises:
        NinegridError: pytest did not get so far as to report.
    """
    tests = project_root() / "tests"
    files = [str(path) for path in sorted(tests.glob("test_*.py")) if "mark.gpu" in path.read_text("utf-8")]
    report = folder / "tests.xml"
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-n", "0", f"--junitxml={report}", *files]
    subprocess.run(command, stdout=sys.stderr.fileno(), cwd=project_root(), check=False)
    if not report.exists():
        raise NinegridError(f"the tests did not run: {' '.join(command)}")
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    found = {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
    failed = found["failures"] + found["errors"]
    return {
        "passed": found["tests"] - failed - found["skipped"],
        "failed": failed,
        "skipped": found["skipped"],
    }


def test_table(counts: Mapping[str, int]) -> Table:
    """How the tests went."""
    head = ["tests that need a GPU", "passed", "failed", "skipped"]
    return Table(head, [["`pytest -m gpu`", *(str(counts[name]) for name in head[1:])]])


def strong_table(found: Mapping[str, Any], peak: int) -> Table:
    """What the training did to the held-out score, and what it took."""
    head = ["preset", "steps", "minutes", "score before", "after", "greedy before", "after"]
    scores = [f"{found[when][way]:+.3f}" for way in ("sampled", "greedy") for when in ("before", "after")]
    return Table(head, [["`strong`", str(len(found["steps"])), f"{found['minutes']:.1f}", *scores]])


def steps_table(rows: Sequence[tuple[str, Mapping[str, Any], int]]) -> Table:
    """Speed, memory and the share of the matrix rate of every kind of step."""
    head = [
        "steps of",
        "weights",
        "a token meets",
        "format",
        "s a step",
        "rollout tokens/s",
        "update tokens/s",
    ]
    head += ["matrix TFLOP/s", "rollout share", "update share", "peak GiB"]
    return Table(head, [_row(name, found, peak) for name, found, peak in rows])


def _row(name: str, found: Mapping[str, Any], peak: int) -> list[str]:
    steps, active = found["steps"], found["active"]
    sampled, scored = _rate(steps, "sampled", "rollout"), _rate(steps, "scored", "update")
    whole = Spread.of(step["rollout"] + step["update"] for step in steps)
    shares = [percent(flops / found["matrix"]) for flops in (2 * active * sampled, 6 * active * scored)]
    return [
        name,
        f"{found['weights'] / 1e6:,.1f} M",
        f"{active / 1e6:,.1f} M",
        found["dtype"],
        whole.text(),
        f"{sampled:,.0f}",
        f"{scored:,.0f}",
        f"{found['matrix'] / 1e12:.2f}",
        *shares,
        gib(found["gpu_peak"] or peak),
    ]


def _rate(steps: Sequence[Mapping[str, float]], tokens: str, seconds: str) -> float:
    """Tokens a second over all steps; 0 where there was nothing to do."""
    total = sum(step[seconds] for step in steps)
    return sum(step[tokens] for step in steps) / total if total else 0.0


def _matrix(small: bool) -> tuple[int, int, int]:
    return TINY_MATRIX if small else MATRIX


def _loop(folder: Path, *, small: bool, quick: bool) -> dict[str, Any]:
    """The arguments of the piece that runs `strong`."""
    overrides = ["experiment=strong", "train.checkpoint_every=0"]
    if small:
        overrides += TINY_LOOP
    elif quick:
        overrides.append(f"train.steps={QUICK_STEPS}")
    talker = str(folder / LEARNED) if small else None
    return {
        "overrides": overrides,
        "talker": talker,
        "matrix": _matrix(small),
        "folder": str(folder / "loop"),
    }
