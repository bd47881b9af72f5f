"""Settings of post-training."""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, exp, pi
from typing import Literal

from ninegrid.config import require
from ninegrid.gspo.algorithms.names import FACTS, AlgorithmName

Schedule = Literal["constant", "linear", "cosine"]
Control = Literal["none", "shuffle_all", "shuffle_valid"]

MOST_BONUS = 2.0
"""The most that a steered entropy bonus can become, in units of reward per nat."""


@dataclass(frozen=True)
class TrainSettings:
    """How the policy is trained.

    Attributes:
        algorithm: the objective; see `ninegrid.gspo.algorithms`.
        credit: ``sequence`` gives all tokens of a rollout its group-relative advantage; ``branch`` each
            token and ``turn`` each reply of a conversation its own (`ninegrid.gspo.credit`), for algorithms
            that take one for each token.
        entropy_bonus: reward for each nat of surprise at the deciding token of a valid reply
            (`ninegrid.gspo.exploration`), for algorithms that take an advantage for each token.
        entropy_target: nats of entropy of the decision below which the bonus is raised, step by step, above
            what its schedule gives; 0 for never.
        entropy_schedule: ``constant``, or ``linear`` or ``cosine`` decay to 0 of bonus and target.
        control: ``none``, or a run under rewards that say nothing (`ninegrid.gspo.control`).
        seed: of the order of the boards and of every training draw.
        steps: rollout batches.
        n_boards: boards (groups) that a step trains on.
        rounds: at most so many times ``n_boards`` boards are sampled in a step, until as many groups
            have a spread of rewards, from which alone there is something to learn (dynamic sampling,
            DAPO, arXiv 2503.14476, section 3.2).
        n_samples: replies sampled for each board.
        scale_by_std: divide advantages by the standard deviation of their group.
        clip_low, clip_high: the importance ratio is clipped to [1 - clip_low, 1 + clip_high].
        passes: how often each rollout batch is gone through.
        minibatches: optimiser steps in one pass; boards are dealt to them in turn.
        max_tokens_per_pass: distinct tokens in one forward and backward pass; larger batches are
            accumulated, with the same gradient.
        optimizer: ``adamw`` (fused), or of bitsandbytes: ``adamw_8bit`` has a quarter of its state,
            ``paged_adamw`` and ``paged_adamw_8bit`` move it out of a CUDA device's memory when that is short.
        weight_update: how trained weights that are not float32 are moved: ``master`` keeps a float32 copy of
            each, ``stochastic`` rounds at random, ``nearest`` loses the steps that are too small for them.
        gradient_checkpointing: keep the input of each layer alone and compute the rest anew in the backward
            pass: less memory, a third more time in the update.
        learning_rate: peak of the schedule.
        schedule: ``constant``, ``linear`` or ``cosine`` decay to 0 after the warm-up.
        warmup_steps: steps of linear rise to the peak.
        beta1, beta2, weight_decay: of AdamW.
        max_grad_norm: gradients are scaled down to this global norm.
        max_logprob_diff: difference of a token's log-prob between sampling and scoring, in nats, beyond which
            a warning is given; None for the limit of the weights' number format (`ninegrid.gspo.precision`).
        checkpoint_every: steps between checkpoints, 0 for none.
    """

    algorithm: AlgorithmName = "gspo"
    credit: Literal["sequence", "branch", "turn"] = "sequence"
    entropy_bonus: float = 0.0
    entropy_target: float = 0.0
    entropy_schedule: Schedule = "constant"
    control: Control = "none"
    seed: int = 1
    steps: int = 40
    n_boards: int = 4
    rounds: int = 1
    n_samples: int = 16
    scale_by_std: bool = False
    clip_low: float = 0.02
    clip_high: float = 0.03
    passes: int = 1
    minibatches: int = 1
    max_tokens_per_pass: int = 1024
    optimizer: Literal["adamw", "adamw_8bit", "paged_adamw", "paged_adamw_8bit"] = "adamw"
    weight_update: Literal["master", "stochastic", "nearest"] = "master"
    gradient_checkpointing: bool = False
    learning_rate: float = 5e-6
    schedule: Schedule = "constant"
    warmup_steps: int = 0
    beta1: float = 0.9
    beta2: float = 0.999
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    max_logprob_diff: float | None = None
    checkpoint_every: int = 10

    def __post_init__(self) -> None:
        takers = ", ".join(name for name, facts in FACTS.items() if facts.per_token)
        per_token = FACTS[self.algorithm].per_token
        require(
            self.credit == "sequence" or per_token,
            "credit",
            self.credit,
            f"sequence with train.algorithm = {self.algorithm}, which has one advantage for each reply "
            f"(branch and turn go with {takers})",
        )
        require(self.entropy_bonus >= 0, "entropy_bonus", self.entropy_bonus, ">= 0")
        require(
            self.entropy_bonus == 0 or per_token,
            "entropy_bonus",
            self.entropy_bonus,
            f"0 with train.algorithm = {self.algorithm} (a bonus for one token goes with {takers})",
        )
        require(self.entropy_target >= 0, "entropy_target", self.entropy_target, ">= 0")
        require(
            self.entropy_target == 0 or self.entropy_bonus > 0,
            "entropy_bonus",
            self.entropy_bonus,
            f"> 0 with train.entropy_target = {self.entropy_target:g}: the bonus that steering begins with",
        )
        require(0 <= self.seed < 2**32, "seed", self.seed, "0 .. 2^32 - 1")
        require(self.rounds >= 1, "rounds", self.rounds, ">= 1")
        require(self.steps >= 0, "steps", self.steps, ">= 0")
        require(self.n_boards >= 1, "n_boards", self.n_boards, ">= 1")
        require(
            self.n_samples >= 2, "n_samples", self.n_samples, ">= 2 (advantages compare samples of a board)"
        )
        require(0 < self.clip_low <= 1, "clip_low", self.clip_low, "> 0 and <= 1")
        require(self.clip_high > 0, "clip_high", self.clip_high, "> 0")
        require(self.passes >= 1, "passes", self.passes, ">= 1")
        allowed = f"1 to train.n_boards = {self.n_boards}"
        require(1 <= self.minibatches <= self.n_boards, "minibatches", self.minibatches, allowed)
        require(self.max_tokens_per_pass >= 1, "max_tokens_per_pass", self.max_tokens_per_pass, ">= 1")
        require(self.learning_rate > 0, "learning_rate", self.learning_rate, "> 0")
        require(self.warmup_steps >= 0, "warmup_steps", self.warmup_steps, ">= 0")
        require(0 <= self.beta1 < 1, "beta1", self.beta1, "0 <= beta1 < 1")
        require(0 <= self.beta2 < 1, "beta2", self.beta2, "0 <= beta2 < 1")
        require(self.weight_decay >= 0, "weight_decay", self.weight_decay, ">= 0")
        require(self.max_grad_norm > 0, "max_grad_norm", self.max_grad_norm, "> 0")
        require(
            self.max_logprob_diff is None or self.max_logprob_diff >= 0,
            "max_logprob_diff",
            self.max_logprob_diff,
            "null or >= 0",
        )
        require(self.checkpoint_every >= 0, "checkpoint_every", self.checkpoint_every, ">= 0")

    @property
    def updates(self) -> int:
        """Optimiser steps for one rollout batch."""
        return self.passes * self.minibatches


