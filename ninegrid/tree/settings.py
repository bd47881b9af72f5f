"""Settings of decoding and of the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ninegrid.config import require


@dataclass(frozen=True)
class DecodingSettings:
    """How replies are sampled, in training and in evaluation alike.

    Attributes:
        temperature: divides the logits; the policy that GSPO optimises is the one at this
            temperature.
        max_new_tokens: a reply that has not stopped by then is cut and marked truncated.
    """

    temperature: float = 1.0
    max_new_tokens: int = 32

    def __post_init__(self) -> None:
        require(self.temperature > 0, "temperature", self.temperature, "> 0 (greedy is measured beside it)")
        require(self.max_new_tokens >= 1, "max_new_tokens", self.max_new_tokens, ">= 1")


@dataclass(frozen=True)
class EngineSettings:
    """How forward passes are laid out; changes speed and memory, not what is computed.

    Attributes:
        path: ``tree`` runs every distinct token once, ``padded`` is the plain batched
            computation; ``auto`` takes the tree wherever the architecture allows it.
        max_tokens_per_batch: tokens that are held at once while sampling, counted as if no two replies began
            alike; more prompts than that are sampled in several batches.  Bounds memory (about 0.1 MB a
            token for SmolLM2).
        threads: CPU threads, or None for as many as there are cores.
    """

    path: Literal["auto", "tree", "padded"] = "auto"
    max_tokens_per_batch: int = 10240
    threads: int | None = None

    def __post_init__(self) -> None:
        require(self.max_tokens_per_batch >= 1, "max_tokens_per_batch", self.max_tokens_per_batch, ">= 1")
        require(self.threads is None or self.threads >= 1, "threads", self.threads, "null or >= 1")
