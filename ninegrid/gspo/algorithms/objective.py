"""What the algorithms share: their inputs and result, importance ratios, clipping.

Pure functions of log-probs and advantages; no tokenizer, no model, no state.  S samples, T token
slots; slots beyond a completion's length are masked, and what they hold never matters.  A unit is
what has a ratio of its own: a reply or a token.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ClipRange:
    """The ratio is clipped to [1 - low, 1 + high]."""

    low: float
    high: float


@dataclass(frozen=True)
class Totals:
    """What an objective is divided by: counts of the whole minibatch, of which a call may see a part.

    Attributes:
        samples: replies, including those left out of scoring because their advantage is 0.
        tokens: completion tokens of all these replies.
        max_tokens: the most tokens that a reply may have.
    """

    samples: int
    tokens: int
    max_tokens: int


@dataclass(frozen=True)
class Objective:
    """What an algorithm returns.

    Attributes:
        loss: scalar with gradient; the negative objective over the algorithm's own denominator,
            so that the losses of a minibatch's parts add up to the loss of the minibatch.
        terms_S: each sample's part of the loss, detached.
        ratio_U: the importance ratios, one for each unit: sample, or real token, row after row.
        clipped_U: where clipping is in force, for the same units.
    """

    loss: Tensor
    terms_S: Tensor
    ratio_U: Tensor
    clipped_U: Tensor


def result_of_replies(term_S: Tensor, ratio_S: Tensor, clipped_S: Tensor) -> Objective:
    """The result of an algorithm whose units are replies."""
    return Objective(term_S.sum(), term_S.detach(), ratio_S.detach(), clipped_S)


def result_of_tokens(term_S: Tensor, ratio_ST: Tensor, clipped_ST: Tensor, mask_ST: Tensor) -> Objective:
    """The result of an algorithm whose units are tokens."""
    real_ST = mask_ST.bool()
    return Objective(term_S.sum(), term_S.detach(), ratio_ST.detach()[real_ST], clipped_ST[real_ST])


def real(value_ST: Tensor, mask_ST: Tensor) -> Tensor:
    """The values of real tokens and 0 elsewhere, [S, T]; unlike a product, also for nan and inf."""
    return torch.where(mask_ST.bool(), value_ST, 0.0)


def log_ratio(new_ST: Tensor, old_ST: Tensor, mask_ST: Tensor) -> Tensor:
    """log (pi / pi_old) of each real token and 0 elsewhere, [S, T]; no gradient enters ``old_ST``.

    Raises:
        ValueError: the shapes differ.
    """
    if not new_ST.shape == old_ST.shape == mask_ST.shape:
        shapes = f"{tuple(new_ST.shape)}, {tuple(old_ST.shape)}, {tuple(mask_ST.shape)}"
        raise ValueError(f"log-probs, recorded log-probs and mask have shapes {shapes}, expected one [S, T]")
    return real(new_ST - old_ST.detach(), mask_ST)


def token_ratio(new_ST: Tensor, old_ST: Tensor, mask_ST: Tensor) -> Tensor:
    """The importance ratio of each token (GRPO, arXiv 2402.03300, equation 3), [S, T]; 1 where masked."""
    return log_ratio(new_ST, old_ST, mask_ST).exp()


def sequence_ratio(new_ST: Tensor, old_ST: Tensor, mask_ST: Tensor) -> Tensor:
    """Length-normalised sequence ratio s_i (GSPO, arXiv 2507.18071, equation 7), [S]."""
    return (log_ratio(new_ST, old_ST, mask_ST).sum(-1) / lengths(mask_ST)).exp()


def lengths(mask_ST: Tensor) -> Tensor:
    """Real tokens of each sample, [S]; 1 for a sample without any, whose terms are 0 anyway."""
    return mask_ST.sum(-1).clamp(min=1)


def reply_advantage(advantage_ST: Tensor, mask_ST: Tensor, algorithm: str) -> Tensor:
    """The advantage of each reply, [S].

    Raises:
        ValueError: ``advantage_ST`` is not [S, 1].
    """
    if advantage_ST.shape != (mask_ST.shape[0], 1):
        raise ValueError(
            f"{algorithm} has one ratio and one advantage for each reply: expected advantages of shape "
            f"({mask_ST.shape[0]}, 1), got {tuple(advantage_ST.shape)}; "
            "gspo_token takes one for each token"
        )
    return advantage_ST.squeeze(-1)


def token_advantage(advantage_ST: Tensor, mask_ST: Tensor) -> Tensor:
    """The advantage of each token, [S, T], from one for each reply or token; 0 where masked.

    Raises:
        ValueError: ``advantage_ST`` is neither [S, 1] nor [S, T].
    """
    samples, slots = mask_ST.shape
    if advantage_ST.shape not in {(samples, 1), (samples, slots)}:
        raise ValueError(
            f"expected advantages of shape ({samples}, 1) or ({samples}, {slots}), "
            f"got {tuple(advantage_ST.shape)}"
        )
    return real(advantage_ST, mask_ST)


def clipped_gain(ratio: Tensor, advantage: Tensor, clip: ClipRange) -> tuple[Tensor, Tensor]:
    """min(r A, clip(r, 1 - low, 1 + high) A) and where its second part is in force.

    PPO's surrogate (arXiv 1707.06347, equation 7), with a bound for each side.
    A unit is clipped, and without gradient, if its ratio is out of range and its advantage would
    push it further out.

    Args:
        ratio, advantage: [S] or [S, T].
        clip: the range.
    """
    limited = ratio.clamp(1 - clip.low, 1 + clip.high)
    free_gain, limited_gain = ratio * advantage, limited * advantage
    return torch.minimum(free_gain, limited_gain), (limited_gain < free_gain).detach()
