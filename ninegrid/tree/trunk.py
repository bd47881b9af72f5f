"""The trunk: the beginning that all prompts of a batch share, run once and kept while the weights stand.

A batch of boards shares its system prompt, tools and worked examples, most of its tokens.  Sampling
and scoring both start from them, so what sampling computed is used again, for the backward pass too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ninegrid.tree.attention import Attending
from ninegrid.tree.token_tree import common_length

KeysValues = tuple[Tensor, Tensor]
"""Keys and values of one layer, [K, P, D] each."""

WORTH_KEEPING = 0.8
"""A kept trunk is cut to what it shares with the prompts if that is at least so much of what they share."""


def shared_beginning(prompts: Sequence[Sequence[int]]) -> list[int]:
    """The longest common beginning that leaves every prompt at least one token."""
    shortest = min(prompts, key=len)
    return list(shortest[: min(common_length(prompts), len(shortest) - 1)])


@dataclass(frozen=True)
class Trunk:
    """Keys and values of a trunk of P tokens.

    Attributes:
        tokens: the P token ids.
        layers: keys and values of each layer; with their graph if ``has_graph``.
    """

    tokens: list[int]
    layers: list[KeysValues]

    @property
    def has_graph(self) -> bool:
        return any(keys.requires_grad for keys, _ in self.layers)

    def __len__(self) -> int:
        return len(self.tokens)

    def of_layer(self, layer: int, like_KLD: Tensor) -> KeysValues:
        """Keys and values of a layer; without tokens, none of the shape that others have."""
        return self.layers[layer] if self.tokens else (like_KLD[:, :0], like_KLD[:, :0])

    def cut(self, length: int) -> Trunk:
        """The first ``length`` tokens of it."""
        layers = [(keys[:, :length], values[:, :length]) for keys, values in self.layers]
        return Trunk(self.tokens[:length], layers)

    def detached(self, *, leaf: bool = False) -> Trunk:
        """The same numbers without a graph; as a ``leaf``, gradients are collected there."""

        def copy(part: Tensor) -> Tensor:
            return part.detach().requires_grad_(leaf)

        return Trunk(self.tokens, [(copy(keys), copy(values)) for keys, values in self.layers])

    def backward(self, collected: Trunk) -> None:
        """Send the gradients that a leaf copy has ``collected`` down into the graph."""
        pairs = [
            (part, leaf.grad)
            for layer, copy in zip(self.layers, collected.layers, strict=True)
            for part, leaf in zip(layer, copy, strict=True)
            if leaf.grad is not None and part.requires_grad  # frozen layers have no graph
        ]
        if pairs:
            parts, gradients = zip(*pairs, strict=True)
            torch.autograd.backward(parts, gradients)


class TrunkPass(Attending):
    """Runs the trunk: plain causal attention, whose keys and values are remembered.

    Args:
        before: a trunk that has been run; only what comes after it is.
    """

    def __init__(self, before: Trunk | None = None) -> None:
        self._before = before
        self.layers: list[KeysValues] = []

    def attend(
        self, layer: int, query: Tensor, keys: Tensor, values: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """See `Attending.attend`."""
        first, length = 0, query.shape[2]
        if self._before is not None:
            first = len(self._before)
            old_keys, old_values = self._before.of_layer(layer, keys[0])
            keys, values = torch.cat([old_keys[None], keys], 2), torch.cat([old_values[None], values], 2)
        if layer == len(self.layers):  # not where it is recomputed in the backward pass
            self.layers.append((keys[0], values[0]))
        seen = _band(first, length, window, query.device)
        return torch.nn.functional.scaled_dot_product_attention(
            query, keys, values, attn_mask=seen, is_causal=seen is None, scale=scale, enable_gqa=True
        )


def _band(first: int, length: int, window: int | None, device: torch.device) -> Tensor | None:
    """Which of all tokens those from ``first`` on see, [L, first + L]; None for plain causal attention."""
    near = window is None or window >= first + length
    if near and not first:
        return None
    seen = torch.ones(length, first + length, dtype=torch.bool, device=device).tril(first)
    return seen if near or window is None else seen.triu(first - window + 1)


class TrunkKeeper:
    """Holds the last trunk for as long as no parameter is written to.

    torch counts the writes to each tensor, and a tensor put in the place of another is another one.  Whoever
    writes past torch (through ``.data``, or a kernel of its own) must say so with
    `torch.autograd.graph.increment_version`.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._kept: Trunk | None = None
        self._versions: list[tuple[int, int]] = []

    def get(self, wanted: list[int], *, graph: bool) -> Trunk | None:
        """The kept trunk, cut to what it shares with ``wanted``, if that is worth it.

        Args:
            wanted: the `shared_beginning` of the prompts.
            graph: it must have its graph.
        """
        if self._kept is None or self._versions != self._now():
            self._kept = None
            return None
        if graph and not self._kept.has_graph:
            return None
        length = common_length([self._kept.tokens, wanted])
        return self._kept.cut(length) if length >= WORTH_KEEPING * len(wanted) else None

    def beginning(self, wanted: list[int]) -> Trunk | None:
        """What the kept trunk has of ``wanted``, however little; None if nothing."""
        if self._kept is None or self._versions != self._now():
            return None
        length = common_length([self._kept.tokens, wanted])
        return self._kept.cut(length).detached() if length else None

    def keep(self, trunk: Trunk) -> None:
        self._kept, self._versions = trunk, self._now()

    def drop(self) -> None:
        """Forget the trunk."""
        self._kept = None

    def _now(self) -> list[tuple[int, int]]:
        return [(parameter.data_ptr(), parameter._version) for parameter in self._model.parameters()]
