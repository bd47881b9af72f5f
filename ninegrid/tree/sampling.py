"""Completions on their way down the tree.

Which tokens to run next, and which token each sample draws, is decided here; the model itself is
run by the engine.  A sample's draw depends on its own uniforms and on the true distribution alone,
whatever was guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ninegrid.tree.constraint import restrict
from ninegrid.tree.drafter import ORDER, Drafter
from ninegrid.tree.draw import draw_tokens
from ninegrid.tree.engine import Completion, Draft, Request
from ninegrid.tree.few_rows import few_rows
from ninegrid.tree.token_tree import TokenTree

LOGITS_AT_ONCE = 256
"""Positions whose logits are held at once while sampling (times the vocabulary, in float32)."""


class Walk:
    """All completions of a batch, from their prompts to their ends.

    Args:
        requests: what to sample.
        trunk: tokens at the beginning of every prompt that are not in the tree.
        head: the output layer.
        drafter: guesses.
        stop: tokens that end a completion.
        max_new_tokens: the longest completion.
        temperature: divides the logits.

    Attributes:
        tree: of the tokens beyond the trunk.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        trunk: int,
        head: torch.nn.Module,
        drafter: Drafter,
        stop: frozenset[int],
        max_new_tokens: int,
        temperature: float,
    ) -> None:
        self.tree = TokenTree()
        self._head, self._drafter, self._stop = head, drafter, stop
        self._limit, self._temperature = max_new_tokens, temperature
        self._walkers = [_Walker(request, self.tree.add(request.prompt[trunk:])[-1]) for request in requests]
        self._live = self._walkers
        self._run = 0

    @property
    def goes_on(self) -> bool:
        """Whether any completion is unfinished."""
        return bool(self._live)

    def propose(self) -> int:
        """Add guesses to the tree; the nodes from the returned one on are to be run next."""
        self._landing = [walker.node for walker in self._live]
        for walker in self._live:
            room = self._limit - len(walker.draft.tokens) - 1
            guess = self._drafter.guess(walker.context, room)
            going_on = takewhile(lambda token: token not in self._stop, guess)
            self._landing += self.tree.add(going_on, walker.node)
        return self._run

    def go(self, hidden_RH: Tensor) -> None:
        """Draw until every completion is finished or stands on a token that has not been run.

        Args:
            hidden_RH: last hidden states of the nodes from the one that `propose` returned on.
        """
        logits = _Logits(self._head, hidden_RH, self._run, self._landing)
        self._run = len(self.tree)
        walking, waiting = self._live, list[_Walker]()
        while walking:
            going: list[_Walker] = []
            for walker in self._step(logits, walking):
                (going if walker.node < self._run else waiting).append(walker)
            walking = going
        self._live = waiting

    def finish(self) -> list[Completion]:
        """The completions, in the order of the requests; the drafter learns them."""
        self._drafter.learn((walker.request.prompt, walker.draft.tokens) for walker in self._walkers)
        return [walker.draft.done(self._stop) for walker in self._walkers]

    def _step(self, logits: _Logits, walking: list[_Walker]) -> list[_Walker]:
        """Draw one token for each and return those that are not finished by it."""
        nodes, row_S = np.unique([walker.node for walker in walking], return_inverse=True)
        uniform_S = np.asarray([walker.uniform() for walker in walking])
        rows_RV, standing_S = restrict(
            logits.at(nodes),
            row_S.tolist(),
            [walker.request.constraint for walker in walking],
            [walker.draft.tokens for walker in walking],
        )
        drawn = draw_tokens(rows_RV, standing_S, uniform_S, self._temperature)
        going = []
        for index, walker in enumerate(walking):
            token = walker.draft.take(drawn, index)
            if not walker.draft.finished(self._stop, self._limit):
                walker.node = self.tree.child(walker.node, token)
                going.append(walker)
        return going


class _Walker:
    """One completion on its way."""

    def __init__(self, request: Request, node: int) -> None:
        self.request = request
        self.node = node
        self.draft = Draft()

    @property
    def context(self) -> list[int]:
        """The last `ORDER` tokens of prompt and completion so far."""
        return [*self.request.prompt[-ORDER:], *self.draft.tokens[-ORDER:]][-ORDER:]

    def uniform(self) -> float:
        """What decides the next token."""
        return self.request.uniform(len(self.draft.tokens))


class _Logits:
    """Next-token logits at the nodes of one pass that draws may come to.

    They are made for all of them at once, since a call of the head reads all its weights; beyond
    `LOGITS_AT_ONCE` nodes only where draws do come.
    """

    def __init__(self, head: torch.nn.Module, hidden_RH: Tensor, start: int, nodes: Sequence[int]) -> None:
        self._head, self._hidden_RH, self._start = head, hidden_RH, start
        self._nodes = np.unique(nodes)
        self._made = self._make(self._nodes) if len(self._nodes) <= LOGITS_AT_ONCE else None

    def at(self, nodes: NDArray[np.int64]) -> Tensor:
        """Logits at sorted ``nodes``, [len(nodes), V]."""
        # A prompt may go on where another one ends: then draws come to its tokens too.
        if self._made is None or not np.isin(nodes, self._nodes).all():
            return self._make(nodes)
        index = torch.from_numpy(np.searchsorted(self._nodes, nodes))
        return self._made[index.to(self._made.device)]

    def _make(self, nodes: NDArray[np.int64]) -> Tensor:
        rows = torch.from_numpy(nodes - self._start).to(self._hidden_RH.device)
        with few_rows(len(nodes)):
            return self._head(self._hidden_RH[rows])
