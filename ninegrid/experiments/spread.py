"""How much results agree that differ by their seed alone: mean, spread and interval of each quantity.

The interval is Student's t over the seeds' means.  It covers what the seed of a training changes, on one set
of held-out examples; how another draw of examples would turn out is what each seed's own interval covers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ninegrid.experiments.results import DECODINGS, Result, seed_of


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


def quantities(result: Result) -> dict[str, float]:
    """What is compared over seeds: name -> value."""
    found: dict[str, float] = {}
    for decoding in DECODINGS:
        figures = result.figures[decoding]
        found[f"{decoding}/score"] = figures.score
        found[f"{decoding}/change"] = figures.change
        found |= {f"{decoding}/{name}": rate for name, rate in figures.milestones.items()}
    return found


def measured(result: Result) -> dict[str, float | None]:
    """Every quantity of one result, and the intervals of its own: column -> value."""
    row: dict[str, float | None] = dict(quantities(result))
    for decoding in DECODINGS:
        found = result.figures[decoding]
        row |= {f"{decoding}/score_low": found.low, f"{decoding}/score_high": found.high}
        row |= {f"{decoding}/change_low": found.change_low, f"{decoding}/change_high": found.change_high}
    return row


def spreads(results: Sequence[Result]) -> dict[str, Spread]:
    """`spread` of every quantity; ``results`` must not be empty."""
    values = [quantities(result) for result in results]
    return {name: spread([v[name] for v in values], results[0].confidence) for name in values[0]}


def seeds_above(results: Sequence[Result], decoding: str, reference: float) -> list[int]:
    """The seeds whose own interval lies wholly above ``reference``."""
    lows = {seed_of(result): result.figures[decoding].low for result in results}
    return [seed for seed, low in lows.items() if low is not None and low > reference]


def references(results: Sequence[Result]) -> list[tuple[str, Mapping[str, float]]]:
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
