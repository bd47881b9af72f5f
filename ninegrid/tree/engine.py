"""What an engine does, whichever way it lays out its forward passes.

`TreeEngine` and `PaddedEngine` implement `Engine`; they know token ids only, neither text nor
tasks.  Both compute the same numbers up to float rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ninegrid.tree.constraint import Constraint
from ninegrid.tree.draw import GREEDY, Drawn, Floats

Tokens = Sequence[int]

Loss = Callable[[range, Tensor], Tensor]
"""Which sequences, and their log-probs [S, T] -> a scalar with gradient."""

HEAD_CHUNK = 256
"""Positions whose logits are held at once when scoring (times the vocabulary, in float32)."""


@dataclass(frozen=True)
class Completion:
    """A sampled completion.

    Attributes:
        tokens: ids as sampled, [T]; the stop token is the last one when ``finish`` is "stop".
        logprobs: log-probability of each token under the sampling policy, [T], in nats.
        entropies: entropy of the distribution each token was drawn from, [T], in nats.
        finish: "stop", or "length" when the token limit cut it.
    """

    tokens: tuple[int, ...]
    logprobs: NDArray[np.float32]
    entropies: NDArray[np.float32]
    finish: Literal["stop", "length"]


@dataclass(frozen=True)
class Request:
    """A completion to sample.

    Attributes:
        prompt: token ids.
        uniforms: what decides each token, [max_new_tokens], or None for greedy.
        constraint: what the completion may say; log-probs and entropies are then those of the
            distribution over what is allowed.  None allows everything.
        then: called with the completion once it is finished; what it returns is sampled next, in the same
            call of `Engine.sample`, and None ends it.  A conversation goes on in this way: its next
            prompt is this one, the completion and what was answered.
    """

    prompt: Tokens
    uniforms: Floats | None
    constraint: Constraint | None = None
    then: Callable[[Completion], Request | None] | None = None

    def uniform(self, position: int) -> float:
        """What decides the token at ``position``: its uniform, or `GREEDY`."""
        return GREEDY if self.uniforms is None else float(self.uniforms[position])

    def next(self, completion: Completion) -> Request | None:
        """What is to be sampled after ``completion``."""
        return None if self.then is None else self.then(completion)


@dataclass(frozen=True)
class Pass:
    """A run of sequences that are scored together, and the tokens this puts through the model."""

    members: range
    tokens: int


class Engine(Protocol):
    """Samples from a policy and scores under it."""

    name: str

    def sample(
        self, requests: Sequence[Request], *, stop: frozenset[int], max_new_tokens: int, temperature: float
    ) -> list[Completion]:
        """Sample every request, and what follows it, without gradients.

        Equal prompts share their computation.

        Returns:
            The completion of each request; where it was followed by others, the last one.
        """
        ...

    def logprobs(
        self, prompts: Sequence[Tokens], completions: Sequence[Tokens], temperature: float
    ) -> Tensor:
        """Log-probs of the completions' tokens with gradients, [S, T], 0 beyond each length."""
        ...

    def backward(
        self,
        prompts: Sequence[Tokens],
        completions: Sequence[Tokens],
        temperature: float,
        budget: int,
        loss: Loss,
    ) -> int:
        """Add the gradient of a loss over sequences to the parameters' ``grad``.

        Args:
            prompts, completions: the sequences.
            temperature: divides the logits.
            budget: tokens that may go through the model at once; see `passes`.
            loss: called once for each pass with the sequences in it and their log-probs, as `logprobs`
                gives them; the losses of all passes add up.

        Returns:
            The tokens that went through the model.
        """
        ...

    def state(self) -> list[list[int]]:
        """What the engine remembers from one batch to the next, as plain data for a checkpoint."""
        ...

    def load(self, state: list[list[int]]) -> None:
        """Take over a `state`."""
        ...

    def release(self) -> None:
        """Let go of everything that is kept beside `state`."""
        ...

    def batches(self, prompts: Sequence[Tokens], width: int, max_new_tokens: int, budget: int) -> list[range]:
        """Split prompts, in order, into calls of `sample` that hold at most ``budget`` tokens at once.

        Counted as if each of the ``width`` completions of a prompt had ``max_new_tokens`` tokens and shared
        none with another: what a call holds then depends on the settings, not on the policy.  A prompt
        that is too large still gets a call of its own.
        """
        ...

    def passes(self, prompts: Sequence[Tokens], completions: Sequence[Tokens], budget: int) -> list[Pass]:
        """Split sequences, in order, into calls of `logprobs` that run at most ``budget`` tokens.

        A single sequence that is longer than the budget still gets a pass of its own.
        """
        ...


