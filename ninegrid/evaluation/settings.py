"""Settings of the evaluation that the baseline and the retest share."""

from __future__ import annotations

from dataclasses import dataclass

from ninegrid.config import require


@dataclass(frozen=True)
class EvalSettings:
    """How a policy is measured.

    Attributes:
        seed: of the draws; each reply's draws depend on it, the board's id and the sample's number.
        n_samples: sampled replies for each held-out board; one greedy reply is taken beside them.
        resamples: bootstrap resamples behind each interval of a change.
        confidence: of every interval.
    """

    seed: int = 7
    n_samples: int = 1
    resamples: int = 10_000
    confidence: float = 0.95

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**32, "seed", self.seed, "0 .. 2^32 - 1")
        require(self.n_samples >= 1, "n_samples", self.n_samples, ">= 1")
        require(self.resamples >= 100, "resamples", self.resamples, ">= 100")
        require(0 < self.confidence < 1, "confidence", self.confidence, "0 < confidence < 1")
