"""One rollout in the making: what is sampled next, depending on what was said.

A conversation hands the engine a request; when that is finished it reads the reply, lets the task's course
answer, and hands over the next one, until the course is over.  A task of one reply is a course of one step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ninegrid.chat.format import ChatFormat
from ninegrid.chat.judging import check_outcome, read_call
from ninegrid.errors import TrainingError
from ninegrid.policy.rollout import Rollout, Turn, join_turns
from ninegrid.tasks.protocol import (
    Consultation,
    Course,
    Example,
    Interactive,
    Judgement,
    Observation,
    Step,
    Task,
    ToolCall,
)
from ninegrid.tree.constraint import Constraint
from ninegrid.tree.draw import Floats, uniforms
from ninegrid.tree.engine import Completion, Request


@dataclass(frozen=True)
class Read:
    """A reply that was read.

    Attributes:
        found: its one acceptable call, or the judgement of a reply that holds none.
        decision: index of the token that decides, None without a readable call.
    """

    found: ToolCall | Judgement
    decision: int | None


class Reader:
    """Reads replies; equal ones once.

    Args:
        chat: decodes them.
        task: says which calls are acceptable.
    """

    def __init__(self, chat: ChatFormat, task: Task) -> None:
        self._chat, self._task = chat, task
        self._known: dict[tuple[int, ...], Read] = {}

    def read(self, tokens: tuple[int, ...]) -> Read:
        """The call in a reply, and where it decides."""
        if tokens not in self._known:
            found = read_call(self._task, self._chat.decode(tokens), self._chat.dialect)
            call = found.call if isinstance(found, Judgement) else found
            self._known[tokens] = Read(found, self._chat.decision_index(tokens, call))
        return self._known[tokens]


@dataclass(frozen=True)
class Draws:
    """What decides the sampled tokens of one rollout; it depends on nothing else.

    Attributes:
        key: seeds them, together with the example's id and the sample's number.
        sample: number of the rollout among those of its example.
        limit: tokens in a reply.
        greedy: nothing is drawn.
    """

    key: tuple[str | int, ...]
    example_id: str
    sample: int
    limit: int
    greedy: bool = False

    def turn(self, index: int, what: str = "turn") -> Floats | None:
        """Uniforms of the reply number ``index`` (from 0), [limit]; None for greedy."""
        if self.greedy:
            return None
        later = () if index == 0 and what == "turn" else (what, index)
        return uniforms(self.limit, *self.key, self.example_id, self.sample, *later)


class SingleReply:
    """The course of a task that takes one reply."""

    def __init__(self, task: Task, example: Example) -> None:
        self._task, self._example = task, example
        self.steps: list[str] = []

    def step(self, call: ToolCall) -> Step:
        """See `Course.step`."""
        return self._task.judge(self._example, call)

    def answer(self, call: ToolCall | None) -> Step:
        """See `Course.answer`; it consults nobody."""
        raise NotImplementedError

    def fail(self, judgement: Judgement) -> Judgement:
        """See `Course.fail`."""
        return judgement


def begin_course(task: Task, example: Example, key: tuple[str | int, ...]) -> Course:
    """A new run of the task.

    Args:
        key: seeds the environment's draws, together with the example's id.  The rollouts of one example
            meet the same luck (common random numbers), so that what tells them apart is the policy.
    """
    if not isinstance(task, Interactive):
        return SingleReply(task, example)
    return task.begin(example, uniforms(2 * task.max_turns, *key, example.id, "environment").tolist())


def checked(completion: Completion, example: Example) -> Completion:
    """The same completion.

    Raises:
        TrainingError: its log-probs are not finite.
    """
    if not np.isfinite(completion.logprobs).all():
        raise TrainingError(
            f"the policy's log-probs on {example.id} are not finite: its weights have diverged",
            hint="train again with a smaller train.learning_rate",
        )
    return completion


class Conversation:
    """One rollout while it is being sampled.

    Args:
        chat: renders and decodes.
        reader: of replies.
        task: what is asked, and how many replies it can take.
        example: where it begins.
        course: answers.
        draws: decide what is sampled.
        constraint: what a reply may say.
    """

    def __init__(
        self,
        chat: ChatFormat,
        reader: Reader,
        task: Task,
        example: Example,
        course: Course,
        draws: Draws,
        constraint: Constraint | None,
    ) -> None:
        self._chat, self._reader, self._task, self._example = chat, reader, task, example
        self._course, self._draws, self._constraint = course, draws, constraint
        self._prompts: list[tuple[int, ...]] = []
        self._completions: list[Completion] = []
        self._decisions: list[int | None] = []
        self._talk = chat.messages(example)
        self._consulted = 0
        self._judgement: Judgement | None = None

    def begin(self, prompt: tuple[int, ...]) -> Request:
        """The first request: the example's ``prompt``."""
        self._prompts.append(prompt)
        return self._request(prompt, self._draws.turn(len(self._completions)), self._heard)

    def finish(self) -> Rollout:
        """The rollout, once its last reply is sampled."""
        assert self._judgement is not None
        completion, spans = join_turns(self._prompts, self._completions)
        outcomes = [*self._course.steps, *[""] * len(spans)]
        turns = [
            Turn(span.start, span.stop, None if at is None else span.start + at, outcome)
            for span, at, outcome in zip(spans, self._decisions, outcomes[: len(spans)], strict=True)
        ]
        return Rollout(
            self._example,
            self._draws.sample,
            self._prompts[0],
            completion,
            self._chat.decode(completion.tokens),
            check_outcome(self._task, self._judgement),
            tuple(turns),
            self._draws.greedy,
        )

    def _request(
        self, prompt: tuple[int, ...], draws: Floats | None, then: Callable[[Completion], Request | None]
    ) -> Request:
        example = self._example
        return Request(prompt, draws, self._constraint, lambda completion: then(checked(completion, example)))

    def _heard(self, completion: Completion) -> Request | None:
        """What follows a reply of the policy."""
        read = self._reader.read(completion.tokens)
        self._completions.append(completion)
        self._decisions.append(read.decision)
        if isinstance(read.found, Judgement):
            return self._go_on(self._course.fail(read.found))
        step = self._course.step(read.found)
        return self._go_on(replace(step, call=read.found) if isinstance(step, Judgement) else step)

    def _answered(self, completion: Completion) -> Request | None:
        """What follows a reply to a consultation."""
        found = self._reader.read(completion.tokens).found
        return self._go_on(self._course.answer(None if isinstance(found, Judgement) else found))

    def _go_on(self, step: Step) -> Request | None:
        match step:
            case Judgement():
                self._judgement = step
                return None
            case Consultation(example):
                self._consulted += 1
                draws = self._draws.turn(self._consulted, "consulted")
                return self._request(tuple(self._chat.encode(example)), draws, self._answered)
            case Observation(text):
                return self._continued({"role": "tool", "content": text})

    def _continued(self, answer: dict[str, Any]) -> Request:
        self._check_turns()
        said = self._completions[-1].tokens
        between = self._chat.follow_up(self._talk, said, [answer])
        self._talk += [{"role": "assistant", "content": self._chat.decode(said)}, answer]
        return self.begin((*self._prompts[-1], *said, *between))

    def _check_turns(self) -> None:
        most = getattr(self._task, "max_turns", 1)
        if len(self._completions) >= most:
            raise ValueError(f"task {self._task.name} goes on after {most} replies, its max_turns")
