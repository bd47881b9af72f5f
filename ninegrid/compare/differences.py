"""What tells loops apart: the settings that differ, and each loop less the first, reply by reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ninegrid.compare.loop import Loop
from ninegrid.errors import ConditionsError
from ninegrid.evaluation.statistics import cluster_bootstrap
from ninegrid.report.inputs import DECODINGS, column

Json = Mapping[str, Any]
Key = tuple[str, int]
ABSENT = "(absent)"


def changed_settings(loops: Sequence[Loop]) -> dict[str, list[Any]]:
    """Setting -> its value in each loop, of the settings that are not the same in all."""
    keys = dict.fromkeys(key for loop in loops for key in loop.params)
    values = {key: [loop.params.get(key, ABSENT) for loop in loops] for key in keys}
    return {key: row for key, row in values.items() if any(value != row[0] for value in row)}


def replies(loop: Loop, decoding: str) -> dict[Key, Json]:
    """The loop's replies under one decoding by example and sample."""
    return {(e["example"]["id"], e["sample"]): e for e in loop.episodes if e["decoding"] == decoding}


def check_same_examples(loops: Sequence[Loop]) -> None:
    """Refuse loops that were not asked the same, or not evaluated alike.

    Raises:
        ConditionsError: naming the two loops and what only one of them holds.
    """
    for key, values in changed_settings(loops).items():
        if key.startswith("eval."):
            raise ConditionsError(
                f"{key} is not the same in all loops: {', '.join(map(str, values))}",
                hint="compare loops with equal eval settings: draws and intervals depend on them",
            )
    for decoding in DECODINGS:
        _check_same_keys(loops, decoding)


def _check_same_keys(loops: Sequence[Loop], decoding: str) -> None:
    first = replies(loops[0], decoding)
    for loop in loops[1:]:
        other = replies(loop, decoding)
        if first.keys() != other.keys():
            example, sample = sorted(first.keys() ^ other.keys())[0]
            raise ConditionsError(
                f"{loops[0].name} and {loop.name} did not answer the same: {decoding}, example {example}, "
                f"sample {sample} is in one of them only",
                hint="compare loops with equal boards",
            )


def less_the_first(loops: Sequence[Loop], decoding: str) -> list[Json]:
    """Each loop's mean score less that of the first, paired on the same examples and draws.

    Returns:
        For each loop after the first "before" (the first's), "after", "change", "low" and "high"; the ends
        are None where all examples are of one group.
    """
    bootstrap = loops[0].comparison["bootstrap"]
    first = replies(loops[0], decoding)
    found: list[Json] = []
    for loop in loops[1:]:
        other = replies(loop, decoding)
        before, after = (np.array([side[key]["score"] for key in first]) for side in (first, other))
        groups = [first[key]["group"] for key in first]
        low, high = cluster_bootstrap(
            (after - before)[:, None],
            groups,
            resamples=bootstrap["resamples"],
            confidence=bootstrap["confidence"],
            seed=bootstrap["seed"],
        )
        several = len(set(groups)) > 1
        found.append(
            {
                "before": float(before.mean()),
                "after": float(after.mean()),
                "change": float((after - before).mean()),
                "low": float(low[0]) if several else None,
                "high": float(high[0]) if several else None,
            }
        )
    return found


def costs(loop: Loop) -> dict[str, float | None]:
    """What its GSPO steps took, from their record: steps, examples and replies sampled, tokens.

    None where a step has no record of it.
    """
    boards = column(loop.steps, "rollout/boards")
    lengths = column(loop.steps, "rollout/response_len_mean")
    n_samples = float(loop.params["train.n_samples"])
    replies_sampled = [None if n is None else n * n_samples for n in boards]
    tokens = [
        None if n is None or length is None else n * length
        for n, length in zip(replies_sampled, lengths, strict=True)
    ]
    return {
        "steps": len(loop.steps),
        "examples sampled": _sum(boards),
        "replies sampled": _sum(replies_sampled),
        "tokens sampled": _sum(tokens),
        "distinct tokens trained on": _sum(column(loop.steps, "train/distinct_tokens")),
    }


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
