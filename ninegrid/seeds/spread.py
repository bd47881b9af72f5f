"""How much seeds agree: mean, spread and interval of each quantity over them.

The interval is Student's t over the seeds' means.  It covers what the seed of a training changes, on one set
of held-out examples; how another draw of examples would turn out is what each seed's own interval covers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ninegrid.seeds.results import DECODINGS, SeedResult


@dataclass(frozen=True)
class Spread:
    """Values over seeds; ``sd`` (of a sample), ``low`` and ``high`` are None for a single seed."""

    n: int
    mean: float
    sd: float | None
    min: float
    max: float
    low: float | None
    high: float | None


def spread(values: Sequence[float], confidence: float) -> Spread:
    """Describe one quantity over seeds."""
    from scipy.stats import t

    n, mean = len(values), math.fsum(values) / len(values)
    if n < 2:
        return Spread(n, mean, None, mean, mean, None, None)
    sd = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    half = float(t.ppf(0.5 + confidence / 2, n - 1)) * sd / math.sqrt(n)
    return Spread(n, mean, sd, min(values), max(values), mean - half, mean + half)


def quantities(result: SeedResult) -> dict[str, float]:
    """What is compared over seeds: name -> value."""
    found: dict[str, float] = {}
    for decoding in DECODINGS:
        figures = result.figures[decoding]
        found[f"{decoding}/score"] = figures.score
        found[f"{decoding}/change"] = figures.change
        found |= {f"{decoding}/{name}": rate for name, rate in figures.milestones.items()}
    return found


def spreads(results: Sequence[SeedResult]) -> dict[str, Spread]:
    """`spread` of every quantity; ``results`` must not be empty."""
    values = [quantities(result) for result in results]
    return {name: spread([v[name] for v in values], results[0].confidence) for name in values[0]}


def seeds_above(results: Sequence[SeedResult], decoding: str, reference: float) -> list[int]:
    """The seeds whose own interval lies wholly above ``reference``."""
    lows = {result.seed: result.figures[decoding].low for result in results}
    return [seed for seed, low in lows.items() if low is not None and low > reference]


def references(results: Sequence[SeedResult]) -> list[tuple[str, Mapping[str, float]]]:
    """Name, then decoding -> score, of what seeds are set beside.

    These are the baseline, what was tried instead of training, and the reference players.
    """
    first = results[0]
    baseline = {d: first.figures[d].before for d in DECODINGS}
    return [
        ("baseline", baseline),
        *first.alternatives.items(),
        *((p, dict.fromkeys(DECODINGS, s)) for p, s in first.players.items()),
    ]


def summary(name: str, overrides: Sequence[str], results: Sequence[SeedResult], failed: Sequence[int]) -> Any:
    """The content of ``summary.json``."""
    beside: dict[str, Mapping[str, Any]] = {
        label: {
            decoding: {"score": score, "seeds_above": seeds_above(results, decoding, score)}
            for decoding, score in scores.items()
        }
        for label, scores in references(results)
    }
    return {
        "name": name,
        "overrides": list(overrides),
        "seeds": [result.seed for result in results],
        "failed": list(failed),
        "experiments": {str(result.seed): result.experiment for result in results},
        "confidence": results[0].confidence,
        "spread": {quantity: asdict(found) for quantity, found in spreads(results).items()},
        "beside": beside,
    }
