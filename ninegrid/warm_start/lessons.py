"""From training boards to token ids: what SFT and DPO are given to learn from."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass

from ninegrid.chat.format import ChatFormat
from ninegrid.chat.judging import judge_reply
from ninegrid.errors import NinegridError, SettingsError
from ninegrid.tasks.protocol import Example, Json
from ninegrid.warm_start.choices import Choice, best_choice, preference
from ninegrid.warm_start.settings import Taught


@dataclass(frozen=True)
class Reply:
    """A reply as token ids, its stop token included, with its text and outcome."""

    ids: tuple[int, ...]
    text: str
    outcome: str


@dataclass(frozen=True)
class Lesson:
    """A prompt as token ids with the reply to learn; ``rejected`` is the worse reply of a preference."""

    example: Example
    prompt: tuple[int, ...]
    chosen: Reply
    rejected: Reply | None = None

    def line(self) -> Json:
        """What was taught, in words, for a file that people read."""
        replies = {"chosen": self.chosen, "rejected": self.rejected}
        shown = {name: {"reply": r.text, "outcome": r.outcome} for name, r in replies.items() if r}
        return {"example": self.example.line(), **shown}


def make_lessons(chat: ChatFormat, examples: Sequence[Example], recipe: Taught) -> list[Lesson]:
    """A lesson for each of the boards that the recipe draws.

    Raises:
        SettingsError: more boards are asked for than there are, or the task names no calls.
        NinegridError: the chat template cannot write a reply that reads as it was judged.
    """
    return [_lesson(chat, example, recipe) for example in drawn_examples(examples, recipe)]


def drawn_examples(examples: Sequence[Example], recipe: Taught) -> list[Example]:
    """The recipe's number of examples; of two numbers the larger one draws all that the smaller draws."""
    count = len(examples) if recipe.examples is None else recipe.examples
    if count > len(examples):
        raise SettingsError(
            f"warm_start.examples = {count}, but there are {len(examples)} training boards",
            hint="warm_start.examples=null takes all",
        )
    return sorted(examples, key=lambda e: hashlib.sha256(f"{recipe.seed}:{e.id}".encode()).digest())[:count]


def _lesson(chat: ChatFormat, example: Example, recipe: Taught) -> Lesson:
    draw = random.Random(f"{recipe.seed}:{example.id}")
    prompt = tuple(chat.encode(example))
    if recipe.method == "sft":
        return Lesson(example, prompt, _reply(chat, example, best_choice(chat.task, example, draw)))
    chosen, rejected = (_reply(chat, example, c) for c in preference(chat.task, example, draw))
    return Lesson(example, prompt, chosen, rejected)


def _reply(chat: ChatFormat, example: Example, choice: Choice) -> Reply:
    """The choice as the template writes it, which must read as what it was judged to be."""
    ids = tuple(chat.answer(example, choice.turn))
    text = chat.decode(ids)
    found = judge_reply(chat.task, example, text, chat.dialect).outcome
    if found != choice.outcome:
        raise NinegridError(
            f"for {example.id} the chat template writes {text!r}, which reads as {found}, "
            f"expected {choice.outcome}",
            hint="set chat.template=hermes",
        )
    return Reply(ids, text, choice.outcome)
