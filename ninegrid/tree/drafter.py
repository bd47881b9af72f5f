"""Guesses of how a completion goes on, from completions sampled before.

A guess is only ever a proposal: the engine draws from the true distribution and follows the guess
as far as the draws happen to agree with it.  So guesses change how many forward passes sampling
takes, never what is sampled.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

Tokens = Sequence[int]

ORDER = 6
"""Tokens of context by which a continuation is looked up."""

KEEP = 512
"""Completions that are remembered; a policy in training says other things than it did before."""

CONFIDENT = 0.8
"""A guess goes on while the whole of it was right at least this often.  A token that is not taken costs
one row of a forward pass, one that is taken saves a pass."""


class Drafter:
    """Remembers recent completions and proposes the continuation most often seen."""

    def __init__(self) -> None:
        self._recent: deque[tuple[int, ...]] = deque()
        self._next: dict[tuple[int, ...], Counter[int]] = {}

    def learn(self, prompt: Tokens, completion: Tokens) -> None:
        """Remember a completion, and forget the oldest beyond `KEEP`."""
        sequence = (*prompt[-ORDER:], *completion)
        self._recent.append(sequence)
        self._count(sequence, 1)
        if len(self._recent) > KEEP:
            self._count(self._recent.popleft(), -1)

    def guess(self, context: Tokens, limit: int) -> list[int]:
        """The most likely continuation of ``context``, at most ``limit`` tokens; may be empty."""
        window = tuple(context[-ORDER:])
        guessed: list[int] = []
        confidence = 1.0
        while len(guessed) < limit:
            seen = self._next.get(window)
            if not seen:
                break
            token, count = seen.most_common(1)[0]
            confidence *= count / seen.total()
            if confidence < CONFIDENT:
                break
            guessed.append(token)
            window = (*window[1:], token)
        return guessed

    def state(self) -> list[list[int]]:
        """What is remembered, as plain data."""
        return [list(sequence) for sequence in self._recent]

    def load(self, state: Sequence[Sequence[int]]) -> None:
        """Take over a `state`, so that a resumed run lays out its passes like one that was not cut."""
        self._recent.clear()
        self._next.clear()
        for sequence in state:
            self._recent.append(tuple(sequence))
            self._count(tuple(sequence), 1)

    def _count(self, sequence: tuple[int, ...], change: int) -> None:
        for end in range(ORDER, len(sequence)):
            seen = self._next.setdefault(sequence[end - ORDER : end], Counter())
            seen[sequence[end]] += change
            if not seen[sequence[end]]:
                del seen[sequence[end]]
