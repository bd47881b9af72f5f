"""How many tokens the prompts of a task have: counted where the tokenizer is here, else guessed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ninegrid.chat.format import ChatSettings
from ninegrid.plan.workload import PromptLengths
from ninegrid.tasks.protocol import Interactive, Task

EXAMPLES, SEED = 16, 0
"""Examples that are looked at, drawn anew: the task's own, whether or not any are on disk."""

CHARACTERS = 2.1
"""Of what is counted here to a token: 726 to the 355 of SmolLM2 on the default task.  A template's own words
are not counted, so these are fewer than the characters of a rendered prompt (2.9 to a token)."""


def turns_of(task: Task) -> int:
    """Replies of the longest conversation."""
    return int(task.max_turns) if isinstance(task, Interactive) else 1


def count_prompts(task: Task, chat: ChatSettings, folder: Path | None) -> PromptLengths:
    """Tokens that all prompts of the task begin with, and of the longest one beyond those.

    Args:
        folder: of a model with its tokenizer; None to guess.
    """
    examples = task.generate(min(EXAMPLES, task.available()), SEED)
    if folder is None:
        shown = len(json.dumps([task.system(), list(task.tools)])) + chat.worked_examples * _turn(task)
        own = max(len(task.user(example)) for example in examples)
        return PromptLengths(round(shown / CHARACTERS), 1 + round(own / CHARACTERS), measured=False)
    from ninegrid.chat.format import ChatFormat
    from ninegrid.policy.loading import load_tokenizer
    from ninegrid.tree.trunk import shared_beginning

    form = ChatFormat(load_tokenizer(folder), chat, task)
    prompts = [form.encode(example) for example in examples]
    shared = len(shared_beginning(prompts))
    return PromptLengths(shared, max(map(len, prompts)) - shared, measured=True)


def _turn(task: Task) -> int:
    """Characters of a worked example with its answer."""
    worked: Any = next(iter(task.worked_examples()), None)
    if worked is None:
        return 0
    return (
        len(task.user(worked.example)) + len(json.dumps(dict(worked.call.arguments))) + len(worked.call.name)
    )
