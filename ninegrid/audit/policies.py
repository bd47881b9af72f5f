"""Policies simple enough to know exactly what they earn: what a trainer's reward would pay them.

Everything is said of outcomes before any length penalty, since a policy of this kind has no tokens.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ninegrid.chat.judging import validators
from ninegrid.tasks.protocol import CallOutcome, Example, Interactive, Json, Task, ToolCall

Pay = Mapping[str, float]
"""Outcome -> reward."""

REPLY, CONSTANT, LEGAL, PLAYER = "reply", "constant", "legal", "player"
WORST, RANDOM, BEST = "legal: worst", "legal: at random", "legal: best"

CALL_LIMIT = 100
"""Tools with more calls than this are left out of the constant policies, as endless ones are."""


@dataclass(frozen=True)
class Policy:
    """A way of answering, with the reward that it expects on one example.

    Attributes:
        name: unique among the policies of an audit.
        kind: "reply" (ends before it is a valid call), "constant" (the same valid call on every example),
            "legal" (looks at the legal actions only) or "player" (a reference player of the task).
        label: as a sentence would call it.
    """

    name: str
    kind: str
    label: str
    earns: Callable[[Example], float]

    @property
    def ignorant(self) -> bool:
        """Whether it gives the same reply whatever the example."""
        return self.kind in (REPLY, CONSTANT)


def trivial_policies(task: Task, pay: Pay, examples: Sequence[Example]) -> list[Policy]:
    """Every policy of the audit; those of legal actions only where the task lists them.

    Args:
        pay: the reward of each outcome of ``task``.
        examples: all that will be asked about.
    """
    listed = bool(examples) and all(task.legal_outcomes(example) for example in examples)
    return [
        *(_reply(outcome, pay) for outcome in CallOutcome),
        *(_constant(task, call, pay) for call in constant_calls(task)),
        *(_legal_bounds(task, pay) if listed else ()),
        *(_player(task, name, texts["label"], pay) for name, texts in task.players().items()),
    ]


def constant_calls(task: Task) -> list[ToolCall]:
    """Every valid call of the tools whose required arguments have finitely many values.

    An argument's values are listed if it is an enum, a constant, a boolean, or an integer between a
    minimum and a maximum.  Optional arguments are left out.  A task of several steps has none: what the same
    call earns again and again, judging it once does not tell.
    """
    if isinstance(task, Interactive):
        return []
    return [call for tool in task.tools for call in _calls(task, tool["function"])]


def _calls(task: Task, function: Json) -> list[ToolCall]:
    schema = function.get("parameters", {})
    properties, names = schema.get("properties", {}), schema.get("required", [])
    values = [_values(properties.get(name, {})) for name in names]
    if math.prod(map(len, values)) > CALL_LIMIT:
        return []
    valid = validators(task)[function["name"]]
    arguments = [dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*values)]
    return [ToolCall(function["name"], found) for found in arguments if valid.is_valid(found)]


def _values(schema: Mapping[str, Any]) -> Sequence[Any]:
    """What an argument may be; empty if that cannot be listed."""
    if "enum" in schema:
        return list(schema["enum"])
    if "const" in schema:
        return [schema["const"]]
    if schema.get("type") == "boolean":
        return [False, True]
    if schema.get("type") == "integer" and {"minimum", "maximum"} <= schema.keys():
        return range(math.ceil(schema["minimum"]), math.floor(schema["maximum"]) + 1)
    return []


def _reply(outcome: CallOutcome, pay: Pay) -> Policy:
    value = pay[outcome]
    return Policy(outcome.value, REPLY, outcome.value.replace("_", " "), lambda example: value)


def _constant(task: Task, call: ToolCall, pay: Pay) -> Policy:
    label = _call_label(task, call)
    return Policy(f"always {label}", CONSTANT, label, lambda example: pay[task.judge(example, call).outcome])


def _call_label(task: Task, call: ToolCall) -> str:
    """``square 5`` where tool and argument go without saying, else ``tool(a=1, b=2)``."""
    if len(task.tools) == 1 and len(call.arguments) == 1:
        ((name, value),) = call.arguments.items()
        return f"{name.replace('_', ' ')} {value}"
    return f"{call.name}({', '.join(f'{name}={value}' for name, value in call.arguments.items())})"


def _legal_bounds(task: Task, pay: Pay) -> list[Policy]:
    def pays(example: Example) -> list[float]:
        return [pay[outcome] for outcome in task.legal_outcomes(example)]

    return [
        Policy(WORST, LEGAL, "the worst legal play", lambda example: min(pays(example))),
        Policy(RANDOM, LEGAL, "random legal play", lambda example: mean(pays(example))),
        Policy(BEST, LEGAL, "the best legal play", lambda example: max(pays(example))),
    ]


def _player(task: Task, name: str, label: str, pay: Pay) -> Policy:
    def earns(example: Example) -> float:
        return math.fsum(p * pay[outcome] for outcome, p in task.expected_outcomes(name, example).items())

    return Policy(f"player: {name}", PLAYER, label, earns)


def mean(values: Sequence[float]) -> float:
    """Exactly rounded mean, whatever the order of ``values``."""
    return math.fsum(values) / len(values)
