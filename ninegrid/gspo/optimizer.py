"""The optimiser, and what is worth knowing about one of its steps."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from ninegrid.gspo.low_precision import Optimizer, StandIns, check_rounding
from ninegrid.gspo.settings import TrainSettings

SAMPLED_ROW = 16
"""Of so many rows of a parameter, one is looked at to tell how far a step moved the weights."""

BITSANDBYTES = {
    "adamw_8bit": "AdamW8bit",
    "paged_adamw": "PagedAdamW32bit",
    "paged_adamw_8bit": "PagedAdamW8bit",
}
"""Setting -> the class of bitsandbytes: 8-bit state (Dettmers et al., arXiv 2110.02861), or state that a CUDA
device can move to the machine's memory.  Without such a device a paged optimiser is one that is not paged."""


def make_optimizer(parameters: Iterable[Parameter], settings: TrainSettings) -> Optimizer:
    """AdamW over ``parameters``: torch's fused one, or one of bitsandbytes.

    Weights that are not float32 are moved as ``settings.weight_update`` says.

    Raises:
        SettingsError: weights of this number format cannot be rounded at random.
    """
    weights = list(parameters)
    low = [p for p in weights if p.dtype != torch.float32]
    if not low or settings.weight_update == "nearest":
        return _make(weights, settings)
    check_rounding(low, settings)
    return StandIns(weights, settings, lambda stand_ins: _make(stand_ins, settings))


def _make(parameters: list[Parameter], settings: TrainSettings) -> torch.optim.Optimizer:
    shared: dict[str, Any] = {
        "lr": settings.learning_rate,
        "betas": (settings.beta1, settings.beta2),
        "weight_decay": settings.weight_decay,
    }
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(parameters, fused=True, **shared)
    import bitsandbytes

    return getattr(bitsandbytes.optim, BITSANDBYTES[settings.optimizer])(parameters, **shared)


def set_learning_rate(optimizer: Optimizer, value: float) -> None:
    """Set the learning rate of every parameter group."""
    for group in optimizer.param_groups:
        group["lr"] = value


class Change(NamedTuple):
    """How far an optimiser step moved the weights, as they are stored.

    Attributes:
        relative: |new - old| / |old|.
        share: of the weights, how many have another value than before.  In bfloat16 a step of less than a
            256th of a weight is lost if it is rounded to the nearest.
    """

    relative: float
    share: float


def step_with_change(optimizer: Optimizer, parameters: list[Parameter]) -> Change:
    """Take an optimiser step and tell how far it went; not finite if any weight is not.

    Measured on every `SAMPLED_ROW`-th row of each parameter: on all of them it would take longer than the
    step itself.
    """
    rows = [p.detach().view(-1, *p.shape[1:])[::SAMPLED_ROW] for p in parameters]
    before = [r.clone() for r in rows]
    optimizer.step()
    # The optimisers of bitsandbytes write past torch, which must know for what it keeps of the old weights.
    torch.autograd.graph.increment_version(parameters)
    if not math.isfinite(_norm([p.detach() for p in parameters])):
        return Change(math.nan, math.nan)
    length = _norm(before)
    torch._foreach_sub_(before, rows)
    moved = torch.stack([torch.count_nonzero(b) for b in before]).sum()
    share = int(moved) / max(1, sum(b.numel() for b in before))
    return Change(_norm(before) / max(length, torch.finfo(torch.float32).tiny), share)


def _norm(tensors: list[Tensor]) -> float:
    """The norm of all tensors together, without a copy of any, and read from the device once."""
    norms = torch._foreach_norm(tensors, 2, torch.float32)
    return float(torch.linalg.vector_norm(torch.stack(list(norms)).double()))
