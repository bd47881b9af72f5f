"""A small finished loop for the play page: two tiny models, boards, and both evaluations, truly measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from ninegrid.app import read_sections
from ninegrid.evaluation.measure import measure
from ninegrid.outputs import write_json
from ninegrid.params import compose
from ninegrid.policy.agent import open_agent
from ninegrid.policy.loading import weights_sha256
from ninegrid.settings import Settings
from ninegrid.tasks.loading import load_task
from ninegrid.tasks.tictactoe import TicTacToe
from ninegrid.tasks.tictactoe.board import SQUARES
from tests.talker import REPLIES, write_talker

CALLS = (f'{{"name":"choose_square","arguments":{{"square":{square}}}}}' for square in SQUARES)
WRITTEN = (*(f"<tool_call>{call}</tool_call>" for call in CALLS), *REPLIES[9:])
"""What the small loop's models can say: the nine calls as the chat template writes them, and failures."""

CENTRE = WRITTEN[4]
"""The call of square 5, which is all that the small loop's untrained model ever says."""

FOLDERS = ("model", "boards", "baseline", "policy", "train", "retest", "state")


def overrides(folder: Path) -> list[str]:
    """The settings under which the loop in ``folder`` is played, as on the command line."""
    return ["model.dtype=float32", "model.device=cpu", *(f"paths.{n}={folder / n}" for n in FOLDERS)]


def loop_settings(folder: Path) -> Settings:
    """All settings of the loop in ``folder``."""
    settings: Settings = read_sections(Settings, compose(overrides(folder)))
    return replace(settings, eval=replace(settings.eval, resamples=100))


def make_loop(folder: Path) -> None:
    """Fill ``folder`` with what the stages would leave there."""
    write_talker(folder / "model", replies=WRITTEN, said=[CENTRE], sharpness=8)
    write_talker(folder / "policy", seed=1, replies=WRITTEN)
    settings = loop_settings(folder)
    task = load_task(settings.task)
    assert isinstance(task, TicTacToe)
    drawn = task.generate(24, seed=1)
    _write_boards(folder / "boards", {"heldout": drawn[:16], "train": drawn[16:]})
    for name, policy in (("baseline", "model"), ("retest", "policy")):
        heldout = folder / "boards" / "heldout.jsonl"
        found = measure(folder / policy, heldout, task, settings.reward, settings, label=name)
        found.write(folder / name)
    agent = open_agent(folder / "policy", task, settings)
    (folder / "train").mkdir()
    agent.write_prompt(folder / "train", drawn[16])
    write_json(folder / "train" / "metrics.json", {"weights_sha256": weights_sha256(agent.policy.model)})


def _write_boards(folder: Path, parts: dict[str, Any]) -> None:
    folder.mkdir()
    for name, examples in parts.items():
        lines = "".join(f"{json.dumps(example.line())}\n" for example in examples)
        (folder / f"{name}.jsonl").write_text(lines)
