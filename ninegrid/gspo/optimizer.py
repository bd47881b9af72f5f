"""The optimiser, and what is worth knowing about one of its steps."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from ninegrid.gspo.settings import TrainSettings

SAMPLED_ROW = 16
"""Of so many rows of a parameter, one is looked at to tell how far a step moved the weights."""


def make_optimizer(parameters: Iterable[Parameter], settings: TrainSettings) -> torch.optim.Optimizer:
    """AdamW, fused, or with 8-bit state from bitsandbytes."""
    shared: dict[str, Any] = {
        "lr": settings.learning_rate,
        "betas": (settings.beta1, settings.beta2),
        "weight_decay": settings.weight_decay,
    }
    if settings.optimizer == "adamw_8bit":
        import bitsandbytes

        return bitsandbytes.optim.AdamW8bit(parameters, **shared)  # type: ignore[attr-defined, no-untyped-call]
    return torch.optim.AdamW(parameters, fused=True, **shared)


def set_learning_rate(optimizer: torch.optim.Optimizer, value: float) -> None:
    """Set the learning rate of every parameter group."""
    for group in optimizer.param_groups:
        group["lr"] = value


def step_with_change(optimizer: torch.optim.Optimizer, parameters: list[Parameter]) -> float:
    """Take an optimiser step and return the relative weight change, |new - old| / |old|.

    Measured on every `SAMPLED_ROW`-th row of each parameter: on all of them it would take longer than the
    step itself.  Not finite if any weight is not.
    """
    rows = [p.detach()[::SAMPLED_ROW] for p in parameters]
    before = [r.clone() for r in rows]
    optimizer.step()
    # The 8-bit optimiser writes past torch, which must know for what it keeps of the old weights.
    torch.autograd.graph.increment_version(parameters)
    if not math.isfinite(_norm([p.detach() for p in parameters])):
        return math.nan
    length = _norm(before)
    torch._foreach_sub_(before, rows)
    return _norm(before) / max(length, torch.finfo(torch.float32).tiny)


def _norm(tensors: list[Tensor]) -> float:
    """The norm of all tensors together, without a copy of any."""
    return math.sqrt(sum(float(norm) ** 2 for norm in torch._foreach_norm(tensors)))