def learning_rate(settings: TrainSettings, step: int) -> float:
    """The learning rate of ``step``, counted from 0: linear warm-up, then the schedule's decay."""
    if step < settings.warmup_steps:
        return settings.learning_rate * (step + 1) / settings.warmup_steps
    span = max(1, settings.steps - settings.warmup_steps)
    progress = min(1.0, (step - settings.warmup_steps) / span)
    return settings.learning_rate * _decay(settings.schedule, progress)


def entropy_bonus(settings: TrainSettings, step: int, last: tuple[float, float] | None = None) -> float:
    """The coefficient of the entropy bonus in ``step``, counted from 0.

    Args:
        last: the coefficient and the entropy of the decision in the step before; None in the first step,
            and after one without a readable decision.

    Returns:
        What the schedule gives.  With a target, the last coefficient times exp(target - entropy) where that
        is more, up to `MOST_BONUS`: it rises while there is too little entropy and falls back afterwards (as
        the temperature of soft actor-critic is tuned, Haarnoja et al., arXiv 1812.05905, section 5).
    """
    decay = _decay(settings.entropy_schedule, min(1.0, step / max(1, settings.steps)))
    scheduled = settings.entropy_bonus * decay
    if not settings.entropy_target or last is None:
        return scheduled
    bonus, entropy = last
    steered = bonus * exp(settings.entropy_target * decay - entropy)
    return min(MOST_BONUS, max(scheduled, steered))


def _decay(schedule: Schedule, progress: float) -> float:
    if schedule == "linear":
        return 1.0 - progress
    if schedule == "cosine":
        return 0.5 * (1.0 + cos(pi * progress))
    return 1.0
