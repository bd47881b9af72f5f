"""Running sums that CUDA computes the same way every time.

torch's own ``cumsum`` of floats refuses to run on CUDA under `torch.use_deterministic_algorithms`, which
every stage switches on.  There the sums are made by doubling (Hillis and Steele 1986): log2(n) additions of
whole tensors, in an order that depends on n alone.

Not here: running sums of integers, which torch does on every device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


def running_sum(values: Tensor, dim: int = -1) -> Tensor:
    """The sum of all values up to and including each place along ``dim``; of the same shape."""
    return by_doubling(values, dim) if values.is_cuda else values.cumsum(dim)


def by_doubling(values: Tensor, dim: int) -> Tensor:
    """See `running_sum`; several times slower than ``cumsum`` on the CPU, where that is deterministic."""
    sums = values.movedim(dim, -1)
    step = 1
    while step < sums.shape[-1]:
        sums = torch.cat([sums[..., :step], sums[..., step:] + sums[..., :-step]], dim=-1)
        step *= 2
    return sums.movedim(-1, dim)


def sum_in_order(model: Any) -> int:
    """Have linear attention in plain PyTorch, which sums its decay with ``cumsum``, use `running_sum`.

    It acts within the model's layers of that type, also where gradient checkpointing runs one again.

    Args:
        model: a transformers model; its configuration says of which type each layer is.

    Returns:
        How many layers there are of that type.
    """
    kinds = getattr(model.config, "layer_types", None) or []
    chosen = [
        layer
        for layer, kind in zip(model.base_model.layers, kinds, strict=False)
        if kind == "linear_attention"
    ]
    # Gradient checkpointing runs a layer again without its hooks, but with those of the modules in it.
    for module in (module for layer in chosen for module in layer.children()):
        mode = _RunningSums()
        module.register_forward_pre_hook(lambda *_, mode=mode: mode.__enter__() and None)
        module.register_forward_hook(lambda *_, mode=mode: mode.__exit__(None, None, None), always_call=True)
    return len(chosen)


class _RunningSums(TorchFunctionMode):
    """While it is active, ``cumsum`` of floats is `running_sum`."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        if func in (torch.cumsum, Tensor.cumsum):
            given = {"dtype": None, **dict(zip(("dim", "dtype"), args[1:], strict=False)), **(kwargs or {})}
            values = args[0] if given["dtype"] is None else args[0].to(given["dtype"])
            if values.is_floating_point():
                return running_sum(values, given["dim"])
        return func(*args, **(kwargs or {}))
