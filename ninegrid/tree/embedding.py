"""Looking up embeddings so that their gradient costs what the tokens cost, not what the vocabulary does.

torch's embedding hands back a gradient of the whole table, nearly all zeros, which is then added to
the one of the output head where the two are tied: a fifth of the backward pass of a small model.
Here the rows that were looked up are added to the table's ``grad`` in place.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class _IntoGrad(torch.autograd.Function):
    """Looks rows up; its backward adds to ``table.grad`` and hands nothing on."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, table: Tensor, tokens_R: Tensor, padding: int | None) -> Tensor:
        ctx.table, ctx.tokens_R, ctx.padding = table, tokens_R, padding
        return table.detach()[tokens_R]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, ...]:
        (gradient_RH,) = gradients
        if ctx.padding is not None:  # torch's embedding does not train the padding token either
            gradient_RH = gradient_RH * (ctx.tokens_R != ctx.padding)[:, None]
        if ctx.table.grad is None:
            ctx.table.grad = torch.zeros_like(ctx.table)
        ctx.table.grad.index_add_(0, ctx.tokens_R, gradient_RH)
        return None, None, None, None


class Embedding:
    """The model's input embedding.

    Args:
        model: a transformers model.  Anything but a plain, trainable `torch.nn.Embedding` is called as it is.
    """

    def __init__(self, model: Any) -> None:
        self._layer: Any = model.get_input_embeddings()

    def __call__(self, tokens_R: Tensor) -> Tensor:
        """Embeddings with an ordinary graph, [R, H]."""
        return self._layer(tokens_R)

    def into_grad(self, tokens_R: Tensor) -> Tensor:
        """Embeddings [R, H] whose gradient, in a ``backward()``, goes to the table's ``grad`` at once."""
        layer = self._layer
        if not (_is_plain(layer) and layer.weight.requires_grad and torch.is_grad_enabled()):
            return self(tokens_R)
        anchor = torch.zeros((), requires_grad=True)  # what makes autograd call the backward pass
        return _IntoGrad.apply(anchor, layer.weight, tokens_R, layer.padding_idx)  # type: ignore[no-untyped-call]


def _is_plain(layer: Any) -> bool:
    """Whether the layer does nothing but look rows up."""
    return type(layer) is nn.Embedding and not (layer.max_norm or layer.scale_grad_by_freq or layer.sparse)
