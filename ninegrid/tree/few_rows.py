"""Linear layers on few rows.

For two to eight rows the CPU's matrix library takes about twice as long as reading the weights once
does; asked for the transposed product it does not (measured; see benchmarks).  Most passes of a
sampling batch are that small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

FEW = range(2, 9)
"""Numbers of rows for which the transposed product is faster."""


def few_rows(count: int, device: torch.device) -> AbstractContextManager[Any]:
    """A context for running ``count`` rows through a model on ``device`` without gradients."""
    slow = device.type == "cpu" and count in FEW and not torch.is_grad_enabled()
    return _Transposed() if slow else nullcontext()


class _Transposed(TorchFunctionMode):
    """While it is active, linear layers without bias on the CPU are asked for the transposed product."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is torch.nn.functional.linear and not kwargs:
            rows, weight, bias = (*args, None)[:3]
            if bias is None and rows.device.type == "cpu":
                return _transposed(rows, weight)
        return func(*args, **(kwargs or {}))


def _transposed(rows: Tensor, weight: Tensor) -> Tensor:
    flat = rows.reshape(-1, rows.shape[-1])
    return (weight @ flat.T).T.contiguous().view(*rows.shape[:-1], -1)
