"""The statistics behind the report: intervals of rates, of paired changes, and a paired test."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest, norm

Floats = NDArray[np.float64]

CHUNK = 1000
"""Bootstrap resamples drawn at once."""


def wilson_interval(successes: int, n: int, confidence: float) -> tuple[float, float]:
    """Wilson's score interval of a rate (Wilson 1927, JASA 22, equation for p).

    It stays inside 0..1 and is sensible at 0 and at ``n`` successes, where the normal
    approximation has no width.
    """
    if n == 0:
        return 0.0, 1.0
    z = float(norm.ppf(0.5 + confidence / 2))
    rate = successes / n
    scale = 1 + z * z / n
    centre = (rate + z * z / (2 * n)) / scale
    half = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / scale
    return max(0.0, centre - half), min(1.0, centre + half)


def cluster_bootstrap(
    values_SK: Floats, clusters: Sequence[str], *, resamples: int, confidence: float, seed: int
) -> tuple[Floats, Floats]:
    """Percentile interval of the mean of each column, resampling whole clusters.

    Boards of one symmetry class are not independent observations, so classes are drawn with
    replacement, not boards (Efron and Tibshirani 1993, chapter 8, on resampling units).

    Args:
        values_SK: K quantities for each of S observations.
        clusters: cluster of each observation, [S].
        resamples: bootstrap resamples.
        confidence: of the two-sided interval.
        seed: of the resampling.

    Returns:
        Lower and upper ends, [K] each.
    """
    names, index_S = np.unique(np.asarray(clusters), return_inverse=True)
    sums_CK = np.zeros((len(names), values_SK.shape[1]))
    np.add.at(sums_CK, index_S, values_SK)
    sizes_C = np.bincount(index_S, minlength=len(names)).astype(np.float64)
    rng = np.random.default_rng(seed)
    means = []
    for start in range(0, resamples, CHUNK):
        n = min(CHUNK, resamples - start)
        counts_BC = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=n)
        means.append((counts_BC @ sums_CK) / (counts_BC @ sizes_C)[:, None])
    tail = (1 - confidence) / 2
    low_K, high_K = np.quantile(np.concatenate(means), [tail, 1 - tail], axis=0)
    return low_K, high_K


def mcnemar(gained: int, lost: int) -> float:
    """McNemar's exact two-sided p-value from the discordant pairs (McNemar 1947, exact form).

    Under no change each discordant pair is as likely to be gained as lost: a binomial test.
    """
    if gained + lost == 0:
        return 1.0
    return float(binomtest(gained, gained + lost, 0.5).pvalue)
