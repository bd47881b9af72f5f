"""Rollouts: what a policy replied to an example, judged.

Training and evaluation sample through the same code, so a reply is rendered, drawn, decoded
and judged in one way only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ninegrid.chat.format import ChatFormat
from ninegrid.chat.judging import judge_reply
from ninegrid.errors import TrainingError
from ninegrid.tasks.protocol import Example, Judgement, Task
from ninegrid.tree.constraint import Constraint
from ninegrid.tree.draw import uniforms
from ninegrid.tree.engine import Completion, Engine, Request
from ninegrid.tree.settings import DecodingSettings


@dataclass(frozen=True)
class Rollout:
    """A sampled completion with its judgement.

    Attributes:
        prompt: token ids of the prompt.
        completion: token ids as sampled (never re-encoded), their log-probs and entropies.
        text: the reply without its stop token.
        greedy: each token was the most probable one, instead of drawn.
        decision: index in the completion of the token that carries the decision; None without a
            readable call.
    """

    example: Example
    sample: int
    prompt: tuple[int, ...]
    completion: Completion
    text: str
    judgement: Judgement
    decision: int | None
    greedy: bool = False

    @property
    def decision_entropy(self) -> float | None:
        """Entropy in nats of the distribution from which the deciding token was drawn."""
        return None if self.decision is None else float(self.completion.entropies[self.decision])

    @property
    def truncated(self) -> bool:
        """The reply was cut at the token limit.  It is judged as it stands, like any other."""
        return self.completion.finish == "length"


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
            n_samples: sampled replies for each.
            key: seeds the draws together with the example's id and the sample's number, so that a
                sample's draws depend on nothing else.
            greedy: add a greedy reply to each example, after its samples.  In one batch the two
                share whatever tokens they have in common.
        """
        prompts = [tuple(self.chat.encode(example)) for example in examples]
        limit = self.decoding.max_new_tokens
        for batch in self.engine.batches(prompts, n_samples + greedy, limit, self.budget):
            chosen = slice(batch.start, batch.stop)
            yield self._batch(examples[chosen], prompts[chosen], n_samples, key, greedy)

    def _batch(
        self,
        examples: Sequence[Example],
        prompts: Sequence[tuple[int, ...]],
        n_samples: int,
        key: tuple[str | int, ...],
        greedy: bool,
    ) -> list[list[Rollout]]:
        limit = self.decoding.max_new_tokens
        requests = []
        for example, prompt in zip(examples, prompts, strict=True):
            draws = [uniforms(limit, *key, example.id, sample) for sample in range(n_samples)]
            ways = [*draws, *([None] if greedy else [])]
            requests += [Request(prompt, u, self.constraint) for u in ways]
        completions = self.engine.sample(
            requests,
            stop=self.chat.stop_ids,
            max_new_tokens=limit,
            temperature=self.decoding.temperature,
        )
        width = n_samples + greedy
        groups = []
        for i, (example, prompt) in enumerate(zip(examples, prompts, strict=True)):
            groups.append(self._group(example, prompt, completions[i * width : (i + 1) * width], n_samples))
        return groups

    def _group(
        self, example: Example, prompt: tuple[int, ...], completions: Sequence[Completion], n_samples: int
    ) -> list[Rollout]:
        """The rollouts of one example, greedy ones after ``n_samples``.  Equal replies are read once."""
        known: dict[tuple[int, ...], tuple[str, Judgement, int | None]] = {}
        rollouts = []
        for slot, completion in enumerate(completions):
            _check_finite(example, completion)
            if completion.tokens not in known:
                known[completion.tokens] = self._read(example, completion.tokens)
            text, judgement, decision = known[completion.tokens]
            greedy = slot >= n_samples
            sample = slot - n_samples if greedy else slot
            rollouts.append(Rollout(example, sample, prompt, completion, text, judgement, decision, greedy))
        return rollouts

    def _read(self, example: Example, tokens: tuple[int, ...]) -> tuple[str, Judgement, int | None]:
        """A reply's text, its judgement, and the index of the token that decides."""
        text = self.chat.decode(tokens)
        judgement = judge_reply(self.task, example, text)
        return text, judgement, self.chat.decision_index(tokens, judgement)


def _check_finite(example: Example, completion: Completion) -> None:
    if not np.isfinite(completion.logprobs).all():
        raise TrainingError(
            f"the policy's log-probs on {example.id} are not finite: its weights have diverged",
            hint="train again with a smaller train.learning_rate",
        )
