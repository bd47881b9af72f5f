"""Judged rollouts from runs of an agent function, in place of the task's own way to ask.

Runs live in threads of their own and ask the endpoint; this thread, the trainer's, answers: it waits until
all runs that go on have asked, or nothing has happened for a while, and samples what they ask for together.
What a run draws hangs on its example, its number and the number of its turn, not on when it asked.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from queue import Empty
from typing import Any

from ninegrid.agents.answer import make_answer
from ninegrid.agents.endpoint import Endpoint, Pending, new_identity
from ninegrid.agents.outcome import rollout_of
from ninegrid.agents.record import Encoder, Exchange, Record
from ninegrid.agents.refusal import Refusal, over, stopped
from ninegrid.agents.run import AgentRun
from ninegrid.agents.task import ERROR, TIMEOUT, AgentTask
from ninegrid.policy.conversation import Draws, Reader, checked
from ninegrid.policy.rollout import Rollout
from ninegrid.policy.sampler import Sampler
from ninegrid.progress import say
from ninegrid.tasks.protocol import Example, Json
from ninegrid.tree.engine import Request

LONGEST_WAIT = 60.0
"""Seconds after which this thread looks up, though nothing is due."""


class AgentSampler(Sampler):
    """A `Sampler` of an `AgentTask`.

    Args:
        longest: tokens that the model can read, if there is a limit.
        others: as for `Sampler`.
    """

    task: AgentTask

    def __init__(self, *others: Any, longest: int | None = None) -> None:
        super().__init__(*others)
        self._told: set[str] = set()
        self._context = longest

    def _batch(
        self,
        examples: Sequence[Example],
        prompts: Sequence[tuple[int, ...]],
        ways: Sequence[int | None],
        key: tuple[str | int, ...],
    ) -> list[list[Rollout]]:
        encoder, reader = Encoder(self.chat), Reader(self.chat, self.task)
        runs = [
            self._run(slot, example, ways[slot % len(ways)], key, encoder)
            for slot, example in enumerate(example for example in examples for _ in ways)
        ]
        Desk(self, runs).serve()
        rollouts = [rollout_of(run, self.task, self.chat, reader) for run in runs]
        self._tell(rollouts)
        return [rollouts[at : at + len(ways)] for at in range(0, len(rollouts), len(ways))]

    def _tell(self, rollouts: Sequence[Rollout]) -> None:
        """Say of the first run of a kind that the agent did not bring to an end; the others are counted."""
        for rollout in rollouts:
            outcome = rollout.judgement.outcome
            if outcome in (ERROR, TIMEOUT) and outcome not in self._told:
                self._told.add(outcome)
                why = rollout.judgement.facts.get("why", "")
                say(f"{self.task.agent}: {outcome} on {rollout.example.id}: {why}")

    def _run(
        self, slot: int, example: Example, way: int | None, key: tuple[str | int, ...], encoder: Encoder
    ) -> AgentRun:
        draws = Draws(key, example.id, way or 0, self.decoding.max_new_tokens, greedy=way is None)
        given = self.task.given(example, self.chat.messages(example), self.chat.dialect)
        return AgentRun(slot, self.task.function, example, given, draws, Record(encoder, self._context))


class Desk:
    """Answers the runs of a batch until each is over.

    Args:
        sampler: what is sampled from, and how.
        runs: in the order in which replies are sampled.
    """

    def __init__(self, sampler: AgentSampler, runs: Sequence[AgentRun]) -> None:
        self._sampler, self._task, self._runs = sampler, sampler.task, runs
        self._endpoint = Endpoint(runs, sampler.decoding.temperature)
        self._waiting: dict[int, tuple[Pending, tuple[int, ...]]] = {}
        self._again: list[Pending] = []
        self._last = time.monotonic()

    def serve(self) -> None:
        """Start the runs and answer them; returns when all are over."""
        with self._endpoint.open():
            try:
                for run in self._runs:
                    run.start(self._endpoint.address, self._endpoint.events.put)
                while any(not run.over for run in self._runs):
                    self._hear()
                    self._expire()
                    self._dismiss()
                    if self._waiting and self._due() <= 0:
                        self._sample()
            finally:
                self._leave()

    def _hear(self) -> None:
        """Wait for news, as long as nothing else is due, and take all there are."""
        try:
            event = self._endpoint.events.get(timeout=max(0.0, min(self._due(), self._left())))
            while True:
                if isinstance(event, Pending):
                    self._admit(event)
                else:
                    self._last = time.monotonic()
                event = self._endpoint.events.get_nowait()
        except Empty:
            pass

    def _due(self) -> float:
        """Seconds until what waits is answered."""
        if not self._waiting:
            return LONGEST_WAIT
        if all(run.over or run.slot in self._waiting for run in self._runs):
            return 0.0
        return self._last + self._task.gather - time.monotonic()

    def _left(self) -> float:
        """Seconds until the first run has taken too long."""
        now = time.monotonic()
        left = [run.left(self._task.timeout, now) for run in self._runs if not run.over]
        return min([LONGEST_WAIT, *left])

    def _expire(self) -> None:
        now = time.monotonic()
        for run in self._runs:
            if not run.over and run.left(self._task.timeout, now) <= 0:
                run.expire()

    def _admit(self, pending: Pending) -> None:
        """Let a request wait, or answer it at once: with what was said already, or with an error."""
        run = pending.run
        try:
            if run.over:
                raise over()
            answer = self._look_up(pending)
        except Refusal as refusal:
            pending.answer(refusal)
            return
        if answer is not None:
            pending.answer(answer)

    def _look_up(self, pending: Pending) -> Json | None:
        run, asked = pending.run, pending.asked
        other = self._waiting.get(run.slot)
        if other is not None:
            if other[0].asked.messages == asked.messages and other[0].asked.tools == asked.tools:
                self._again.append(pending)  # a client that has lost its connection
                return None
            raise Refusal(
                "another request of this run is open: a run is one conversation", code="in_progress"
            )
        known = run.record.repeated(asked)
        if known is not None:
            return known
        if len(run.record.exchanges) >= self._task.max_requests:
            raise Refusal(
                f"this run has had its {self._task.max_requests} replies (task.max_requests)",
                code="max_requests",
            )
        prompt = run.record.prompt(asked, self._limit(pending))
        run.pause(pending.arrived)
        self._waiting[run.slot] = (pending, prompt)
        self._last = time.monotonic()  # what is refused, or said again, is no news
        return None

    def _limit(self, pending: Pending) -> int:
        most = self._sampler.decoding.max_new_tokens
        return most if pending.asked.limit is None else min(pending.asked.limit, most)

    def _dismiss(self) -> None:
        """Refuse the requests of runs that have ended without waiting for the answer."""
        for slot in [slot for slot, (pending, _) in self._waiting.items() if pending.run.over]:
            pending, _ = self._waiting.pop(slot)
            for request in [pending, *(other for other in self._again if other.run is pending.run)]:
                request.answer(over())
        self._again = [other for other in self._again if other.run.slot in self._waiting]

    def _sample(self) -> None:
        """Answer everything that waits."""
        waiting = [self._waiting[slot] for slot in sorted(self._waiting)]
        for limit in sorted({self._limit(pending) for pending, _ in waiting}):
            alike = [entry for entry in waiting if self._limit(entry[0]) == limit]
            for part in self._parts([prompt for _, prompt in alike], limit):
                self._sample_part([alike[i] for i in part], limit)

    def _parts(self, prompts: Sequence[tuple[int, ...]], limit: int) -> list[list[int]]:
        """Split requests, in order, into calls of the engine that hold what memory allows."""
        engine, budget = self._sampler.engine, self._sampler.budget
        distinct = list(dict.fromkeys(prompts))
        width = max(Counter(prompts).values())
        runs = engine.batches(distinct, width, limit, budget)
        part_of = {distinct[i]: number for number, run in enumerate(runs) for i in run}
        parts: list[list[int]] = [[] for _ in runs]
        for index, prompt in enumerate(prompts):
            parts[part_of[prompt]].append(index)
        return parts

    def _sample_part(self, entries: Sequence[tuple[Pending, tuple[int, ...]]], limit: int) -> None:
        sampler = self._sampler
        requests = [
            Request(prompt, pending.run.draws.turn(len(pending.run.record.exchanges)), sampler.constraint)
            for pending, prompt in entries
        ]
        completions = sampler.engine.sample(
            requests,
            stop=sampler.chat.stop_ids,
            max_new_tokens=limit,
            temperature=sampler.decoding.temperature,
        )
        for (pending, prompt), completion in zip(entries, completions, strict=True):
            run = pending.run
            text = sampler.chat.decode(checked(completion, run.example).tokens)
            parsed = sampler.chat.read(text, pending.asked.tools)
            answer = make_answer(new_identity(), text, parsed, completion, len(prompt), int(time.time()))
            run.record.take(Exchange(pending.asked, prompt, completion, text, answer))
            del self._waiting[run.slot]
            self._reply(pending, answer)
        self._last = time.monotonic()

    def _reply(self, pending: Pending, answer: Json) -> None:
        pending.run.resume()
        for request in [pending, *(other for other in self._again if other.run is pending.run)]:
            request.answer(answer)
        self._again = [other for other in self._again if other.run is not pending.run]

    def _leave(self) -> None:
        """Nobody is answered any more."""
        for run in self._runs:
            if not run.over:
                run.expire()
        open_requests = [pending for pending, _ in self._waiting.values()] + self._again
        while not self._endpoint.events.empty():
            event = self._endpoint.events.get()
            open_requests += [event] if isinstance(event, Pending) else []
        for pending in open_requests:
            pending.answer(stopped())
