"""A linear layer whose weights are packed into 4 bits and unpacked for each product.

What it computes is one thing, with and without a gradient.  Packing itself is bitsandbytes'.
"""

from __future__ import annotations

from typing import Any

import torch
from bitsandbytes.functional import dequantize_4bit
from bitsandbytes.nn import Linear4bit  # type: ignore[attr-defined]
from torch import Tensor
from torch.nn.functional import linear


def unpacked(layer: Any, dtype: torch.dtype) -> Tensor:
    """The weights that the packed ones stand for, [out, in]."""
    return dequantize_4bit(layer.weight.data, layer.weight.quant_state).to(dtype)


class _Product(torch.autograd.Function):
    """x W^T; its backward pass unpacks W again, so that a graph holds no unpacked weights."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, layer: Any) -> Tensor:
        ctx.layer = layer
        return linear(rows, unpacked(layer, rows.dtype))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,) = gradients
        return gradient @ unpacked(ctx.layer, gradient.dtype), None


class PackedLinear(Linear4bit):
    """bitsandbytes' layer, with a product of its own."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out], in the number format of ``x``."""
        if torch.is_grad_enabled() and x.requires_grad:
            product: Tensor = _Product.apply(x, self)  # type: ignore[no-untyped-call]
        else:
            product = linear(x, unpacked(self, x.dtype))
        return product if self.bias is None else product + self.bias.to(x.dtype)
