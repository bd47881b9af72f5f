"""Sampling and scoring on the tree of distinct tokens.

The whole tree lies in one packed sequence of batch size 1: a token's position is its depth, and
the attention mask lets it see its ancestors only.  While sampling, the key-value cache is the
packed tree itself, so a prefix that splits needs no copy: its children simply see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from ninegrid.tree.draw import draw_tokens
from ninegrid.tree.engine import (
    Completion,
    Draft,
    Pass,
    Request,
    Tokens,
    output_head,
    target_logprobs,
    uniforms_at,
)
from ninegrid.tree.token_tree import Bools, TokenTree


class TreeEngine:
    """The `Engine` that runs every distinct token once."""

    name = "tree"

    def __init__(self, model: Any) -> None:
        self._model = model
        self._head = output_head(model)

    @torch.no_grad()
    def sample(
        self, requests: Sequence[Request], *, stop: frozenset[int], max_new_tokens: int, temperature: float
    ) -> list[Completion]:
        """See `Engine.sample`."""
        frontier, row_S = self._prefill([request.prompt for request in requests])
        drafts = [Draft() for _ in requests]
        live = list(range(len(requests)))
        for position in range(max_new_tokens):
            uniform = uniforms_at(requests, live, position)
            drawn = draw_tokens(self._head(frontier.hidden), row_S, uniform, temperature)
            tokens = [drafts[sample].take(drawn, i) for i, sample in enumerate(live)]
            going = [i for i, s in enumerate(live) if not drafts[s].finished(stop, max_new_tokens)]
            if not going:
                break
            row_S = self._advance(frontier, [(row_S[i], tokens[i]) for i in going])
            live = [live[i] for i in going]
        return [draft.done(stop) for draft in drafts]

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

    def _prefill(self, prompts: Sequence[Tokens]) -> tuple[_Frontier, list[int]]:
        """Run the distinct prompts; returns the frontier and the row that each request stands on."""
        tree = TokenTree()
        leaves = [tree.add(prompt)[-1] for prompt in prompts]
        distinct = list(dict.fromkeys(leaves))
        sees = tree.attends()
        cache = _new_cache(self._model)
        hidden_NH = self._forward(tree.tokens, tree.depths, sees, cache)
        frontier = _Frontier(cache, sees[distinct], tree.depths[distinct], hidden_NH[distinct])
        row_of = {leaf: row for row, leaf in enumerate(distinct)}
        return frontier, [row_of[leaf] for leaf in leaves]

    def _advance(self, frontier: _Frontier, steps: Sequence[tuple[int, int]]) -> list[int]:
        """Run one token below each distinct (row, token); returns the new row of each sample."""
        distinct = list(dict.fromkeys(steps))
        parents = [row for row, _ in distinct]
        sees = frontier.extend(parents)
        tokens = np.asarray([token for _, token in distinct], dtype=np.int64)
        frontier.hidden = self._forward(tokens, frontier.depths, sees, frontier.cache)
        row_of = {step: row for row, step in enumerate(distinct)}
        return [row_of[step] for step in steps]

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


class _Frontier:
    """The live prefixes of a batch that is being sampled: what they see, and their hidden states."""

    def __init__(self, cache: Cache, sees_RN: Bools, depths_R: NDArray[np.int64], hidden_RH: Tensor) -> None:
        self.cache = cache
        self.sees = sees_RN
        self.depths = depths_R
        self.hidden = hidden_RH

    def extend(self, parents: Sequence[int]) -> Bools:
        """Replace the rows by one new token below each of ``parents``; returns what these see."""
        rows = len(parents)
        self.sees = np.concatenate([self.sees[parents], np.eye(rows, dtype=np.bool_)], axis=1)
        self.depths = self.depths[parents] + 1
        return self.sees


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
