"""A second task, as small as a task can be: which of two numbers is larger.

It lives with the tests and is chosen by configuration alone.  If the library knew anything about
boards outside ``tasks/tictactoe``, this task could not go through the pipeline.
"""

import random

from ninegrid.config import require
from ninegrid.errors import DataError
from ninegrid.tasks.protocol import CallOutcome, Example, Judgement, ToolCall, WorkedExample

TOOL = {
    "type": "function",
    "function": {
        "name": "pick",
        "description": "Pick the larger number.",
        "parameters": {
            "type": "object",
            "properties": {"which": {"type": "string", "enum": ["first", "second"]}},
            "required": ["which"],
            "additionalProperties": False,
        },
    },
}


MILESTONES = {"called": frozenset({"smaller", "larger"}), "right": frozenset({"larger"})}
SCORE = {**dict.fromkeys(map(str, CallOutcome), -2.0), "smaller": 0.0, "larger": 3.0}


def _example(name, first, second):
    # Exchanging the two numbers is the task's symmetry.
    return Example(name, f"{min(first, second)}-{max(first, second)}", {"first": first, "second": second})


class Larger:
    """Numbers from 0 to ``limit`` - 1."""

    name = "larger"
    tools = (TOOL,)
    outcomes = (*map(str, CallOutcome), "smaller", "larger")
    milestones = MILESTONES
    decision = "which"
    score = SCORE

    def __init__(self, limit=12):
        require(limit >= 3, "limit", limit, ">= 3")
        self.limit = limit

    def _pairs(self):
        return [(a, b) for a in range(self.limit) for b in range(self.limit) if a != b]

    def available(self):
        return len(self._pairs())

    def generate(self, count, seed):
        pairs = random.Random(seed).sample(self._pairs(), count)
        return [_example(f"pair-{i:03d}", *pair) for i, pair in enumerate(pairs)]

    def parse(self, line):
        try:
            return _example(line["id"], line["first"], line["second"])
        except (KeyError, TypeError) as error:
            raise DataError(f"not a pair: {line}") from error

    def worked_examples(self):
        return [
            WorkedExample(_example("worked-1", 2, 1), ToolCall("pick", {"which": "first"})),
            WorkedExample(_example("worked-2", 0, 2), ToolCall("pick", {"which": "second"})),
        ]

    def system(self):
        return "Say which number is larger."

    def user(self, example):
        return f"first {example.data['first']}, second {example.data['second']}"

    def judge(self, example, call):
        right = "first" if example.data["first"] > example.data["second"] else "second"
        return Judgement("larger" if call.arguments["which"] == right else "smaller", call, {"right": right})

    def legal_outcomes(self, example):
        return ["smaller", "larger"]

    def candidate_calls(self, example):
        return [ToolCall("pick", {"which": which}) for which in ("first", "second")]

    def players(self):
        return {"coin": {"label": "coin", "description": "picks at random"}}

    def expected_outcomes(self, player, example):
        return {"smaller": 0.5, "larger": 0.5}

    def stratum(self, example):
        return f"gap={abs(example.data['first'] - example.data['second'])}"

    def kind(self, example):
        return "first" if example.data["first"] > example.data["second"] else "second"

    def draw(self, example, calls):
        return f'<svg viewBox="0 0 9 9" role="img"><title>{example.data["first"]}</title></svg>'
