"""Rollouts: what a policy replied to an example, turn by turn, judged.

Not here: how they are drawn (``sampler``, ``conversation``), and what they are worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ninegrid.tasks.protocol import Example, Judgement
from ninegrid.tree.engine import Completion, Tokens


@dataclass(frozen=True)
class Turn:
    """One reply of the policy within a rollout.

    Attributes:
        start, stop: the half-open range of the completion's tokens that it takes, its stop token included.
        decision: index in the completion of the token that carries the decision; None without a readable
            call.
        outcome: what its call amounted to by itself, for tasks that tell (`Interactive.step_outcomes`),
            else "".
    """

    start: int
    stop: int
    decision: int | None = None
    outcome: str = ""


@dataclass(frozen=True)
class Rollout:
    """A judged conversation: one reply of the policy, or several with what came back between them.

    Attributes:
        prompt: token ids of the prompt.
        completion: all that follows it, token ids as sampled (never re-encoded) with their log-probs and
            entropies; tokens that were not sampled, such as a tool's result, have 0 for both.
        text: the completion as text, without its stop token.
        turns: the policy's replies, in order.
        greedy: each token was the most probable one, instead of drawn.
    """

    example: Example
    sample: int
    prompt: tuple[int, ...]
    completion: Completion
    text: str
    judgement: Judgement
    turns: tuple[Turn, ...]
    greedy: bool = False

    @cached_property
    def sampled(self) -> NDArray[np.bool_]:
        """Which tokens of the completion the policy sampled, [T]."""
        mask = np.zeros(len(self.completion.tokens), dtype=np.bool_)
        for turn in self.turns:
            mask[turn.start : turn.stop] = True
        return mask

    @property
    def n_sampled(self) -> int:
        """Tokens that the policy sampled."""
        return sum(turn.stop - turn.start for turn in self.turns)

    @property
    def decisions(self) -> list[int]:
        """Indices in the completion of the tokens that carry a decision."""
        return [turn.decision for turn in self.turns if turn.decision is not None]

    @property
    def decision_entropy(self) -> float | None:
        """Mean entropy in nats of the distributions from which the deciding tokens were drawn."""
        return float(self.completion.entropies[self.decisions].mean()) if self.decisions else None

    @property
    def truncated(self) -> bool:
        """The last reply was cut at the token limit.  It is judged as it stands, like any other."""
        return self.completion.finish == "length"


def join_turns(
    prompts: Sequence[Tokens], completions: Sequence[Completion]
) -> tuple[Completion, list[range]]:
    """One completion of the first prompt, from the turns of a conversation.

    Args:
        prompts: of each turn; each begins with the prompt before it and what was sampled there.
        completions: what was sampled at each.

    Returns:
        Everything behind the first prompt, with log-prob and entropy 0 for what was not sampled, and the
        range of each turn in it.

    Raises:
        ValueError: a prompt does not go on from the turn before.
    """
    if len(completions) == 1:
        return completions[0], [range(len(completions[0].tokens))]
    tokens, logprobs, entropies = list[int](), list[np.ndarray](), list[np.ndarray]()
    spans = list[range]()
    first = len(prompts[0])
    for prompt, completion in zip(prompts, completions, strict=True):
        said = [*prompts[0], *tokens]
        if list(prompt[: len(said)]) != said:
            raise ValueError("a turn's prompt does not begin with the conversation so far")
        between = prompt[len(said) :] if spans else ()
        silence = np.zeros(len(between), dtype=np.float32)
        start = len(prompt) - first
        spans.append(range(start, start + len(completion.tokens)))
        tokens += [*between, *completion.tokens]
        logprobs += [silence, completion.logprobs]
        entropies += [silence, completion.entropies]
    joined = Completion(
        tuple(tokens), np.concatenate(logprobs), np.concatenate(entropies), completions[-1].finish
    )
    return joined, spans
