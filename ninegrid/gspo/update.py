"""One rollout batch turned into optimiser steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ninegrid.errors import TrainingError
from ninegrid.gspo.batch import RolloutBatch
from ninegrid.gspo.losses import ClipRange, Objective, gspo
from ninegrid.gspo.optimizer import step_with_change
from ninegrid.gspo.settings import TrainSettings
from ninegrid.policy.rollout import Rollout
from ninegrid.tree.engine import Engine

Scored = tuple[Rollout, float]
"""A rollout that reaches the gradient, with its advantage."""


@dataclass
class UpdateStats:
    """What happened in the updates of one rollout batch; empty when no group was informative."""

    losses: list[float] = field(default_factory=list)
    grad_norms: list[float] = field(default_factory=list)
    weight_changes: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    clipped: list[bool] = field(default_factory=list)
    logprob_diff: float | None = None
    tokens: int = 0


class Updater:
    """Applies the objective to a model.

    Args:
        model: whose parameters are trained.
        engine: scores completions under ``model`` with gradients.
        optimizer: steps over the model's parameters.
        settings: clip range, passes, minibatches, memory budget.
        temperature: at which the completions were sampled.
    """

    def __init__(
        self,
        model: Any,
        engine: Engine,
        optimizer: torch.optim.Optimizer,
        settings: TrainSettings,
        temperature: float,
    ) -> None:
        self._engine, self._optimizer, self._settings = engine, optimizer, settings
        self._temperature = temperature
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._clip = ClipRange(settings.clip_low, settings.clip_high)

    def update(self, batch: RolloutBatch) -> UpdateStats:
        """Go through the batch ``passes`` times in ``minibatches`` optimiser steps each.

        Groups without spread are left out of scoring, and a minibatch of only such groups takes
        no optimiser step at all: momentum and weight decay would move the weights without a reason.

        Raises:
            TrainingError: a loss or gradient is not finite; raised before the optimiser's step.
        """
        stats = UpdateStats()
        for _ in range(self._settings.passes):
            for part in range(self._settings.minibatches):
                scored = _scored(batch, part, self._settings.minibatches)
                if scored:
                    total = batch.advantages[part :: self._settings.minibatches].size
                    self._optimizer_step(scored, total, stats)
        return stats

    def _optimizer_step(self, scored: list[Scored], n_samples: int, stats: UpdateStats) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        prompts = [r.prompt for r, _ in scored]
        completions = [r.completion.tokens for r, _ in scored]
        loss = 0.0
        on_policy = not stats.losses
        for part in self._engine.passes(prompts, completions, self._settings.max_tokens_per_pass):
            chunk = [scored[i] for i in part.members]
            loss += self._accumulate(chunk, n_samples, stats, on_policy=on_policy)
            stats.tokens += part.tokens
        norm = float(torch.nn.utils.clip_grad_norm_(self._parameters, self._settings.max_grad_norm))
        if not math.isfinite(norm):
            raise TrainingError(f"gradient norm is {norm} on boards {_ids(scored)}; no update was made")
        stats.losses.append(loss)
        stats.grad_norms.append(norm)
        change = step_with_change(self._optimizer, self._parameters)
        if not math.isfinite(change):
            raise TrainingError(
                f"the weights are not finite after the update on boards {_ids(scored)}",
                hint="train again with a smaller train.learning_rate",
            )
        stats.weight_changes.append(change)

    def _accumulate(
        self, chunk: list[Scored], n_samples: int, stats: UpdateStats, *, on_policy: bool
    ) -> float:
        """Forward and backward over one pass; returns its part of the loss."""
        prompts = [r.prompt for r, _ in chunk]
        completions = [r.completion.tokens for r, _ in chunk]
        new_ST = self._engine.logprobs(prompts, completions, self._temperature)
        old_ST, mask_ST = _recorded(chunk, new_ST)
        advantage_S = torch.tensor([a for _, a in chunk], dtype=new_ST.dtype, device=new_ST.device)
        objective = gspo(new_ST, old_ST, mask_ST, advantage_S, self._clip, n_samples)
        _check_finite(objective, chunk)
        objective.loss.backward()  # type: ignore[no-untyped-call]
        stats.ratios += objective.ratio_S.tolist()
        stats.clipped += objective.clipped_S.tolist()
        if on_policy:
            difference = float(((new_ST.detach() - old_ST) * mask_ST).abs().max())
            stats.logprob_diff = max(difference, stats.logprob_diff or 0.0)
        return float(objective.loss.detach())


def _scored(batch: RolloutBatch, part: int, parts: int) -> list[Scored]:
    """The rollouts of every ``parts``-th group that have an advantage."""
    groups = zip(batch.groups[part::parts], batch.advantages[part::parts], strict=True)
    return [(r, float(a)) for group, row in groups for r, a in zip(group, row, strict=True) if a != 0]


def _recorded(chunk: list[Scored], like: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probs recorded at sampling and the mask of real tokens, [S, T] each."""
    old = np.zeros(like.shape, dtype=np.float32)
    mask = np.zeros(like.shape, dtype=np.float32)
    for row, (rollout, _) in enumerate(chunk):
        length = len(rollout.completion.tokens)
        old[row, :length] = rollout.completion.logprobs
        mask[row, :length] = 1.0
    return torch.from_numpy(old).to(like), torch.from_numpy(mask).to(like)


def _check_finite(objective: Objective, chunk: list[Scored]) -> None:
    bad = (~torch.isfinite(objective.terms_S)).nonzero().flatten().tolist()
    if bad:
        names = ", ".join(dict.fromkeys(chunk[i][0].example.id for i in bad))
        raise TrainingError(f"loss is not finite on {names}; no update was made")


def _ids(scored: list[Scored]) -> str:
    return ", ".join(dict.fromkeys(r.example.id for r, _ in scored))
