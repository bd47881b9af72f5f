"""The task protocol: the only way in which a task reaches the rest of the library.

A task knows its examples, its tools, how a valid tool call turned out, and how to draw an example.
It does not know models, tokens, rewards in force or files.  A task is chosen by configuration
(``task._target_``), so a class in a user's own file plugs in without a change here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

Json = dict[str, Any]


class CallOutcome(StrEnum):
    """What can be said of a reply from the tool schemas alone; shared by every task.

    A task lists these four first among its outcomes.
    """

    NO_TOOL_CALL = "no_tool_call"
    """The reply holds no tool call at all."""
    WRONG_TOOL = "wrong_tool"
    """One well-formed call, of a tool that was not offered."""
    MULTIPLE_CALLS = "multiple_calls"
    """More than one call where exactly one was asked for."""
    INVALID_ARGUMENTS = "invalid_arguments"
    """One call that cannot be read, or whose arguments do not fit the tool's JSON schema."""


@dataclass(frozen=True)
class Example:
    """One thing the policy is asked about.

    Attributes:
        id: unique within the data set.
        group: examples of equal group are the same up to a symmetry of the task; a group lies
            wholly in the training set or wholly in the held-out set.
        data: the JSON fields that a line of a data file holds beside ``id``.
    """

    id: str
    group: str
    data: Mapping[str, Any]

    def line(self) -> Json:
        """The example as an object of a JSON-lines file."""
        return {"id": self.id, **self.data}


@dataclass(frozen=True)
class ToolCall:
    """A well-formed call: the tool's name and its arguments, as parsed from JSON.

    ``span`` is the half-open range of characters that the call takes in the reply.
    """

    name: str
    arguments: Mapping[str, Any]
    span: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Judgement:
    """What a reply amounted to: an outcome (a fact, never a reward) and what shows it."""

    outcome: str
    call: ToolCall | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class WorkedExample:
    """An example with the call that answers it well, shown to the policy as earlier turns.

    ``after`` is how it went on, in a multi-step task: each example is shown as the tool's result.
    """

    example: Example
    call: ToolCall
    after: Sequence[WorkedExample] = ()


@runtime_checkable
class Task(Protocol):
    """What a task must offer.

    Attributes:
        name: short identifier, used in artifacts and run names.
        tools: the tools offered, in the OpenAI function format
            (``{"type": "function", "function": {"name", "description", "parameters"}}``).
        outcomes: every outcome, worst first; the four of `CallOutcome` lead.
        milestones: named sets of outcomes that count as "at least this good"
            (for tic-tac-toe ``legal`` and ``optimal``), weakest first.  Each gets a rate with an
            interval and a paired test; the first one is shown while training runs.
        decision: name of the tool argument whose value is the policy's decision, or None.
        score: outcome -> number, the fixed table by which runs with different rewards are
            compared.
    """

    name: str
    tools: Sequence[Json]
    outcomes: Sequence[str]
    milestones: Mapping[str, frozenset[str]]
    decision: str | None
    score: Mapping[str, float]

    def available(self) -> int:
        """How many distinct examples exist under the task's settings."""
        ...

    def generate(self, count: int, seed: int) -> list[Example]:
        """Draw ``count`` distinct examples; equal arguments give equal examples."""
        ...

    def parse(self, line: Json) -> Example:
        """Read an example back from `Example.line`.

        Raises:
            DataError: the line is not an example of this task.
        """
        ...

    def worked_examples(self) -> Sequence[WorkedExample]:
        """All worked examples, in the order in which they are shown.

        Their groups always belong to the training side of a split.
        """
        ...

    def system(self) -> str:
        """The system message."""
        ...

    def user(self, example: Example) -> str:
        """The user message that shows ``example``."""
        ...

    def judge(self, example: Example, call: ToolCall) -> Judgement:
        """Judge a call that already satisfies the schema of one of `tools`."""
        ...

    def legal_outcomes(self, example: Example) -> Sequence[str]:
        """The outcome of every legal action, one entry an action; empty if not enumerable.

        A player that picks legal actions at random earns the mean over it; an example on which
        all of them pay the same teaches nothing but legality.
        """
        ...

    def candidate_calls(self, example: Example) -> Sequence[ToolCall]:
        """The calls among which a policy has to choose, good and bad ones; empty if not enumerable.

        Warm starts have each judged: one with the best outcome is taught, and preferred to worse ones.
        """
        ...

    def players(self) -> Mapping[str, Mapping[str, str]]:
        """Reference players: name -> {"label", "description"}, weakest first."""
        ...

    def expected_outcomes(self, player: str, example: Example) -> Mapping[str, float]:
        """Exact outcome probabilities of a reference player on ``example`` (they sum to 1)."""
        ...

    def stratum(self, example: Example) -> str:
        """The label by which the manifest counts examples (for a board its number of marks)."""
        ...

    def kind(self, example: Example) -> str:
        """What ``example`` asks for, in a few words: one of a few labels, by which scores are told apart."""
        ...

    def draw(self, example: Example, calls: Mapping[str, ToolCall | None]) -> str:
        """A small self-contained SVG of ``example`` with the named calls marked on it."""
        ...


