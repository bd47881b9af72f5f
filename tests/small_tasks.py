"""A task small enough to hold in the head, for tests that need one without boards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ninegrid.tasks.protocol import CallOutcome, Example, Json, Judgement, ToolCall, WorkedExample


def function(name: str, properties: Json, **more: Any) -> Json:
    """A tool in the OpenAI format whose properties are all required."""
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        **more,
    }
    return {"type": "function", "function": {"name": name, "description": "—", "parameters": parameters}}


class Parrot:
    """Repeat a word, or count it: two tools, of which only one hits the word that was asked."""

    name = "parrot"
    outcomes: Sequence[str] = (*(str(outcome) for outcome in CallOutcome), "miss", "hit")
    milestones: Mapping[str, frozenset[str]] = {"hit": frozenset({"hit"})}
    decision: str | None = "word"
    score: Mapping[str, float] = {**dict.fromkeys(map(str, CallOutcome), -1.0), "miss": 0.0, "hit": 1.0}

    def __init__(self) -> None:
        self.tools: Sequence[Json] = [
            function("say", {"word": {"type": "string"}}),
            function("count", {"times": {"type": "integer", "minimum": 1, "maximum": 9}}),
        ]

    def available(self) -> int:
        return 1000

    def generate(self, count: int, seed: int) -> list[Example]:
        return [self._example(f"word{seed + i}") for i in range(count)]

    def parse(self, line: Json) -> Example:
        return self._example(line["word"])

    def worked_examples(self) -> Sequence[WorkedExample]:
        return [WorkedExample(self._example(w), ToolCall("say", {"word": w})) for w in ("oak", "élan")]

    def system(self) -> str:
        return "Repeat the word."

    def user(self, example: Example) -> str:
        return f"Say {example.data['word']}"

    def judge(self, example: Example, call: ToolCall) -> Judgement:
        return Judgement("hit" if call.arguments.get("word") == example.data["word"] else "miss")

    def legal_outcomes(self, example: Example) -> Sequence[str]:
        return []

    def candidate_calls(self, example: Example) -> Sequence[ToolCall]:
        word = example.data["word"]
        return [
            ToolCall("say", {"word": word}),
            ToolCall("say", {"word": word.upper()}),
            ToolCall("count", {"times": 1}),
        ]

    def players(self) -> Mapping[str, Mapping[str, str]]:
        return {}

    def expected_outcomes(self, player: str, example: Example) -> Mapping[str, float]:
        raise KeyError(player)

    def stratum(self, example: Example) -> str:
        return f"letters={len(example.data['word'])}"

    def draw(self, example: Example, calls: Mapping[str, ToolCall | None]) -> str:
        return "<svg xmlns='http://www.w3.org/2000/svg'/>"

    def _example(self, word: str) -> Example:
        return Example(id=word, group=word, data={"word": word})
