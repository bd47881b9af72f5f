"""Sampling and scoring on the tree of distinct tokens.

The trunk, which all prompts share, is run once; everything beyond it is a packed sequence of tree
nodes of batch size 1, in which a token's position is its depth and attention reaches the trunk and
the node's own path only.  A prefix that splits needs no copy: its children simply see it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ninegrid.tree.attention import Attending, skip_mask, take_over_attention
from ninegrid.tree.drafter import Drafter
from ninegrid.tree.embedding import Embedding
from ninegrid.tree.engine import (
    Completion,
    Loss,
    Pass,
    Request,
    Tokens,
    output_head,
    split,
    target_logprobs,
)
from ninegrid.tree.few_rows import few_rows
from ninegrid.tree.nodes import GrowingTree, WholeTree
from ninegrid.tree.recompute import recomputed
from ninegrid.tree.sampling import Walk
from ninegrid.tree.token_tree import Ints, TokenTree, common_length
from ninegrid.tree.trunk import Trunk, TrunkKeeper, TrunkPass, shared_beginning

Lookup = Callable[[Tensor], Tensor]
"""Token ids [R] -> embeddings [R, H]."""


class TreeEngine:
    """The `Engine` that runs every distinct token once.

    Args:
        model: a transformers model.
        checkpoint_layers: recompute the layers in the backward pass; see `ninegrid.tree.recompute`.
    """

    name = "tree"

    def __init__(self, model: Any, *, checkpoint_layers: bool = False) -> None:
        take_over_attention(model)
        self._recompute = checkpoint_layers
        self._model = model
        self._head = output_head(model)
        self._embedding = Embedding(model)
        self._groups = model.config.num_attention_heads // model.config.num_key_value_heads
        self._like = torch.empty(0, dtype=model.dtype, device=model.device)
        self._drafter = Drafter()
        self._trunks = TrunkKeeper(model)

    def sample(
        self, requests: Sequence[Request], *, stop: frozenset[int], max_new_tokens: int, temperature: float
    ) -> list[Completion]:
        """See `Engine.sample`.

        In each pass the drawn tokens run together with guesses of what follows them; draws then
        go down the tree for as long as they find their token already run.  A request that follows another
        one goes on in the same tree, where its beginning has been run; one that does not begin with the
        trunk waits for a tree of its own.
        """
        last: dict[int, Completion] = {}
        waiting = dict(enumerate(requests))
        while waiting:
            trunk = self._trunk(shared_beginning([request.prompt for request in waiting.values()]))
            walk = Walk(waiting, trunk.tokens, self._head, self._drafter, stop, max_new_tokens, temperature)
            with torch.no_grad():
                nodes = GrowingTree(trunk.detached(), self._groups, self._like)
                while walk.goes_on:
                    start = walk.propose()
                    nodes.extend(walk.tree.paths(start))
                    positions = walk.tree.depths[start:] + len(trunk)
                    walk.go(self._forward(walk.tree.tokens[start:], positions, nodes, self._embedding))
            last |= walk.finish()
            waiting = walk.elsewhere
        return [last[slot] for slot in range(len(requests))]

    def state(self) -> list[list[int]]:
        """See `Engine.state`."""
        return self._drafter.state()

    def load(self, state: list[list[int]]) -> None:
        """See `Engine.load`."""
        self._drafter.load(state)

    def release(self) -> None:
        """See `Engine.release`."""
        self._trunks.drop()

    def logprobs(
        self, prompts: Sequence[Tokens], completions: Sequence[Tokens], temperature: float
    ) -> Tensor:
        """See `Engine.logprobs`.

        Without gradients the trunk is the one that sampling keeps, and is kept for it.
        """
        shared = shared_beginning(prompts)
        trunk = self._run_trunk(shared, self._embedding) if torch.is_grad_enabled() else self._trunk(shared)
        return self._score(trunk, prompts, completions, temperature, self._embedding)

    def backward(
        self,
        prompts: Sequence[Tokens],
        completions: Sequence[Tokens],
        temperature: float,
        budget: int,
        loss: Loss,
    ) -> int:
        """See `Engine.backward`.

        The trunk's forward pass is the one that sampling made, if the weights are still the same;
        its backward pass runs once, after those of all parts.  Without one to use again, and with all in
        one part, the trunk is no more than the beginning of the tree.
        """
        shared = shared_beginning(prompts)
        trunk = self._trunks.get(shared, graph=True)
        if trunk is None:
            whole = len(self._passes(len(shared), prompts, completions, budget)) == 1
            trunk = self._run_trunk([] if whole else shared, self._embedding.into_grad)
        collecting = trunk.detached(leaf=True)
        tokens = len(trunk)
        for part in self._passes(len(trunk), prompts, completions, budget):
            chosen = slice(part.members.start, part.members.stop)
            new_ST = self._score(
                collecting, prompts[chosen], completions[chosen], temperature, self._embedding.into_grad
            )
            loss(part.members, new_ST).backward()  # type: ignore[no-untyped-call]
            tokens += part.tokens - len(trunk)
        trunk.backward(collecting)
        self._trunks.drop()
        return tokens

    def passes(self, prompts: Sequence[Tokens], completions: Sequence[Tokens], budget: int) -> list[Pass]:
        """See `Engine.passes`."""
        return self._passes(len(shared_beginning(prompts)) if prompts else 0, prompts, completions, budget)

    def batches(self, prompts: Sequence[Tokens], width: int, max_new_tokens: int, budget: int) -> list[range]:
        """See `Engine.batches`."""

        def tokens(first: int, index: int) -> int:
            shared = common_length([prompts[first], prompts[index]]) if index > first else 0
            return len(prompts[index]) - shared + width * max_new_tokens

        return split(len(prompts), tokens, budget)

    def _passes(
        self, trunk: int, prompts: Sequence[Tokens], completions: Sequence[Tokens], budget: int
    ) -> list[Pass]:
        passes: list[Pass] = []
        tree, start, tokens = TokenTree(), 0, 0
        for index, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
            tree.add([*prompt[trunk:], *completion])
            if trunk + len(tree) > budget and index > start:
                passes.append(Pass(range(start, index), tokens))
                tree, start = TokenTree(), index
                tree.add([*prompt[trunk:], *completion])
            tokens = trunk + len(tree)
        return [*passes, Pass(range(start, len(prompts)), tokens)] if prompts else []

    def _trunk(self, shared: list[int]) -> Trunk:
        """The trunk ``shared``: the kept one where it fits, else a new one, which is kept.

        It has a graph where the caller has gradients enabled.
        """
        trunk = self._trunks.get(shared, graph=torch.is_grad_enabled())
        if trunk is None:
            # A conversation begins as it did before; a graph has to reach back to the first token.
            before = None if torch.is_grad_enabled() else self._trunks.beginning(shared)
            trunk = self._run_trunk(shared, self._embedding.into_grad, before)
            self._trunks.keep(trunk)
        return trunk

    def _run_trunk(self, tokens: list[int], lookup: Lookup, before: Trunk | None = None) -> Trunk:
        start = len(before) if before else 0
        if start == len(tokens):
            return before or Trunk([], [])
        run = TrunkPass(before)
        ids = np.asarray(tokens, dtype=np.int64)
        self._forward(ids[start:], np.arange(start, len(ids)), run, lookup)
        return Trunk(tokens, run.layers)

    def _score(
        self,
        trunk: Trunk,
        prompts: Sequence[Tokens],
        completions: Sequence[Tokens],
        temperature: float,
        lookup: Lookup,
    ) -> Tensor:
        """Log-probs of the completions' tokens, [S, T], 0 beyond each length."""
        tree = TokenTree()
        paths = []
        for prompt, completion in zip(prompts, completions, strict=True):
            leaf = tree.add(prompt[len(trunk) :])[-1]
            paths.append(tree.add(completion, under=leaf))
        whole = WholeTree(trunk, tree.paths(), self._groups, self._like)
        hidden_NH = self._forward(tree.tokens, tree.depths + len(trunk), whole, lookup)
        node_E = np.unique(np.concatenate([np.asarray(path) for path in paths]))
        edge_logp_E = self._edge_logprobs(hidden_NH, tree, node_E, temperature)
        return _gather_paths(edge_logp_E, node_E, paths)

    def _forward(self, tokens_R: Ints, positions_R: Ints, attending: Attending, lookup: Lookup) -> Tensor:
        """Last hidden states of R tokens, [R, H]."""
        device = self._model.device
        with few_rows(len(tokens_R), device), recomputed(self._model, self._recompute):
            output = self._model.base_model(
                inputs_embeds=lookup(torch.from_numpy(tokens_R).to(device))[None],
                position_ids=torch.from_numpy(positions_R).to(device)[None],
                attention_mask=skip_mask(device),
                use_cache=False,
                tree=attending,
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


def _gather_paths(edge_logp_E: Tensor, node_E: NDArray[np.int64], paths: Sequence[Sequence[int]]) -> Tensor:
    """Spread log-probs of distinct edges over the sequences that take them, [S, T], 0 beyond."""
    width = max(map(len, paths))
    index = np.full((len(paths), width), len(node_E), dtype=np.int64)
    for row, path in enumerate(paths):
        index[row, : len(path)] = np.searchsorted(node_E, path)
    padded = torch.cat([edge_logp_E, edge_logp_E.new_zeros(1)])
    return padded[torch.from_numpy(index).to(edge_logp_E.device)]