@dataclass(frozen=True)
class Observation:
    """What a call led to: the tool's result, as text, on which the policy replies again."""

    text: str


@dataclass(frozen=True)
class Consultation:
    """A question that the environment puts to the policy itself, such as for an opponent's move.

    The policy is asked about ``example`` as if nothing had been said before; nothing is learned from its
    reply.
    """

    example: Example


Step = Observation | Consultation | Judgement
"""What comes after a reply: another reply is due, the environment wants to know something, or it is over."""


class Course(Protocol):
    """One run of a multi-step task; it knows where it stands.

    Attributes:
        steps: what each call so far amounted to by itself, in order; see `Interactive.step_outcomes`.
    """

    steps: list[str]

    def step(self, call: ToolCall) -> Step:
        """Apply a call that satisfies the schema of one of the task's tools."""
        ...

    def answer(self, call: ToolCall | None) -> Step:
        """Go on with the call that a `Consultation` led to; None if its reply held no acceptable one."""
        ...

    def fail(self, judgement: Judgement) -> Judgement:
        """The judgement of a run that a reply ended which holds no acceptable call.

        Args:
            judgement: of that reply; its outcome, one of `CallOutcome`, stays.
        """
        ...


@runtime_checkable
class Interactive(Protocol):
    """What a task offers besides if it takes more than one reply.

    Then `Task.judge` is not asked about replies; courses are.

    Attributes:
        max_turns: the most replies that a run can take.
        step_outcomes: what a single call may amount to, apart from how the run ends, worst first; the reward
            table may price them (``reward.steps``).  Empty if there is nothing to tell.
        environment: what two measurements must have in common beside the examples, as JSON data.
    """

    max_turns: int
    step_outcomes: Sequence[str]
    environment: Mapping[str, Any]

    def begin(self, example: Example, draws: Sequence[float]) -> Course:
        """A new run.

        Args:
            example: where it begins.
            draws: uniforms in [0, 1) for what the environment does at random, [2 * max_turns].
        """
        ...

    def draw_runs(self, example: Example, runs: Mapping[str, Mapping[str, Any]]) -> str:
        """A small self-contained SVG of ``example`` and what became of it, for the facts of named runs."""
        ...


@dataclass(frozen=True)
class Perturbation:
    """One way to ask the same thing differently.

    Attributes:
        description: one sentence for readers: what is different.
        task: the task so perturbed.  Its outcomes, milestones and score are those of the task it comes
            from, and it parses the same examples; what it shows, offers or understands differs.
        examples: its own examples; None for the held-out ones, with which it is paired one by one.
    """

    description: str
    task: Task
    examples: Sequence[Example] | None = None


@runtime_checkable
class Perturbable(Protocol):
    """What a task may offer besides: perturbations of itself, by name.

    A task without them is measured as it is and no other way.
    """

    def perturbations(self) -> Mapping[str, Perturbation]:
        """Every perturbation; equal tasks give equal ones."""
        ...
