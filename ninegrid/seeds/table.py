"""The seeds as text for a terminal, and as rows for ``seeds.csv``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ninegrid.seeds.results import DECODINGS, SeedResult
from ninegrid.seeds.spread import quantities, references, seeds_above, spreads


def csv_rows(results: Sequence[SeedResult]) -> list[dict[str, Any]]:
    """One row a seed: what identifies it, every quantity, and the intervals of its own."""
    rows = []
    for result in results:
        row: dict[str, Any] = {
            "seed": result.seed,
            "experiment": result.experiment,
            "revision": result.revision,
        }
        row |= quantities(result)
        for decoding in DECODINGS:
            found = result.figures[decoding]
            row |= {f"{decoding}/score_low": found.low, f"{decoding}/score_high": found.high}
            row |= {
                f"{decoding}/change_low": found.change_low,
                f"{decoding}/change_high": found.change_high,
            }
        rows.append(row)
    return rows


def tables(results: Sequence[SeedResult]) -> str:
    """Three tables: each seed, what holds over them, and what they are set beside."""
    level = f"{results[0].confidence:.0%}"
    parts = [
        _table(["seed", *_titles(results[0]), f"sampled score, its {level} interval"], _seed_rows(results)),
        _table(
            ["over seeds", "mean", "sd", "min", "max", f"{level} t interval of the mean"],
            _spread_rows(results),
        ),
        _table(
            ["beside", *(f"{d}: score, seeds above" for d in DECODINGS)],
            _reference_rows(results),
        ),
    ]
    return "\n\n".join(parts)


def _titles(result: SeedResult) -> list[str]:
    return [name.replace("/", " ") for name in quantities(result)]


def _seed_rows(results: Sequence[SeedResult]) -> list[list[str]]:
    return [
        [
            str(result.seed),
            *(_number(value) for value in quantities(result).values()),
            _interval(result.figures["sampled"].low, result.figures["sampled"].high),
        ]
        for result in results
    ]


def _spread_rows(results: Sequence[SeedResult]) -> list[list[str]]:
    return [
        [
            name.replace("/", " "),
            *(_number(value) for value in (found.mean, found.sd, found.min, found.max)),
            _interval(found.low, found.high),
        ]
        for name, found in spreads(results).items()
    ]


def _reference_rows(results: Sequence[SeedResult]) -> list[list[str]]:
    n = len(results)
    return [
        [
            label.replace("_", " "),
            *(f"{_number(scores[d])}  {len(seeds_above(results, d, scores[d]))} of {n}" for d in DECODINGS),
        ]
        for label, scores in references(results)
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{round(value, 3) + 0.0:+.3f}"  # no -0.000


def _interval(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{low:+.3f} to {high:+.3f}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns padded to their widest cell, the first to the left, the others to the right."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
