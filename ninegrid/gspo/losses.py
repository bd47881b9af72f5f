"""Objectives as pure functions of log-probs and advantages; no tokenizer, no model, no state.

S samples, T token slots; slots beyond a completion's length are masked.
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
class Objective:
    """What an objective returns.

    Attributes:
        loss: scalar with gradient; the negative objective, already divided by ``n_samples``.
        terms_S: each sample's part of the loss before that division, detached.
        ratio_S: the ratios, detached.
        clipped_S: where clipping is in force, so that the sample has no gradient.
    """

    loss: Tensor
    terms_S: Tensor
    ratio_S: Tensor
    clipped_S: Tensor


def sequence_ratio(new_ST: Tensor, old_ST: Tensor, mask_ST: Tensor) -> Tensor:
    """Length-normalised sequence ratio s_i (GSPO, arXiv 2507.18071, equation 7), [S]."""
    length_S = mask_ST.sum(-1)
    return (((new_ST - old_ST) * mask_ST).sum(-1) / length_S).exp()


def gspo(
    new_ST: Tensor, old_ST: Tensor, mask_ST: Tensor, advantage_S: Tensor, clip: ClipRange, n_samples: int
) -> Objective:
    """Group sequence policy optimisation (arXiv 2507.18071, equation 5).

    Maximises the mean over samples of min(s A, clip(s, 1 - low, 1 + high) A).

    Args:
        new_ST: log-probs under the policy being trained, with gradient.
        old_ST: log-probs recorded when the completions were sampled.
        mask_ST: 1 for tokens of the completion, 0 beyond.
        advantage_S: advantages.
        clip: the clip range.
        n_samples: what the sum is divided by: the samples of the whole batch, including those
            left out here because their advantage is 0.
    """
    ratio_S = sequence_ratio(new_ST, old_ST.detach(), mask_ST)
    limited_S = ratio_S.clamp(1 - clip.low, 1 + clip.high)
    term_S = -torch.minimum(ratio_S * advantage_S, limited_S * advantage_S)
    with torch.no_grad():
        clipped_S = limited_S * advantage_S < ratio_S * advantage_S
    return Objective(term_S.sum() / n_samples, term_S.detach(), ratio_S.detach(), clipped_S)
