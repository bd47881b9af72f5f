"""Drawing judged rollouts from a policy.

Training and evaluation sample through the same code, so a reply is rendered, drawn, decoded
and judged in one way only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ninegrid.chat.format import ChatFormat
from ninegrid.policy.conversation import Conversation, Draws, Reader, begin_course
from ninegrid.policy.rollout import Rollout
from ninegrid.tasks.protocol import Example, Interactive, Task
from ninegrid.tree.constraint import Constraint
from ninegrid.tree.engine import Engine
from ninegrid.tree.settings import DecodingSettings


class Sampler:
    """Draws judged rollouts from a policy.

    Args:
        engine: samples token ids from the policy.
        chat: renders prompts and decodes replies.
        task: judges.
        decoding: temperature and token limit.
        budget: tokens that one batch may hold; see `Engine.batches`.
        constraint: what a reply may say; None allows everything.
    """

    def __init__(
        self,
        engine: Engine,
        chat: ChatFormat,
        task: Task,
        decoding: DecodingSettings,
        budget: int,
        constraint: Constraint | None = None,
    ) -> None:
        self.engine, self.chat, self.task = engine, chat, task
        self.decoding, self.budget = decoding, budget
        self.constraint = constraint

    def groups(
        self,
        examples: Sequence[Example],
        n_samples: int,
        key: tuple[str | int, ...],
        *,
        greedy: bool = False,
    ) -> Iterator[list[list[Rollout]]]:
        """Yield, batch by batch, the rollouts of each example.

        Args:
            examples: what is asked.
            n_samples: sampled rollouts for each.
            key: seeds the draws together with the example's id and the sample's number, so that a
                sample's draws depend on nothing else.
            greedy: add a greedy rollout to each example, after its samples.  In one batch the two
                share whatever tokens they have in common.
        """
        prompts = [tuple(self.chat.encode(example)) for example in examples]
        ways = [*range(n_samples), *([None] if greedy else [])]
        for batch in self.engine.batches(prompts, len(ways), self._longest(), self.budget):
            chosen = slice(batch.start, batch.stop)
            yield self._batch(examples[chosen], prompts[chosen], ways, key)

    def _longest(self) -> int:
        """Tokens that a rollout may add to its prompt; what comes back is counted like what is said."""
        limit = self.decoding.max_new_tokens
        return limit * (2 * self.task.max_turns - 1) if isinstance(self.task, Interactive) else limit

    def _batch(
        self,
        examples: Sequence[Example],
        prompts: Sequence[tuple[int, ...]],
        ways: Sequence[int | None],
        key: tuple[str | int, ...],
    ) -> list[list[Rollout]]:
        reader = Reader(self.chat, self.task)
        groups = [[self._conversation(reader, example, way, key) for way in ways] for example in examples]
        requests = [
            talk.begin(prompt) for group, prompt in zip(groups, prompts, strict=True) for talk in group
        ]
        self.engine.sample(
            requests,
            stop=self.chat.stop_ids,
            max_new_tokens=self.decoding.max_new_tokens,
            temperature=self.decoding.temperature,
        )
        return [[talk.finish() for talk in group] for group in groups]

    def _conversation(
        self, reader: Reader, example: Example, way: int | None, key: tuple[str | int, ...]
    ) -> Conversation:
        """A rollout about to begin; ``way`` is its number, or None for the greedy one."""
        limit = self.decoding.max_new_tokens
        draws = Draws(key, example.id, way or 0, limit, greedy=way is None)
        course = begin_course(self.task, example, key)
        return Conversation(self.chat, reader, self.task, example, course, draws, self.constraint)
