"""What a model remembers of distinct prefixes, a row of its cache for each.

A prefix that several samples share is run once; where they part, its row is copied.  So the state of
recurrent layers, which no mask can divide, is shared like keys and values are.  Knows transformers' caches,
and neither engines nor tasks.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import LinearAttentionCacheLayerMixin


@dataclass(frozen=True)
class Prefixes:
    """R prefixes that have been run.

    Attributes:
        hidden_RH: last hidden state of the last token of each.
        cache: transformers' cache of R rows, which a forward pass extends in place.
        mask_RL: 1 for tokens, 0 for what fills up shorter prefixes on their left.
    """

    hidden_RH: Tensor
    cache: Any
    mask_RL: Tensor

    @property
    def lengths(self) -> Tensor:
        """Tokens of each, [R]."""
        return self.mask_RL.sum(-1)

    def choose(self, rows: Sequence[int]) -> Prefixes:
        """The rows asked for, each as often as it is; this object's cache is used up by it."""
        if list(rows) == list(range(len(self.mask_RL))):
            return self
        index = torch.tensor(rows, device=self.mask_RL.device)
        self.cache.reorder_cache(index)  # in spite of its name it drops and repeats rows, recurrent ones too
        return Prefixes(self.hidden_RH[index], self.cache, self.mask_RL[index])


def repeat(cache: Any, times: int) -> Any:
    """A copy of a cache of one row that has it ``times`` times; the original stays as it is."""
    repeated = copy.deepcopy(cache)
    repeated.reorder_cache(torch.zeros(times, dtype=torch.long))
    return repeated


def join(parts: Sequence[Prefixes]) -> Prefixes:
    """Put prefixes of different lengths below each other, their ends in one column.

    The caches of ``parts`` are used up by it.
    """
    if len(parts) == 1:
        return parts[0]
    width = max(part.mask_RL.shape[1] for part in parts)
    first = parts[0].cache
    for layers in zip(*(part.cache.layers for part in parts), strict=True):
        _join_layer(layers)
    mask_RL = torch.cat([_fill(part.mask_RL, width, dim=1) for part in parts])
    return Prefixes(torch.cat([part.hidden_RH for part in parts]), first, mask_RL)


def _join_layer(layers: Sequence[Any]) -> None:
    """Put the rows of one layer's caches into the first of them."""
    first = layers[0]
    if isinstance(first, LinearAttentionCacheLayerMixin):
        for states in ("conv_states", "recurrent_states"):
            for index, state in getattr(first, states).items():
                if state is not None:
                    joined = torch.cat([getattr(layer, states)[index] for layer in layers])
                    getattr(first, states)[index] = joined
    if getattr(first, "keys", None) is not None:
        width = max(layer.keys.shape[2] for layer in layers)
        first.keys = torch.cat([_fill(layer.keys, width, dim=2) for layer in layers])
        first.values = torch.cat([_fill(layer.values, width, dim=2) for layer in layers])
    if hasattr(first, "cumulative_length"):  # a sliding window counts what it no longer holds
        first.cumulative_length = max(layer.cumulative_length for layer in layers)


def _fill(part: Tensor, width: int, dim: int) -> Tensor:
    """``part`` with zeros before it, up to ``width`` along ``dim``."""
    shape = list(part.shape)
    shape[dim] = width - shape[dim]
    return torch.cat([part.new_zeros(shape), part], dim)
