"""Guesses of how a completion goes on, from completions sampled before.

A guess is only ever a proposal: the engine draws from the true distribution and follows the guess
as far as the draws happen to agree with it.  So guesses change how many forward passes sampling
takes, never what is sampled.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence

Tokens = Sequence[int]
Context = tuple[int | None, ...]

ORDER = 6
"""Tokens of context by which a continuation is looked up first."""

SHORTER = (3, 2, 1)
"""Context lengths that are tried in turn where the longer one was never seen."""

KEEP = 512
"""Completions that are remembered; a policy in training says other things than it did before."""

CONFIDENT = 0.8
"""A guess goes on while the whole of it was right at least this often.  A token that is not taken costs
one row of a forward pass, one that is taken saves a pass."""

SURE = 0.9
"""The same, once a shorter context had to stand in: while a policy still says many things, those mislead."""


class Drafter:
    """Remembers recent completions and proposes the continuation most often seen."""

    def __init__(self) -> None:
        self._recent: deque[tuple[int, ...]] = deque()
        self._next: dict[Context, Counter[int]] = {}

    def learn(self, sampled: Iterable[tuple[Tokens, Tokens]]) -> None:
        """Remember prompts with their completions, and forget the oldest beyond `KEEP`."""
        new = [(*prompt[-ORDER:], *completion) for prompt, completion in sampled]
        self._recent.extend(new)
        old = [self._recent.popleft() for _ in range(len(self._recent) - KEEP)]
        self._count(new, 1)
        self._count(old, -1)

    def guess(self, context: Tokens, limit: int) -> list[int]:
        """The most likely continuation of ``context``, at most ``limit`` tokens; may be empty."""
        window = tuple(context[-ORDER:])
        guessed: list[int] = []
        confidence, enough = 1.0, CONFIDENT
        while len(guessed) < limit:
            view = next((view for view in _views(window) if view in self._next), None)
            if view is None:
                break
            seen = self._next[view]
            token, count = seen.most_common(1)[0]
            if view == window:
                confidence *= count / seen.total()
            else:
                confidence *= count / (seen.total() + 1)  # seen once is not enough here
                enough = SURE
            if confidence < enough:
                break
            guessed.append(token)
            window = (*window[1:], token)
        return guessed

    def state(self) -> list[list[int]]:
        """What is remembered, as plain data."""
        return [list(sequence) for sequence in self._recent]

    def load(self, state: Sequence[Sequence[int]]) -> None:
        """Take over a `state`, so that a resumed run lays out its passes like one that was not cut."""
        self._recent = deque(tuple(sequence) for sequence in state)
        self._next.clear()
        self._count(self._recent, 1)

    def _count(self, sequences: Iterable[tuple[int, ...]], change: int) -> None:
        for sequence, times in Counter(sequences).items():
            for end in range(ORDER, len(sequence)):
                for view in _views(sequence[end - ORDER : end]):
                    self._add(view, sequence[end], change * times)

    def _add(self, view: Context, token: int, change: int) -> None:
        seen = self._next.setdefault(view, Counter())
        seen[token] += change
        if not seen[token]:
            del seen[token]
        if not seen:
            del self._next[view]


def _views(window: tuple[int, ...]) -> Iterator[Context]:
    """What a continuation is looked up by, the most telling first.

    The last view leaves the newest token open: after a square that was never played, a call is closed
    like after any other.
    """
    yield window
    for length in SHORTER:
        yield window[-length:]
    yield (*window[:-1], None)
