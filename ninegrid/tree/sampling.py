"""Completions on their way down the tree.

Which tokens to run next, and which token each sample draws, is decided here; the model itself is
run by the engine.  A sample's draw depends on its own uniforms and on the true distribution alone,
whatever was guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """All completions of a batch, from their prompts to their ends, and those that follow them.

    Args:
        requests: what to sample, by the slot that the completion goes to.
        trunk: tokens at the beginning of every prompt that are not in the tree.
        head: the output layer.
        drafter: guesses.
        stop: tokens that end a completion.
        max_new_tokens: the longest completion.
        temperature: divides the logits.

    Attributes:
        tree: of the tokens beyond the trunk.
        elsewhere: requests that followed a completion of the slot but do not begin with the trunk.
    """

    def __init__(
        self,
        requests: Mapping[int, Request],
        trunk: Sequence[int],
        head: torch.nn.Module,
        drafter: Drafter,
        stop: frozenset[int],
        max_new_tokens: int,
        temperature: float,
    ) -> None:
        self.tree = TokenTree()
        self.elsewhere: dict[int, Request] = {}
        self._trunk = list(trunk)
        self._head, self._drafter, self._stop = head, drafter, stop
        self._limit, self._temperature = max_new_tokens, temperature
        self._finished: list[tuple[_Walker, Completion]] = []
        self._live = [self._walker(slot, request) for slot, request in requests.items()]
        self._hidden: list[Tensor] = []
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
        self._hidden.append(hidden_RH)
        logits = _Logits(self._head, self._hidden, self._run, self._landing)
        self._run = len(self.tree)
        walking, waiting = self._live, list[_Walker]()
        while walking:
            going: list[_Walker] = []
            for walker in self._step(logits, walking):
                (going if walker.node < self._run else waiting).append(walker)
            walking = going
        self._live = waiting

    def finish(self) -> dict[int, Completion]:
        """The last completion of each slot; the drafter learns all of them, slot after slot."""
        self._finished.sort(key=lambda finished: finished[0].slot)
        self._drafter.learn((walker.request.prompt, said.tokens) for walker, said in self._finished)
        return {walker.slot: said for walker, said in self._finished}

    def _walker(self, slot: int, request: Request) -> _Walker:
        return _Walker(slot, request, self.tree.add(request.prompt[len(self._trunk) :])[-1])

    def _follow(self, walker: _Walker) -> list[_Walker]:
        """Who goes on where ``walker`` has finished: one, or none."""
        completion = walker.draft.done(self._stop)
        self._finished.append((walker, completion))
        request = walker.request.next(completion)
        if request is None:
            return []
        if list(request.prompt[: len(self._trunk)]) != self._trunk or len(request.prompt) == len(self._trunk):
            self.elsewhere[walker.slot] = request
            return []
        return [self._walker(walker.slot, request)]

    def _step(self, logits: _Logits, walking: list[_Walker]) -> list[_Walker]:
        """Draw one token for each and return those that go on, or follow one that was finished by it."""
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
            if walker.draft.finished(self._stop, self._limit):
                going += self._follow(walker)
            else:
                walker.node = self.tree.child(walker.node, token)
                going.append(walker)
        return going


class _Walker:
    """One completion on its way."""

    def __init__(self, slot: int, request: Request, node: int) -> None:
        self.slot = slot
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
    """Next-token logits at the nodes that draws may come to.

    They are made at once for all of the newest pass, since a call of the head reads all its weights; beyond
    `LOGITS_AT_ONCE` nodes only where draws do come.

    Args:
        head: the output layer.
        passes: last hidden states of each pass so far, [R, H].
        start: the first node of the newest pass.
        nodes: to which draws of this pass are likely to come.
    """

    def __init__(self, head: torch.nn.Module, passes: list[Tensor], start: int, nodes: Sequence[int]) -> None:
        self._head, self._passes, self._start = head, passes, start
        self._nodes = np.unique(nodes)
        self._made = self._make(self._nodes) if len(self._nodes) <= LOGITS_AT_ONCE else None

    def at(self, nodes: NDArray[np.int64]) -> Tensor:
        """Logits at sorted ``nodes``, [len(nodes), V]."""
        # A prompt may go on where another one ends, and one that follows a completion may have been run
        # by an earlier pass: then draws come to those tokens too.
        if self._made is None or not np.isin(nodes, self._nodes).all():
            return self._make(nodes)
        index = torch.from_numpy(np.searchsorted(self._nodes, nodes))
        return self._made[index.to(self._made.device)]

    def _make(self, nodes: NDArray[np.int64]) -> Tensor:
        newest = len(nodes) == 0 or nodes[0] >= self._start
        hidden_RH, first = (self._passes[-1], self._start) if newest else (torch.cat(self._passes), 0)
        rows = torch.from_numpy(nodes - first).to(hidden_RH.device)
        with few_rows(len(nodes), hidden_RH.device):
            return self._head(hidden_RH[rows])
