"""The seeds as text for a terminal, and as rows for ``seeds.csv``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ninegrid.experiments.results import DECODINGS, Result, seed_of
from ninegrid.experiments.spread import measured, quantities, references, seeds_above, spreads
from ninegrid.experiments.terminal import interval, signed, table


def csv_rows(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One row a seed: what identifies it, every quantity, and the intervals of its own."""
    return [
        {
            "seed": seed_of(result),
            "experiment": result.experiment,
            "revision": result.revision,
            **measured(result),
        }
        for result in results
    ]


def tables(results: Sequence[Result]) -> str:
    """Three tables: each seed, what holds over them, and what they are set beside."""
    level = f"{results[0].confidence:.0%}"
    parts = [
        table(["seed", *_titles(results[0]), f"sampled score, its {level} interval"], _seed_rows(results)),
        table(
            ["over seeds", "mean", "sd", "min", "max", f"{level} t interval of the mean"],
            _spread_rows(results),
        ),
        table(
            ["beside", *(f"{d}: score, seeds above" for d in DECODINGS)],
            _reference_rows(results),
        ),
    ]
    return "\n\n".join(parts)


def _titles(result: Result) -> list[str]:
    return [name.replace("/", " ") for name in quantities(result)]


def _seed_rows(results: Sequence[Result]) -> list[list[str]]:
    return [
        [
            str(seed_of(result)),
            *(signed(value) for value in quantities(result).values()),
            interval(result.figures["sampled"].low, result.figures["sampled"].high),
        ]
        for result in results
    ]


def _spread_rows(results: Sequence[Result]) -> list[list[str]]:
    return [
        [
            name.replace("/", " "),
            *(signed(value) for value in (found.mean, found.sd, found.min, found.max)),
            interval(found.low, found.high),
        ]
        for name, found in spreads(results).items()
    ]


def _reference_rows(results: Sequence[Result]) -> list[list[str]]:
    n = len(results)
    return [
        [
            label.replace("_", " "),
            *(f"{signed(scores[d])}  {len(seeds_above(results, d, scores[d]))} of {n}" for d in DECODINGS),
        ]
        for label, scores in references(results)
    ]
