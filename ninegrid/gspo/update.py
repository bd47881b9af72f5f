"""One rollout batch turned into optimiser steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ninegrid.errors import TrainingError
from ninegrid.gspo.algorithms.names import FACTS
from ninegrid.gspo.algorithms.objective import ClipRange, Objective, Totals
from ninegrid.gspo.algorithms.registry import objective_of
from ninegrid.gspo.batch import Floats, RolloutBatch
from ninegrid.gspo.low_precision import Optimizer
from ninegrid.gspo.optimizer import step_with_change
from ninegrid.gspo.settings import TrainSettings
from ninegrid.policy.rollout import Rollout
from ninegrid.tree.engine import Engine
from ninegrid.tree.settings import DecodingSettings


@dataclass(frozen=True)
class Scored:
    """A rollout that reaches the gradient.

    Attributes:
        credit: its advantage, [1], or one for each token, [T].
        length: tokens that are scored.  Beyond them no token has an advantage, and no ratio that matters to
            another token.
    """

    rollout: Rollout
    credit: Floats
    length: int

    @property
    def tokens(self) -> Sequence[int]:
        """The tokens that are scored."""
        return self.rollout.completion.tokens[: self.length]


@dataclass(frozen=True)
class _Pass:
    """What one pass came to; all figures are still on the device.

    Attributes:
        difference: the largest difference of a token's log-prob from the one recorded at sampling.
    """

    chunk: list[Scored]
    objective: Objective
    difference: Tensor


@dataclass
class UpdateStats:
    """What happened in the updates of one rollout batch; empty when no group was informative."""

    losses: list[float] = field(default_factory=list)
    grad_norms: list[float] = field(default_factory=list)
    weight_changes: list[float] = field(default_factory=list)
    weights_changed: list[float] = field(default_factory=list)
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
        settings: algorithm, clip range, passes, minibatches, memory budget.
        decoding: how the completions were sampled.
    """

    def __init__(
        self,
        model: Any,
        engine: Engine,
        optimizer: Optimizer,
        settings: TrainSettings,
        decoding: DecodingSettings,
    ) -> None:
        self._engine, self._optimizer, self._settings = engine, optimizer, settings
        self._decoding = decoding
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._objective = objective_of(settings.algorithm)
        self._clip = ClipRange(settings.clip_low, settings.clip_high)

    def update(self, batch: RolloutBatch) -> UpdateStats:
        """Go through the batch ``passes`` times in ``minibatches`` optimiser steps each.

        Left out is what cannot reach the gradient: groups without spread, samples without an advantage,
        tokens after the last one that has any.  A minibatch of only such groups takes
        no optimiser step at all: momentum and weight decay would move the weights without a reason.

        Raises:
            TrainingError: a loss or gradient is not finite; raised before the optimiser's step.
        """
        stats = UpdateStats()
        for _ in range(self._settings.passes):
            for part in range(self._settings.minibatches):
                mine = batch.take(range(part, len(batch.groups), self._settings.minibatches))
                scored = self._scored(mine, first=not stats.losses)
                if scored:
                    self._optimizer_step(scored, self._totals(mine), stats)
        return stats

    def _scored(self, batch: RolloutBatch, *, first: bool) -> list[Scored]:
        """The rollouts that reach the gradient, those that begin alike next to each other."""
        # Until the first update every ratio is 1; later a ratio over the whole reply needs all of it.
        cut = first or not FACTS[self._settings.algorithm].sequence_ratio
        scored = []
        for group, credits in zip(batch.groups, batch.credit, strict=True):
            samples = [
                _scored_sample(rollout, credit, cut=cut)
                for rollout, credit in zip(group, credits, strict=True)
                if credit.any()
            ]
            scored += sorted(samples, key=lambda s: s.rollout.completion.tokens)
        return scored

    def _totals(self, batch: RolloutBatch) -> Totals:
        lengths = [rollout.n_sampled for rollout in batch.rollouts]
        return Totals(len(lengths), sum(lengths), self._decoding.max_new_tokens)

    def _optimizer_step(self, scored: list[Scored], totals: Totals, stats: UpdateStats) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        on_policy = not stats.losses
        passes: list[_Pass] = []

        def loss(members: range, new_ST: Tensor) -> Tensor:
            passes.append(self._evaluate([scored[i] for i in members], new_ST, totals))
            return passes[-1].objective.loss

        stats.tokens += self._engine.backward(
            [s.rollout.prompt for s in scored],
            [s.tokens for s in scored],
            self._decoding.temperature,
            self._settings.max_tokens_per_pass,
            loss,
        )
        # Read here, once all passes are under way: each read makes the host wait for the device.
        for done in passes:
            _check_finite(done.objective, done.chunk)
            stats.ratios += done.objective.ratio_U.tolist()
            stats.clipped += done.objective.clipped_U.tolist()
            if on_policy:
                stats.logprob_diff = max(float(done.difference), stats.logprob_diff or 0.0)
        self._take_step(scored, stats)
        stats.losses.append(sum(float(done.objective.loss.detach()) for done in passes))

    def _take_step(self, scored: list[Scored], stats: UpdateStats) -> None:
        norm = self._clip_gradients()
        if not math.isfinite(norm):
            raise TrainingError(f"gradient norm is {norm} on boards {_ids(scored)}; no update was made")
        stats.grad_norms.append(norm)
        change = step_with_change(self._optimizer, self._parameters)
        if not math.isfinite(change.relative):
            raise TrainingError(
                f"the weights are not finite after the update on boards {_ids(scored)}",
                hint="train again with a smaller train.learning_rate",
            )
        stats.weight_changes.append(change.relative)
        stats.weights_changed.append(change.share)

    def _clip_gradients(self) -> float:
        """Scale the gradients down to the norm that is allowed, and return the one that they had."""
        # No list of them outlives this: the optimiser lets go of each once it has been used.
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        norm = float(torch.nn.utils.get_total_norm(gradients))
        if self._settings.max_grad_norm < norm < math.inf:
            torch._foreach_mul_(gradients, self._settings.max_grad_norm / norm)
        return norm

    def _evaluate(self, chunk: list[Scored], scored_ST: Tensor, totals: Totals) -> _Pass:
        """The objective of one pass."""
        old_ST, mask_ST, known_ST = _recorded(chunk, scored_ST)
        beyond = old_ST.shape[1] - scored_ST.shape[1]
        # What was not scored keeps its recorded log-prob: ratio 1, no gradient.
        new_ST = torch.where(known_ST, torch.nn.functional.pad(scored_ST, (0, beyond)), old_ST)
        credit_ST = _padded(_alike(chunk)).to(new_ST)
        objective = self._objective(new_ST, old_ST, mask_ST, credit_ST, self._clip, totals)
        return _Pass(chunk, objective, (new_ST.detach() - old_ST).abs().max())