def split(count: int, tokens: Callable[[int, int], int], budget: int) -> list[range]:
    """Cut ``count`` items, in order, into runs of at most ``budget`` tokens; a larger item stands alone.

    Args:
        tokens: ``tokens(first, index)`` is what item ``index`` adds to a run that begins with ``first``.
    """
    runs: list[range] = []
    first = total = 0
    for index in range(count):
        total += tokens(first, index)
        if total > budget and index > first:
            runs.append(range(first, index))
            first, total = index, tokens(index, index)
    return [*runs, range(first, count)] if count else []


class Draft:
    """A completion while it is being sampled."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.logprobs: list[float] = []
        self.entropies: list[float] = []

    def take(self, drawn: Drawn, index: int) -> int:
        """Append the token drawn for sample ``index`` and return it."""
        token = drawn.tokens_S[index]
        self.tokens.append(token)
        self.logprobs.append(float(drawn.logprobs_S[index]))
        self.entropies.append(float(drawn.entropies_S[index]))
        return token

    def finished(self, stop: frozenset[int], limit: int) -> bool:
        return self.tokens[-1] in stop or len(self.tokens) >= limit

    def done(self, stop: frozenset[int]) -> Completion:
        return Completion(
            tokens=tuple(self.tokens),
            logprobs=np.asarray(self.logprobs, dtype=np.float32),
            entropies=np.asarray(self.entropies, dtype=np.float32),
            finish="stop" if self.tokens[-1] in stop else "length",
        )


def target_logprobs(
    hidden_PH: Tensor, head: torch.nn.Module, row_E: Tensor, target_E: Tensor, temperature: float
) -> Tensor:
    """Log-probs of given next tokens, computing logits a chunk of positions at a time.

    Args:
        hidden_PH: last hidden states at P positions.
        head: the output layer, [H] -> [V].
        row_E: position of each wanted log-prob, non-decreasing.
        target_E: token of each wanted log-prob.

    Returns:
        [E] float32.  Beyond one chunk, logits are recomputed in the backward pass, so memory
        grows with `HEAD_CHUNK` × V and not with P × V.
    """

    def block(hidden_CH: Tensor, row: Tensor, target: Tensor) -> Tensor:
        logits_CV = head(hidden_CH).float() / temperature
        return logits_CV[row, target] - torch.logsumexp(logits_CV, dim=-1)[row]

    if hidden_PH.shape[0] <= HEAD_CHUNK:
        return block(hidden_PH, row_E, target_E)
    chunks = torch.split(hidden_PH, HEAD_CHUNK)
    # The rows are sorted, so each chunk's targets are a run of them.  One read by the host serves all chunks.
    counts = torch.bincount(row_E // HEAD_CHUNK, minlength=len(chunks)).tolist()
    parts = [
        # Nothing is drawn in there, so there is no generator to set back.
        checkpoint(block, chunk, rows % HEAD_CHUNK, targets, use_reentrant=False, preserve_rng_state=False)
        for chunk, rows, targets in zip(
            chunks, torch.split(row_E, counts), torch.split(target_E, counts), strict=True
        )
    ]
    return torch.cat(parts)


def output_head(model: Any) -> torch.nn.Module:
    """The layer that turns hidden states into logits."""
    head: torch.nn.Module = model.get_output_embeddings()
    cap = getattr(model.config, "final_logit_softcapping", None)
    return head if cap is None else _Capped(head, cap)


class _Capped(torch.nn.Module):
    """An output layer whose logits are bent to lie within -cap and cap, as Gemma does."""

    def __init__(self, head: torch.nn.Module, cap: float) -> None:
        super().__init__()
        self._head, self._cap = head, cap

    def forward(self, hidden: Tensor) -> Tensor:
        """Hidden states to capped logits."""
        return self._cap * torch.tanh(self._head(hidden) / self._cap)
