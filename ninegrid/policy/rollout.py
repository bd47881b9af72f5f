"""Rollouts: what a policy replied to an example, judged.

Training and evaluation sample through the same code, so a reply is rendered, drawn, decoded
and judged in one way only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ninegrid.chat.format import ChatFormat
from ninegrid.chat.judging import judge_reply
from ninegrid.tasks.protocol import Example, Judgement, Task
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
        decision_entropy: entropy in nats of the distribution from which the token that carries
            the decision was drawn; None without a readable call.
    """

    example: Example
    sample: int
    prompt: tuple[int, ...]
    completion: Completion
    text: str
    judgement: Judgement
    decision_entropy: float | None

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
        prompts_per_batch: how many examples are sampled together.
    """

    def __init__(
        self, engine: Engine, chat: ChatFormat, task: Task, decoding: DecodingSettings, prompts_per_batch: int
    ) -> None:
        self.engine, self.chat, self.task = engine, chat, task
        self.decoding, self.prompts_per_batch = decoding, prompts_per_batch

    def groups(
        self, examples: Sequence[Example], n_samples: int, key: tuple[str | int, ...] | None
    ) -> Iterator[list[list[Rollout]]]:
        """Yield, batch by batch, the ``n_samples`` rollouts of each example.

        Args:
            examples: what is asked.
            n_samples: replies for each.
            key: seeds the draws together with the example's id and the sample's number, so that a
                sample's draws depend on nothing else; None for greedy decoding.
        """
        for start in range(0, len(examples), self.prompts_per_batch):
            yield self._batch(examples[start : start + self.prompts_per_batch], n_samples, key)

    def _batch(
        self, examples: Sequence[Example], n_samples: int, key: tuple[str | int, ...] | None
    ) -> list[list[Rollout]]:
        limit = self.decoding.max_new_tokens
        prompts = [tuple(self.chat.encode(example)) for example in examples]
        requests = [
            Request(prompt, None if key is None else uniforms(limit, *key, example.id, sample))
            for example, prompt in zip(examples, prompts, strict=True)
            for sample in range(n_samples)
        ]
        completions = self.engine.sample(
            requests,
            stop=self.chat.stop_ids,
            max_new_tokens=limit,
            temperature=self.decoding.temperature,
        )
        return [
            [self._judged(example, s, prompt, completions[i * n_samples + s]) for s in range(n_samples)]
            for i, (example, prompt) in enumerate(zip(examples, prompts, strict=True))
        ]

    def _judged(
        self, example: Example, sample: int, prompt: tuple[int, ...], completion: Completion
    ) -> Rollout:
        text = self.chat.decode(completion.tokens)
        judgement = judge_reply(self.task, example, text)
        index = self.chat.decision_index(completion.tokens, judgement)
        entropy = None if index is None else float(completion.entropies[index])
        return Rollout(example, sample, prompt, completion, text, judgement, entropy)
