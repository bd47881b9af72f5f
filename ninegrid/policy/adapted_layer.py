"""Linear layers with an adapter beside them: peft's, with a product that makes less on its way.

peft's own forward pass makes the layer's output three times: the layer's, the adapter's scaled one and their
sum.  In a training pass the thin tensor between A and B stays, in the place of what was freed around it, so
that on the CPU much of that memory is not used again.  Here the adapter's part is added as it is made.
"""

from __future__ import annotations

from typing import Any

import torch
from peft.tuners.lora.bnb import Linear4bit
from peft.tuners.lora.layer import Linear
from torch import Tensor
from torch.nn.functional import linear


class _OneSum:
    """W x + scaling * B A x."""

    def forward(self: Any, x: Tensor) -> Tensor:
        """[..., in] -> [..., out], in the number format of what W gives."""
        (name,) = self.active_adapters
        a, b, scaling = self.lora_A[name].weight, self.lora_B[name].weight, self.scaling[name]
        out: Tensor = self.base_layer(x)
        thin = linear(x.to(a.dtype), a)
        if out.dtype != b.dtype:
            return out + (scaling * linear(thin, b)).to(out.dtype)
        rows, thin_rows = out.view(-1, out.shape[-1]), thin.view(-1, thin.shape[-1])
        return torch.addmm(rows, thin_rows, b.T, alpha=scaling).view(out.shape)


class AdaptedLinear(_OneSum, Linear):
    """Beside a plain layer."""


class AdaptedPacked(_OneSum, Linear4bit):
    """Beside a packed one."""


def add_at_once(layer: Any) -> None:
    """Let one of peft's layers compute its sum so; what it holds stays as it is."""
    layer.__class__ = AdaptedPacked if isinstance(layer, Linear4bit) else AdaptedLinear
