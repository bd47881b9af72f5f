"""The subject of a quick run: the tests' talking model, and a few boards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.pieces.opening import settings_of, task_of
from benchmarks.subject import Subject
from ninegrid.tasks.protocol import Example

TRAIN, HELDOUT = 16, 8


def prepare(subject: Subject) -> None:
    """Write the subject's model and boards."""
    from tests.talker import write_talker

    torch.set_num_threads(1)
    for folder in subject.starts.values():
        write_talker(Path(folder))
    examples = task_of(settings_of(subject)).generate(TRAIN + HELDOUT, 3)
    _write(Path(subject.train), examples[:TRAIN])
    _write(Path(subject.heldout), examples[TRAIN:])


def _write(path: Path, examples: Sequence[Example]) -> None:
    path.write_text("".join(f"{json.dumps(example.line())}\n" for example in examples))
