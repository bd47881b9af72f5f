"""A task whose rollouts are runs of a user's agent function.

It wraps another task, which keeps all that a task is: examples, tools, judging, players.  What an agent may
do, and what becomes of it, is in ``sampler``; this module only finds the function and holds the limits.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from ninegrid.chat.dialect import HERMES, Dialect
from ninegrid.chat.judging import judge_call, judge_reply
from ninegrid.config import TaskSettings, bind, require
from ninegrid.errors import SettingsError
from ninegrid.tasks.loading import import_module_of, load_task
from ninegrid.tasks.protocol import (
    CallOutcome,
    Example,
    Interactive,
    Json,
    Judgement,
    Perturbable,
    Perturbation,
    Task,
    ToolCall,
    WorkedExample,
)

ERROR, TIMEOUT = "agent_error", "agent_timeout"
"""Outcomes of runs that the agent did not bring to an end: it raised or misbehaved, or took too long."""

MODEL = "policy"
"""The name under which the endpoint serves the policy."""


@dataclass(frozen=True)
class AgentExample(Example):
    """What an agent is given: an example, with the conversation by which the task itself would ask.

    Attributes:
        messages: system, worked examples and question, in the OpenAI format.
        tools: the task's.
        model: the name to ask for.
        valid: outcomes of replies that stand: the task's weakest milestone.
    """

    messages: Sequence[Json] = ()
    tools: Sequence[Json] = ()
    model: str = MODEL
    valid: frozenset[str] = frozenset()
    _task: Task = field(default=cast(Task, None), repr=False)
    _dialect: Dialect = HERMES

    def judge(self, message: Any) -> Judgement:
        """What the wrapped task makes of one reply.

        Args:
            message: as the client gave it (``response.choices[0].message``), or the same as a mapping.
        """
        said = message if isinstance(message, Mapping) else message.model_dump()
        calls = said.get("tool_calls") or []
        if len(calls) > 1:
            return Judgement(CallOutcome.MULTIPLE_CALLS.value, facts={"why": f"{len(calls)} tool calls"})
        if not calls:
            # What the model thought is no part of a message's content.
            told = replace(self._dialect, in_thought=False)
            return judge_reply(self._task, self, said.get("content") or "", told)
        function = calls[0]["function"]
        return judge_call(self._task, self, ToolCall(function["name"], json.loads(function["arguments"])))


AgentFunction = Callable[[Any, AgentExample], Awaitable[Judgement | None]]
"""``async def run_agent(client, example)``; it returns a judgement, or None to have the last reply judged."""


class AgentTask:
    """The wrapped task, asked through an agent function.

    Args:
        agent: import path of the function, such as ``my_module.run_agent``.
        task: the settings of the wrapped task, ``_target_`` included.
        timeout: seconds that a run may take, not counting those in which it waits for the policy.
        max_requests: replies that a run may ask for.
        gather: seconds without news after which the requests that wait are answered, though other agents are
            still busy.  Which requests are answered together changes the last digits of log-probs, so what is
            to be repeatable needs agents that are quicker than this.

    Raises:
        SettingsError: there is no such function, it is not one that can be run, or the wrapped task takes
            several replies by itself.
    """

    def __init__(
        self,
        agent: str,
        task: Mapping[str, Any],
        timeout: float = 60.0,
        max_requests: int = 8,
        gather: float = 1.0,
    ) -> None:
        require(timeout > 0, "timeout", timeout, "> 0 seconds")
        require(max_requests >= 1, "max_requests", max_requests, ">= 1")
        require(gather >= 0, "gather", gather, ">= 0 seconds")
        self.agent, self.function = agent, load_agent(agent)
        self.timeout, self.max_requests, self.gather = timeout, max_requests, gather
        self._wrap(_load_wrapped(task))

    def _wrap(self, task: Task) -> None:
        self.task = task
        self.name = f"{task.name}_agent"
        self.tools, self.decision, self.milestones = task.tools, task.decision, task.milestones
        shared = len(CallOutcome)
        self.outcomes: Sequence[str] = (*task.outcomes[:shared], ERROR, TIMEOUT, *task.outcomes[shared:])
        lowest = min(task.score.values())
        self.score: Mapping[str, float] = {**task.score, ERROR: lowest, TIMEOUT: lowest}
        if isinstance(task, Perturbable):
            self.perturbations = self._perturbations

    def of(self, task: Task) -> AgentTask:
        """The same agent on another task."""
        other = object.__new__(AgentTask)
        vars(other).update(vars(self))
        vars(other).pop("perturbations", None)
        other._wrap(task)
        return other

    def given(self, example: Example, messages: Sequence[Json], dialect: Dialect = HERMES) -> AgentExample:
        """What the agent is given for ``example``: copies, for an agent may change what it is given."""
        valid = next(iter(self.milestones.values()))
        data, talk, tools = copy.deepcopy((dict(example.data), list(messages), list(self.tools)))
        return AgentExample(example.id, example.group, data, talk, tools, MODEL, valid, self.task, dialect)

    def _perturbations(self) -> Mapping[str, Perturbation]:
        assert isinstance(self.task, Perturbable)
        found = self.task.perturbations()
        return {name: replace(other, task=self.of(other.task)) for name, other in found.items()}

    def available(self) -> int:
        return self.task.available()

    def generate(self, count: int, seed: int) -> list[Example]:
        return self.task.generate(count, seed)

    def parse(self, line: Json) -> Example:
        return self.task.parse(line)

    def worked_examples(self) -> Sequence[WorkedExample]:
        return self.task.worked_examples()

    def system(self) -> str:
        return self.task.system()

    def user(self, example: Example) -> str:
        return self.task.user(example)

    def judge(self, example: Example, call: ToolCall) -> Judgement:
        return self.task.judge(example, call)

    def legal_outcomes(self, example: Example) -> Sequence[str]:
        return self.task.legal_outcomes(example)

    def candidate_calls(self, example: Example) -> Sequence[ToolCall]:
        return self.task.candidate_calls(example)

    def players(self) -> Mapping[str, Mapping[str, str]]:
        return self.task.players()

    def expected_outcomes(self, player: str, example: Example) -> Mapping[str, float]:
        return self.task.expected_outcomes(player, example)

    def stratum(self, example: Example) -> str:
        return self.task.stratum(example)

    def kind(self, example: Example) -> str:
        return self.task.kind(example)

    def draw(self, example: Example, calls: Mapping[str, ToolCall | None]) -> str:
        return self.task.draw(example, calls)


def load_agent(path: str) -> AgentFunction:
    """Import the agent function at ``path``.

    Raises:
        SettingsError: there is none, or it is no ``async def`` of a client and an example.
    """
    module, name = import_module_of(path, "task.agent", "package.module.function")
    function = getattr(module, name, None)
    if not inspect.iscoroutinefunction(function):
        what = f"{module.__name__} has no {name}" if function is None else "it is no `async def` function"
        raise SettingsError(f"task.agent = {path!r}: {what}", hint="docs/agents.md shows one")
    try:
        inspect.signature(function).bind("client", "example")
    except TypeError as error:
        raise SettingsError(
            f"task.agent = {path!r}: it cannot be called with a client and an example: {error}"
        ) from error
    return function


def _load_wrapped(settings: Mapping[str, Any]) -> Task:
    try:
        task = load_task(bind(TaskSettings, settings, "task.task"))
    except SettingsError as error:
        raise SettingsError(f"the task that the agent plays: {error.message}", hint=error.hint) from error
    if isinstance(task, Interactive | AgentTask):
        raise SettingsError(
            f"task.task = {settings.get('_target_')!r}: an agent plays tasks of one reply, this takes several"
        )
    return task
