"""``metrics.json``: what one evaluation found, with intervals."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ninegrid.evaluation.episodes import GREEDY, SAMPLED, Episode
from ninegrid.evaluation.statistics import wilson_interval
from ninegrid.tasks.dataset import expected_score
from ninegrid.tasks.protocol import Example, Task

DECODINGS = (SAMPLED, GREEDY)


def evaluation_metrics(
    episodes: Sequence[Episode], task: Task, examples: Sequence[Example], confidence: float
) -> dict[str, Any]:
    """Mean score and reward, rates with Wilson intervals, response length, reference players."""
    return {
        **{d: _figures([e for e in episodes if e.decoding == d], task, confidence) for d in DECODINGS},
        "players": player_scores(task, examples),
    }


def player_scores(task: Task, examples: Sequence[Example]) -> dict[str, float]:
    """Exact mean score of each reference player on ``examples``."""
    return {p: _mean([expected_score(task, p, e) for e in examples]) for p in task.players()}


def headline(metrics: Mapping[str, Any]) -> dict[str, str]:
    """One line for each decoding, for the log."""
    lines = {}
    for decoding in DECODINGS:
        figures = metrics[decoding]
        rates = "  ".join(f"{name} {rate['rate']:.1%}" for name, rate in figures["milestones"].items())
        lines[decoding] = f"mean score {figures['score_mean']:+.3f}  {rates}  on {figures['boards']} boards"
    return lines


def _figures(episodes: Sequence[Episode], task: Task, confidence: float) -> dict[str, Any]:
    lengths = [e.n_tokens for e in episodes]
    return {
        "n": len(episodes),
        "boards": len({e.example["id"] for e in episodes}),
        "score_mean": _mean([e.score for e in episodes]),
        "reward_mean": _mean([e.reward for e in episodes]),
        "milestones": {
            name: _rate(episodes, members, confidence) for name, members in task.milestones.items()
        },
        "outcomes": {str(name): _rate(episodes, {name}, confidence) for name in task.outcomes},
        "response_len_mean": _mean(lengths),
        "response_len_p95": float(np.percentile(lengths, 95)),
        "truncated_rate": _mean([e.truncated for e in episodes]),
    }


def _rate(episodes: Sequence[Episode], members: Collection[str], confidence: float) -> dict[str, float]:
    hits = sum(e.outcome in members for e in episodes)
    low, high = wilson_interval(hits, len(episodes), confidence)
    return {"rate": hits / len(episodes), "low": low, "high": high}


def _mean(values: Sequence[float | bool]) -> float:
    return float(np.mean(values))
