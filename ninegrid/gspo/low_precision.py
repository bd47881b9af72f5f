"""Moving weights of 16 bits by steps that are smaller than what tells two such numbers apart.

A bfloat16 number has 8 significant bits: a weight of 0.02 has no neighbour nearer than 0.00012, and a step of
5e-6 that is rounded to the nearest leaves it where it is.  So the optimiser moves float32 numbers that stand
in for the weights: copies that are kept (``master``), or ones that are made for the step and rounded at
random on the way back, so that the weight moves by the step on average (``stochastic``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import Parameter

from ninegrid.errors import SettingsError
from ninegrid.gspo.settings import TrainSettings


class Optimizer(Protocol):
    """What training uses of a `torch.optim.Optimizer`."""

    @property
    def param_groups(self) -> list[dict[str, Any]]: ...
    def zero_grad(self, set_to_none: bool = True) -> None: ...
    def step(self) -> Any: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


def check_rounding(weights: list[Parameter], settings: TrainSettings) -> None:
    """Refuse to round at random what is not a float32 cut short.

    Raises:
        SettingsError: ``weight_update`` is ``stochastic`` and a weight is not bfloat16.
    """
    other = next((p.dtype for p in weights if p.dtype != torch.bfloat16), None)
    if settings.weight_update == "stochastic" and other is not None:
        raise SettingsError(
            f"train.weight_update = 'stochastic' goes with bfloat16 weights; these are {other}",
            hint="set train.weight_update=master, or model.dtype=bfloat16",
        )


def round_stochastically(values: Tensor, generator: torch.Generator) -> Tensor:
    """float32 -> bfloat16, up with the probability that makes the result right on average.

    A bfloat16 is the upper half of a float32: a random number is added to the lower half, which is then cut
    off.
    """
    noise = torch.randint(
        0, 1 << 16, values.shape, dtype=torch.int32, device=values.device, generator=generator
    )
    bits = values.contiguous().view(torch.int32) + noise
    rounded = (bits & -(1 << 16)).view(torch.float32)
    # Added to the bits of what is no number, noise can make one.
    return torch.where(torch.isfinite(values), rounded, values).to(torch.bfloat16)


class StandIns:
    """The `Optimizer` that moves float32 numbers in the place of weights of 16 bits.

    Weights that are float32 themselves are moved directly.

    Args:
        weights: of the model, with gradients in their own number format.
        settings: say how; ``weight_update`` is ``master`` or ``stochastic``.
        make: the optimiser over what it is given.
    """

    def __init__(
        self,
        weights: list[Parameter],
        settings: TrainSettings,
        make: Callable[[list[Parameter]], torch.optim.Optimizer],
    ) -> None:
        self._kept = settings.weight_update == "master"
        self._seed, self._steps = settings.seed, 0
        self._weights = weights
        self._stand_ins = [p if p.dtype == torch.float32 else self._stand_in(p) for p in weights]
        self._low = [
            (w, s) for w, s in zip(weights, self._stand_ins, strict=True) if w.dtype != torch.float32
        ]
        self._optimizer = make(self._stand_ins)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """See torch."""
        return self._optimizer.param_groups

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of the model's weights."""
        for weight in self._weights:
            weight.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move the weights by their gradients, those of 16 bits one after the other.

        So there is one float32 gradient at a time, and each gradient is let go of once it has been used.
        """
        self._steps += 1
        self._optimizer.step()  # those that are float32 themselves: no stand-in has a gradient yet
        for weight in self._weights:
            if weight.dtype == torch.float32:
                weight.grad = None
        for index, (weight, stand_in) in enumerate(self._low):
            if weight.grad is not None:
                self._step_one(index, weight, stand_in)

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs to go on as if it had not been cut."""
        masters = [master.detach() for _, master in self._low] if self._kept else []
        return {"optimizer": self._optimizer.state_dict(), "masters": masters, "steps": self._steps}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a `state_dict`."""
        self._optimizer.load_state_dict(state_dict["optimizer"])
        self._steps = state_dict["steps"]
        if self._kept:
            for (_, master), saved in zip(self._low, state_dict["masters"], strict=True):
                master.copy_(saved)

    def _stand_in(self, weight: Parameter) -> Parameter:
        values = weight.detach().float() if self._kept else torch.empty(0, device=weight.device)
        return Parameter(values)

    def _step_one(self, index: int, weight: Parameter, stand_in: Parameter) -> None:
        if not self._kept:
            stand_in.data = weight.detach().float()
        assert weight.grad is not None
        stand_in.grad, weight.grad = weight.grad.float(), None
        self._optimizer.step()
        stand_in.grad = None
        if self._kept:
            weight.copy_(stand_in)
            return
        generator = torch.Generator(weight.device)
        generator.manual_seed(hash((self._seed, self._steps, index)) % 2**63)
        weight.copy_(round_stochastically(stand_in.detach(), generator))
        stand_in.data = torch.empty(0, device=weight.device)
