"""The function of each algorithm; a test holds `names` and this table together."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ninegrid.gspo.algorithms.cispo import cispo
from ninegrid.gspo.algorithms.dapo import dapo
from ninegrid.gspo.algorithms.dr_grpo import dr_grpo
from ninegrid.gspo.algorithms.grpo import grpo
from ninegrid.gspo.algorithms.gspo import gspo
from ninegrid.gspo.algorithms.gspo_token import gspo_token
from ninegrid.gspo.algorithms.names import AlgorithmName
from ninegrid.gspo.algorithms.objective import ClipRange, Objective, Totals
from ninegrid.gspo.algorithms.rloo import rloo

ObjectiveFunction = Callable[[Tensor, Tensor, Tensor, Tensor, ClipRange, Totals], Objective]
"""``f(new_ST, old_ST, mask_ST, advantage_ST, clip, totals)``."""

OBJECTIVES: dict[AlgorithmName, ObjectiveFunction] = {
    "gspo": gspo,
    "gspo_token": gspo_token,
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "dapo": dapo,
    "cispo": cispo,
    "rloo": rloo,
}


def objective_of(name: AlgorithmName) -> ObjectiveFunction:
    """The objective that is called ``name``."""
    return OBJECTIVES[name]