def _scored_sample(rollout: Rollout, credit: Floats, *, cut: bool) -> Scored:
    whole = len(rollout.completion.tokens)
    per_token = len(credit) == whole and whole > 1
    return Scored(rollout, credit, int(np.flatnonzero(credit)[-1]) + 1 if cut and per_token else whole)


def _alike(chunk: list[Scored]) -> list[Floats]:
    """Their credit: one number for every reply, or one for each token of every reply.

    A bonus gives some replies a number for each token and leaves others with one for all of them.
    """
    if all(len(s.credit) == 1 for s in chunk):
        return [s.credit for s in chunk]
    return [np.broadcast_to(s.credit, len(s.rollout.completion.tokens)).copy() for s in chunk]


def _recorded(chunk: list[Scored], like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probs recorded at sampling, the mask of sampled tokens and that of scored ones, [S, T] each.

    What was not sampled (a tool's result, what fills up a shorter row) is masked out of the objective.
    """
    old = _padded([s.rollout.completion.logprobs for s in chunk]).to(like)
    slot_T = torch.arange(old.shape[1], device=like.device)
    sampled = _padded([s.rollout.sampled for s in chunk]).to(like.device)
    known = sampled & (slot_T < torch.tensor([s.length for s in chunk], device=like.device)[:, None])
    return old, sampled.to(like), known


def _padded(rows: Sequence[NDArray[Any]]) -> Tensor:
    """Rows of different lengths as one tensor, 0 beyond their ends."""
    return torch.nn.utils.rnn.pad_sequence([torch.as_tensor(row) for row in rows], batch_first=True)


def _check_finite(objective: Objective, chunk: list[Scored]) -> None:
    bad = (~torch.isfinite(objective.terms_S)).nonzero().flatten().tolist()
    if bad:
        names = ", ".join(dict.fromkeys(chunk[i].rollout.example.id for i in bad))
        raise TrainingError(f"loss is not finite on {names}; no update was made")


def _ids(scored: list[Scored]) -> str:
    return ", ".join(dict.fromkeys(s.rollout.example.id for s in scored))
