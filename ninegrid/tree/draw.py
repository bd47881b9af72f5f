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

from ninegrid.tree.scan import running_sum

Floats = NDArray[np.float64]

GREEDY = float("nan")
"""In place of a uniform: the sample takes the most probable token."""

SPAN = 256
"""Tokens of the vocabulary that a draw looks at one by one."""


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
    row = torch.as_tensor(row_S, device=logits_RV.device)
    greedy_S = np.isnan(uniform_S)
    token_S = logp_RV.argmax(-1)[row]
    if not greedy_S.all():
        drawn_S = _inverse_transform(prob_RV, row, np.where(greedy_S, 0.0, uniform_S))
        token_S = torch.where(torch.as_tensor(greedy_S, device=row.device), token_S, drawn_S)
    # One copy to the host, which waits for the device: float64 holds any token, and any float32.
    figures_3S = torch.stack([token_S.double(), logp_RV[row, token_S], _entropy(prob_RV, logp_RV)[row]])
    token, logprob, entropy = figures_3S.cpu().numpy()
    return Drawn(token.astype(np.int64).tolist(), logprob.astype(np.float32), entropy.astype(np.float32))


def _entropy(prob_RV: Tensor, logp_RV: Tensor) -> Tensor:
    """Entropy of each row in nats, [R]."""
    # 0 · -inf is NaN, but a token of probability 0 adds nothing.
    return -torch.linalg.vecdot(prob_RV, logp_RV.clamp(min=torch.finfo(logp_RV.dtype).min))


def _inverse_transform(prob_RV: Tensor, row_S: Tensor, uniform_S: Floats) -> Tensor:
    """The token at which a row's cumulative probability first exceeds the uniform, [S].

    Found in two steps, the span of the vocabulary and the token in it, so that no running sum over all
    of the vocabulary is made.  Sums are in float64: in float32 they lose the small probabilities.
    """
    rows, vocabulary = prob_RV.shape
    spans_RBC = torch.nn.functional.pad(prob_RV, (0, -vocabulary % SPAN)).view(rows, -1, SPAN)
    span_SB = spans_RBC.sum(-1, dtype=torch.float64)[row_S]
    until_SB = running_sum(span_SB)
    target_S1 = torch.as_tensor(uniform_S, device=prob_RV.device)[:, None] * until_SB[:, -1:]
    span_S1 = _first_beyond(until_SB, span_SB, target_S1)
    inside_SC = spans_RBC[row_S, span_S1[:, 0]].double()
    before_S1 = until_SB.gather(1, span_S1) - span_SB.gather(1, span_S1)
    token_S1 = _first_beyond(before_S1 + running_sum(inside_SC), inside_SC, target_S1)
    return (span_S1 * SPAN + token_S1)[:, 0]


def _first_beyond(until_SX: Tensor, weight_SX: Tensor, target_S1: Tensor) -> Tensor:
    """The first place whose running sum is beyond the target, [S, 1].

    Rounding may leave none: then it is the last place that has any weight.
    """
    place_S1 = torch.searchsorted(until_SX, target_S1, right=True)
    positions = torch.arange(until_SX.shape[1], device=until_SX.device)
    last_S1 = torch.where(weight_SX > 0, positions, 0).amax(-1, keepdim=True)
    return torch.minimum(place_S1, last_S1)
