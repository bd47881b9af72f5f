"""Sampling and scoring on the tree of distinct tokens.

The whole tree lies in one packed sequence of batch size 1: a token's position is its depth, and
the attention mask lets it see its ancestors only.  While sampling, the key-value cache is the
packed tree itself, so a prefix that splits needs no copy: its children simply see it.  Guesses that
were not taken stay in the cache unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from ninegrid.tree.drafter import ORDER, Drafter
from ninegrid.tree.draw import draw_tokens
from ninegrid.tree.engine import (
    Completion,
    Draft,
    Pass,
    Request,
    Tokens,
    output_head,
    target_logprobs,
)
from ninegrid.tree.token_tree import Bools, TokenTree

LOGITS_AT_ONCE = 256
"""Positions whose logits are held at once while sampling (times the vocabulary, in float32)."""

Forward = Callable[[NDArray[np.int64], NDArray[np.int64], Bools, Cache], Tensor]
"""Tokens, depths and visibility of R nodes, and the cache they are appended to -> hidden states [R, H]."""


class TreeEngine:
    """The `Engine` that runs every distinct token once."""

    name = "tree"

    def __init__(self, model: Any) -> None:
        self._model = model
        self._head = output_head(model)
        self._drafter = Drafter()

    @torch.no_grad()
    def sample(
        self, requests: Sequence[Request], *, stop: frozenset[int], max_new_tokens: int, temperature: float
    ) -> list[Completion]:
        """See `Engine.sample`.

        In each pass the drawn tokens run together with guesses of what follows them; draws then
        go down the tree for as long as they find their token already run.
        """
        packed = _PackedTree(self._forward, _new_cache(self._model))
        walkers = [_Walker(request, packed.tree.add(request.prompt)[-1]) for request in requests]
        live = walkers
        while live:
            nodes = [walker.node for walker in live]
            for walker in live:
                guess = self._drafter.guess(walker.context, max_new_tokens - len(walker.draft.tokens) - 1)
                nodes += packed.tree.add(takewhile(lambda token: token not in stop, guess), walker.node)
            logits = _Logits(self._head, packed.run(), nodes)
            live = self._walk(packed, logits, live, stop, max_new_tokens, temperature)
        for walker in walkers:
            self._drafter.learn(walker.request.prompt, walker.draft.tokens)
        return [walker.draft.done(stop) for walker in walkers]

    def _walk(
        self,
        packed: _PackedTree,
        logits: _Logits,
        walking: list[_Walker],
        stop: frozenset[int],
        max_new_tokens: int,
        temperature: float,
    ) -> list[_Walker]:
        """Draw until every completion is finished or stands on a token that has not been run."""
        waiting: list[_Walker] = []
        while walking:
            nodes, row_S = np.unique([walker.node for walker in walking], return_inverse=True)
            uniform_S = np.asarray([walker.uniform() for walker in walking])
            logits_RV = logits.at(nodes)
            drawn = draw_tokens(logits_RV, row_S.tolist(), uniform_S, temperature)
            going: list[_Walker] = []
            for index, walker in enumerate(walking):
                token = walker.draft.take(drawn, index)
                if walker.draft.finished(stop, max_new_tokens):
                    continue
                walker.node = packed.tree.child(walker.node, token)
                (going if packed.has_run(walker.node) else waiting).append(walker)
            walking = going
        return waiting

    def state(self) -> list[list[int]]:
        """See `Engine.state`."""
        return self._drafter.state()

    def load(self, state: list[list[int]]) -> None:
        """See `Engine.load`."""
        self._drafter.load(state)

    def logprobs(
        self, prompts: Sequence[Tokens], completions: Sequence[Tokens], temperature: float
    ) -> Tensor:
        """See `Engine.logprobs`."""
        tree = TokenTree()
        paths = []
        for prompt, completion in zip(prompts, completions, strict=True):
            leaf = tree.add(prompt)[-1]
            paths.append(tree.add(completion, under=leaf))
        hidden_NH = self._forward(tree.tokens, tree.depths, tree.attends())
        node_E = np.unique(np.concatenate([np.asarray(path) for path in paths]))
        edge_logp_E = self._edge_logprobs(hidden_NH, tree, node_E, temperature)
        return _gather_paths(edge_logp_E, node_E, paths)

    def passes(self, prompts: Sequence[Tokens], completions: Sequence[Tokens], budget: int) -> list[Pass]:
        """See `Engine.passes`."""
        passes: list[Pass] = []
        tree, start, tokens = TokenTree(), 0, 0
        for index, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
            tree.add([*prompt, *completion])
            if len(tree) > budget and index > start:
                passes.append(Pass(range(start, index), tokens))
                tree, start = TokenTree(), index
                tree.add([*prompt, *completion])
            tokens = len(tree)
        return [*passes, Pass(range(start, len(prompts)), tokens)] if len(prompts) else []

    def _forward(
        self,
        tokens_R: NDArray[np.int64],
        depths_R: NDArray[np.int64],
        sees_RN: Bools,
        cache: Cache | None = None,
    ) -> Tensor:
        """Last hidden states of R packed tokens that see columns of N cached and new ones, [R, H]."""
        model, device = self._model, self._model.device
        mask = torch.zeros(sees_RN.shape, dtype=model.dtype, device=device)
        mask.masked_fill_(torch.from_numpy(~sees_RN).to(device), torch.finfo(model.dtype).min)
        output = model.base_model(
            input_ids=torch.from_numpy(tokens_R)[None].to(device),
            position_ids=torch.from_numpy(depths_R)[None].to(device),
            attention_mask=mask[None, None],
            cache=cache,
            use_cache=cache is not None,
        )
        return output.last_hidden_state[0]

    def _edge_logprobs(
        self, hidden_NH: Tensor, tree: TokenTree, node_E: NDArray[np.int64], temperature: float
    ) -> Tensor:
        """Log-prob of each node given its parent, [E]; logits are made once per distinct parent."""
        parent_E = tree.parents[node_E]
        order = np.argsort(parent_E, kind="stable")
        parent_P, row_E = np.unique(parent_E[order], return_inverse=True)
        device = hidden_NH.device
        sorted_E = target_logprobs(
            hidden_NH[torch.from_numpy(parent_P).to(device)],
            self._head,
            torch.from_numpy(row_E).to(device),
            torch.from_numpy(tree.tokens[node_E][order]).to(device),
            temperature,
        )
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return sorted_E[torch.from_numpy(back).to(device)]


class _Walker:
    """A completion on its way down the tree."""

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


class _PackedTree:
    """A tree whose nodes are run through the model in the order in which they were added.

    The key-value cache holds them in that order too: a node's number is its column.
    """

    def __init__(self, forward: Forward, cache: Cache) -> None:
        self.tree = TokenTree()
        self._forward, self._cache = forward, cache
        self._run = 0

    def run(self) -> _Hidden:
        """Run the nodes added since the last time."""
        start, tree = self._run, self.tree
        hidden = self._forward(tree.tokens[start:], tree.depths[start:], tree.attends(start), self._cache)
        self._run = len(tree)
        return _Hidden(start, hidden)

    def has_run(self, node: int) -> bool:
        return node < self._run


@dataclass(frozen=True)
class _Hidden:
    """Last hidden states of the nodes from ``start`` on, [R, H]."""

    start: int
    states: Tensor


class _Logits:
    """Next-token logits at the nodes of one pass that draws may come to.

    They are made for all of them at once, since a call of the head reads all its weights; beyond
    `LOGITS_AT_ONCE` nodes only where draws do come.
    """

    def __init__(self, head: torch.nn.Module, hidden: _Hidden, nodes: Sequence[int]) -> None:
        self._head, self._hidden = head, hidden
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
        index = torch.from_numpy(nodes - self._hidden.start).to(self._hidden.states.device)
        return self._head(self._hidden.states[index])


class _PackedLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """Keys and values of the packed tree in a buffer that doubles, so a step copies no old token."""

    is_sliding = False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._used = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.keys, self.values = _grown(key_states, None, 0), _grown(value_states, None, 0)
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        end = self._used + key_states.shape[2]
        if end > self.keys.shape[2]:
            self.keys = _grown(key_states, self.keys, self._used)
            self.values = _grown(value_states, self.values, self._used)
        self.keys[:, :, self._used : end] = key_states
        self.values[:, :, self._used : end] = value_states
        self._used = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._used + query_length, 0

    def get_seq_length(self) -> int:
        return self._used

    def get_max_length(self) -> int:
        return -1


def _grown(states: Tensor, old: Tensor | None, used: int) -> Tensor:
    """A buffer with room for twice the tokens there will be, holding the ``used`` old ones."""
    batch, heads, length, width = states.shape
    buffer = states.new_empty(batch, heads, 2 * (used + length), width)
    if old is not None:
        buffer[:, :, :used] = old[:, :, :used]
    return buffer


def _new_cache(model: Any) -> Cache:
    return Cache(layers=[_PackedLayer() for _ in range(model.config.num_hidden_layers)])


def _gather_paths(edge_logp_E: Tensor, node_E: NDArray[np.int64], paths: Sequence[Sequence[int]]) -> Tensor:
    """Spread log-probs of distinct edges over the sequences that take them, [S, T], 0 beyond."""
    width = max(map(len, paths))
    index = np.full((len(paths), width), len(node_E), dtype=np.int64)
    for row, path in enumerate(paths):
        index[row, : len(path)] = np.searchsorted(node_E, path)
    padded = torch.cat([edge_logp_E, edge_logp_E.new_zeros(1)])
    return padded[torch.from_numpy(index).to(edge_logp_E.device)]
