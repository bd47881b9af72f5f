"""Attention of tree nodes to the trunk and to their own paths, and its place inside a transformers model.

Exact attention, arranged so that few rows are compared with branches they do not stand on: the
blocks of a `Layout` are a batch of small dense attentions, which torch's fused kernel runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ninegrid.tree.layout import Layout

IMPLEMENTATION = "ninegrid_tree"
"""Name under which transformers knows this attention."""


@dataclass(frozen=True)
class Blocks:
    """A `Layout` on the device, flattened.

    Attributes:
        shape: B blocks, M slots, C columns.
        rows, slots, columns: as in the layout.
        mask: added to the scores: 0 where a row sees a column, else minus infinity, [B, 1, G * M, C] for G
            query heads to a key head.
    """

    shape: tuple[int, int, int]
    rows: Tensor
    slots: Tensor
    columns: Tensor
    mask: Tensor

    @classmethod
    def of(cls, layout: Layout, groups: int, like: Tensor) -> Blocks:
        """For ``groups`` query heads to a key head, on the device and in the number format of ``like``."""
        rows, slots, columns, sees_BMC = (
            torch.from_numpy(array).to(like.device)
            for array in (layout.row_BM, layout.slot_L, layout.column_BC, layout.sees_BMC)
        )
        mask_BMC = torch.zeros(sees_BMC.shape, dtype=like.dtype, device=like.device)
        mask_BMC.masked_fill_(~sees_BMC, -torch.inf)
        n_blocks, height, width = sees_BMC.shape
        mask = mask_BMC.repeat(1, groups, 1)[:, None]
        return cls((n_blocks, height, width), rows.flatten(), slots, columns.flatten(), mask)


def attend_to_tree(
    query_HLD: Tensor, keys_KND: Tensor, values_KND: Tensor, blocks: Blocks, scale: float
) -> Tensor:
    """Attention of L rows to what ``blocks`` says of N columns, the trunk's and the nodes'.

    Args:
        query_HLD: H query heads; head h reads key head h // (H / K).
        keys_KND, values_KND: of all columns.
        scale: of the scores.

    Returns:
        [H, L, D].
    """
    heads, _, width = query_HLD.shape
    n_keys, (n_blocks, height, columns) = keys_KND.shape[0], blocks.shape
    groups = heads // n_keys

    def fetch(nodes_KND: Tensor) -> Tensor:
        chosen = nodes_KND.index_select(1, blocks.columns)
        return chosen.view(n_keys, n_blocks, columns, width).transpose(0, 1)

    # Query heads that share a key head lie one below the other: [B, K, G * M, D], and no key is copied.
    query = query_HLD.index_select(1, blocks.rows).view(n_keys, groups, n_blocks, height, width)
    query = query.permute(2, 0, 1, 3, 4).reshape(n_blocks, n_keys, groups * height, width)
    out = scaled_dot_product_attention(
        query, fetch(keys_KND), fetch(values_KND), attn_mask=blocks.mask, scale=scale
    )
    out = out.view(n_blocks, n_keys, groups, height, width).permute(1, 2, 0, 3, 4)
    return out.reshape(heads, n_blocks * height, width).index_select(1, blocks.slots)


class Attending(Protocol):
    """What a pass over the tree puts in the place of the model's own attention."""

    def attend(
        self, layer: int, query: Tensor, keys: Tensor, values: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Attention of one layer: [1, H, L, D] queries, [1, K, L, D] keys and values -> [1, H, L, D].

        Args:
            scale: of the scores.
            window: positions that a token of this layer sees, its own among them; None for all before it.
                Positions are depths, not places in the packed sequence.

        With recomputed layers it is called again for a layer, in the backward pass, with equal numbers.
        """
        ...


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    tree: Attending | None = None,
    **rest: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface; without ``tree`` the model is an ordinary one."""
    if tree is None:
        # The mask that comes with an ordinary call holds the window already.
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **rest
        )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return tree.attend(module.layer_idx, query, key, value, scale, sliding_window).transpose(1, 2), None


def take_over_attention(model: Any) -> None:
    """Let the model's forward pass accept ``tree=``; without that argument it computes what it did."""
    ALL_ATTENTION_FUNCTIONS.register(IMPLEMENTATION, _attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(IMPLEMENTATION, sdpa_mask)
    model.config._attn_implementation = IMPLEMENTATION


def skip_mask(device: torch.device) -> Tensor:
    """An attention mask that transformers passes through as it is; a pass with ``tree=`` does not read it."""
    return torch.zeros(1, 1, 1, 1, device=device)
