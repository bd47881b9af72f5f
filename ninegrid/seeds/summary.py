"""The content of ``summary.json``: what several seeds say together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ninegrid.experiments.results import Result, seed_of
from ninegrid.experiments.spread import references, seeds_above, spreads


def summary(name: str, overrides: Sequence[str], results: Sequence[Result], failed: Sequence[int]) -> Any:
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
        "seeds": [seed_of(result) for result in results],
        "failed": list(failed),
        "experiments": {str(seed_of(result)): result.experiment for result in results},
        "confidence": results[0].confidence,
        "spread": {quantity: asdict(found) for quantity, found in spreads(results).items()},
        "beside": beside,
    }
