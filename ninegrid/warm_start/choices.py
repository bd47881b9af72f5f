"""What the judge would have a policy reply: a best call of an example, and a worse reply beside it.

Knows the task protocol alone: no tokens, no model.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

from ninegrid.chat.judging import judge_call
from ninegrid.chat.trial import call_turn
from ninegrid.errors import SettingsError
from ninegrid.tasks.protocol import CallOutcome, Example, Json, Task, ToolCall


@dataclass(frozen=True)
class Choice:
    """An assistant turn that could answer an example, and what it amounts to."""

    turn: Json
    outcome: str


def best_choice(task: Task, example: Example, draw: random.Random) -> Choice:
    """One of the candidate calls with the best outcome.

    Raises:
        SettingsError: the task has no candidate call for the example that its tools accept.
    """
    return _drawn(_best_calls(task, example), draw)


def preference(task: Task, example: Example, draw: random.Random) -> tuple[Choice, Choice]:
    """A best call, and a worse reply: first its outcome is drawn, then one of the replies with it.

    All worse outcomes weigh alike, however many calls have them: legal but weaker, illegal, and the best
    call's arguments without a call.

    Raises:
        SettingsError: see `best_choice`.
    """
    best = _best_calls(task, example)
    chosen = _drawn(best, draw)
    rank = list(task.outcomes).index
    worse = [c for c in _candidates(task, example) if rank(c.outcome) < rank(chosen.outcome)]
    worse.append(_without_call(chosen))
    outcome = draw.choice(sorted({choice.outcome for choice in worse}, key=rank))
    return chosen, _drawn([choice for choice in worse if choice.outcome == outcome], draw)


def _best_calls(task: Task, example: Example) -> list[Choice]:
    candidates = [c for c in _candidates(task, example) if c.outcome not in set(CallOutcome)]
    if not candidates:
        raise SettingsError(
            f"task {task.name} names no valid call for {example.id}, so nothing can be taught by examples",
            hint="give its candidate_calls something, or do without: "
            "python -m ninegrid.params warm_start=none",
        )
    rank = list(task.outcomes).index
    best = max((choice.outcome for choice in candidates), key=rank)
    return [choice for choice in candidates if choice.outcome == best]


def _candidates(task: Task, example: Example) -> list[Choice]:
    return [_judged(task, example, call) for call in task.candidate_calls(example)]


def _judged(task: Task, example: Example, call: ToolCall) -> Choice:
    return Choice(call_turn(call), judge_call(task, example, call).outcome)


def _without_call(choice: Choice) -> Choice:
    """The arguments of a call said in plain text: a reply that knows the answer and calls no tool."""
    (call,) = choice.turn["tool_calls"]
    said = json.dumps(call["function"]["arguments"], ensure_ascii=False)
    return Choice({"role": "assistant", "content": said}, CallOutcome.NO_TOOL_CALL.value)


def _drawn(choices: Sequence[Choice], draw: random.Random) -> Choice:
    return draw.choice(choices)
