"""A whole warm start, from a folder with a model to a folder with a taught one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ninegrid.chat.format import ChatFormat, ChatSettings
from ninegrid.config import unbind
from ninegrid.outputs import output_folder, write_csv, write_json
from ninegrid.policy.loading import Policy, load_policy, set_determinism, weights_sha256, write_model
from ninegrid.policy.memory import keep_freed_memory
from ninegrid.policy.settings import ModelSettings
from ninegrid.progress import say
from ninegrid.tasks.protocol import Example, Task
from ninegrid.tracking import Run
from ninegrid.tree.settings import EngineSettings
from ninegrid.warm_start.lessons import Lesson, make_lessons
from ninegrid.warm_start.record import MODEL_FOLDER, write_record
from ninegrid.warm_start.settings import Taught
from ninegrid.warm_start.teach import Row, require_trl, teach

WINDOW = 5
"""Steps averaged for the first and the last figures of ``metrics.json``."""


class TeachSettings(Protocol):
    """The sections that a warm start reads."""

    @property
    def model(self) -> ModelSettings: ...
    @property
    def chat(self) -> ChatSettings: ...
    @property
    def engine(self) -> EngineSettings: ...


@dataclass(frozen=True)
class WarmStarted:
    """A taught policy, what it was taught by, and the figures of every step."""

    policy: Policy
    chat: ChatFormat
    recipe: Taught
    lessons: list[Lesson]
    rows: list[Row]


def warm_start(
    model: Path, task: Task, examples: Sequence[Example], settings: TeachSettings, recipe: Taught, run: Run
) -> WarmStarted:
    """Load the model, teach it by ``recipe`` on some of ``examples``, mirror every step.

    Raises:
        NinegridError: see `ninegrid.warm_start.lessons.make_lessons` and `ninegrid.warm_start.teach.teach`.
    """
    require_trl()
    set_determinism(settings.engine.threads, recipe.seed)
    keep_freed_memory()
    # All weights are taught, so none may be packed.
    policy = load_policy(model, replace(settings.model, quantization="none"))
    chat = ChatFormat(policy.tokenizer, settings.chat, task)
    lessons = make_lessons(chat, examples, recipe)
    say(
        f"warm_start: {recipe.method} on {len(lessons)} of {len(examples)} boards x {recipe.epochs} epochs, "
        f"{recipe.batch_size} in a step, learning rate {recipe.learning_rate:g}"
    )
    rows = teach(policy, chat.saved_tokenizer(), lessons, recipe, lambda row, costs: _mirror(run, row, costs))
    return WarmStarted(policy, chat, recipe, lessons, rows)


def write_warm_start(result: WarmStarted, folder: Path) -> None:
    """Write model, record, figures and lessons as the whole content of ``folder``.

    Raises:
        DataError: it cannot be written.
    """
    with output_folder(folder) as draft:
        weights = draft / MODEL_FOLDER
        weights.mkdir()
        write_model(result.policy.model, result.chat.saved_tokenizer(), weights)
        write_record(draft, result.recipe.method, weights_sha256(result.policy.model))
        write_csv(draft / "steps.csv", result.rows, list(result.rows[0]))
        write_json(draft / "metrics.json", _summary(result))
        lines = (json.dumps(lesson.line(), ensure_ascii=False) for lesson in result.lessons)
        (draft / "lessons.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _mirror(run: Run, row: Row, costs: dict[str, float]) -> None:
    figures = {name: value for name, value in row.items() if name != "step"}
    run.metrics({**figures, **costs}, step=int(row["step"]))


def _summary(result: WarmStarted) -> dict[str, Any]:
    """``metrics.json``: what was taught, and the ends of the training."""
    rejected = [lesson.rejected.outcome for lesson in result.lessons if lesson.rejected]
    return {
        **unbind(result.recipe),
        "model": result.policy.name,
        "examples": len(result.lessons),
        "steps": len(result.rows),
        "chosen": _counts([lesson.chosen.outcome for lesson in result.lessons]),
        "rejected": _counts(rejected),
        "first": _means(result.rows[:WINDOW]),
        "last": _means(result.rows[-WINDOW:]),
    }


def _counts(outcomes: Sequence[str]) -> dict[str, int]:
    return dict(sorted(Counter(outcomes).items()))


def _means(rows: Sequence[Row]) -> dict[str, float]:
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0] if name != "step"}
