"""Random draws: counter-based uniforms, and tokens by inverse transform.

A draw belongs to a sample and a position, not to the order of computation: whichever path runs,
in whatever batch, the same sample sees the same uniforms.  There is no generator state to save.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]

GREEDY = float("nan")
"""In place of a uniform: the sample takes the most probable token."""


def uniforms(n: int, *key: str | int) -> Floats:
    """``n`` uniforms in [0, 1) that depend on ``key`` alone, [n] float64."""
    digest = hashlib.blake2b("\x1f".join(map(str, key)).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little"))).random(n)


@dataclass(frozen=True)
class Drawn:
    """Tokens drawn for S samples that stand on R rows of logits."""

    tokens_S: list[int]
    logprobs_S: NDArray[np.float32]
    entropies_S: NDArray[np.float32]


def draw_tokens(logits_RV: Tensor, row_S: list[int], uniform_S: Floats, temperature: float) -> Drawn:
    """Draw each sample's next token from the distribution of its row.

    Args:
        logits_RV: next-token logits of each row.
        row_S: the row each sample stands on.
        uniform_S: a uniform per sample; `GREEDY` takes the most probable token instead.
        temperature: divides the logits.  Log-probs and entropies (in nats) are at this
            temperature in both cases.
    """
    logp_RV = torch.log_softmax(logits_RV.float() / temperature, dim=-1)
    prob_RV = logp_RV.exp()
    # 0 · -inf is NaN; a token of probability 0 adds nothing to the entropy.
    entropy_R = -torch.where(prob_RV > 0, prob_RV * logp_RV, 0.0).sum(-1)
    row = torch.as_tensor(row_S, device=logits_RV.device)
    greedy_S = np.isnan(uniform_S)
    token_S = logp_RV.argmax(-1)[row]
    if not greedy_S.all():
        drawn_S = _inverse_transform(prob_RV, row, np.where(greedy_S, 0.0, uniform_S))
        token_S = torch.where(torch.as_tensor(greedy_S, device=row.device), token_S, drawn_S)
    return Drawn(
        tokens_S=token_S.tolist(),
        logprobs_S=logp_RV[row, token_S].cpu().numpy(),
        entropies_S=entropy_R[row].cpu().numpy(),
    )


def _inverse_transform(prob_RV: Tensor, row_S: Tensor, uniform_S: Floats) -> Tensor:
    """The token at which a row's cumulative probability first exceeds the uniform, [S]."""
    # Float64: in float32 the running sum over a large vocabulary loses the small probabilities.
    cumulative_RV = prob_RV.double().cumsum(-1)
    total_R = cumulative_RV[:, -1]
    target_S = torch.as_tensor(uniform_S, device=prob_RV.device) * total_R[row_S]
    # Samples are sorted to rows so that one batched search serves all of them without copying rows.
    order = torch.argsort(row_S, stable=True)
    counts = torch.bincount(row_S, minlength=prob_RV.shape[0])
    width = int(counts.max())
    slot = torch.arange(len(order), device=row_S.device) - (counts.cumsum(0) - counts)[row_S[order]]
    wanted_RW = target_S.new_zeros(prob_RV.shape[0], width)
    wanted_RW[row_S[order], slot] = target_S[order]
    found_RW = torch.searchsorted(cumulative_RV, wanted_RW, right=True)
    token_S = torch.empty_like(row_S)
    token_S[order] = found_RW[row_S[order], slot]
    # Rounding may put the target on the total itself: then the last token of positive probability.
    last_R = prob_RV.shape[1] - 1 - (prob_RV > 0).flip(-1).int().argmax(-1)
    return torch.minimum(token_S, last_R[row_S])
