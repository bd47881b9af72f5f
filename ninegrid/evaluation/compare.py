"""The paired comparison of two evaluations of the same boards and draws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ninegrid.errors import ConditionsError
from ninegrid.evaluation.episodes import Episode
from ninegrid.evaluation.metrics import DECODINGS, player_scores
from ninegrid.evaluation.settings import EvalSettings
from ninegrid.evaluation.statistics import cluster_bootstrap, mcnemar
from ninegrid.reward import RewardTable
from ninegrid.tasks.protocol import Task

Pair = tuple[Episode, Episode]
Quantity = Callable[[Episode], float]


@dataclass(frozen=True)
class Comparison:
    """Compares a baseline with a retest, reply by reply.

    Attributes:
        task: names outcomes and milestones.
        settings: bootstrap resamples, confidence and seed.
        flat: ids of examples on which every legal action pays the same; None where the task lists none.
    """

    task: Task
    settings: EvalSettings
    flat: frozenset[str] | None

    def compare(self, before: Sequence[Episode], after: Sequence[Episode]) -> dict[str, Any]:
        """The content of ``comparison.json``.

        Raises:
            ConditionsError: the two do not hold replies to the same examples.
        """
        pairs = pair_up(before, after)
        settings = self.settings
        return {
            **{d: self._decoding([p for p in pairs if p[0].decoding == d]) for d in DECODINGS},
            "bootstrap": {
                "resamples": settings.resamples,
                "seed": settings.seed,
                "unit": "group",
                "confidence": settings.confidence,
            },
        }

    def _decoding(self, pairs: Sequence[Pair]) -> dict[str, Any]:
        changes = self._changes(pairs, self._quantities())
        milestones = self.task.milestones
        return {
            "n": len(pairs),
            "boards": len({b.example["id"] for b, _ in pairs}),
            "groups": len({b.group for b, _ in pairs}),
            "score": changes["score"],
            "reward": changes["reward"],
            "milestones": {name: changes[f"milestone {name}"] for name in milestones},
            "outcomes": {str(name): changes[f"outcome {name}"] for name in self.task.outcomes},
            "mcnemar": {name: _mcnemar(pairs, members) for name, members in milestones.items()},
            "transitions": _transitions(pairs),
            "response_len": {
                "before": float(np.mean([b.n_tokens for b, _ in pairs])),
                "after": float(np.mean([a.n_tokens for _, a in pairs])),
            },
            "flips": {
                "improved": _flips(pairs, lambda b, a: a.score > b.score),
                "worsened": _flips(pairs, lambda b, a: a.score < b.score),
            },
            "subsets": self._subsets(pairs),
            "kinds": self._kinds(pairs),
        }

    def _quantities(self) -> dict[str, Quantity]:
        milestones = {f"milestone {name}": _one_of(m) for name, m in self.task.milestones.items()}
        outcomes = {f"outcome {name}": _one_of({name}) for name in self.task.outcomes}
        return {"score": _score, "reward": _reward, **milestones, **outcomes}

    def _subsets(self, pairs: Sequence[Pair]) -> dict[str, Any]:
        """Boards where the choice matters, and boards where every legal action pays the same."""
        if self.flat is None:
            return {}
        parts = {
            "decisive": [p for p in pairs if p[0].example["id"] not in self.flat],
            "flat": [p for p in pairs if p[0].example["id"] in self.flat],
        }
        return {name: self._part(part) for name, part in parts.items() if part}

    def _kinds(self, pairs: Sequence[Pair]) -> dict[str, Any]:
        """Score by what a board asks for, the most frequent first, with what the reference players expect."""
        examples = [self.task.parse(before.example) for before, _ in pairs]
        members: dict[str, list[int]] = {}
        for i, example in enumerate(examples):
            members.setdefault(self.task.kind(example), []).append(i)
        return {
            kind: {
                **self._part([pairs[i] for i in part]),
                "players": player_scores(self.task, [examples[i] for i in part]),
            }
            for kind, part in sorted(members.items(), key=lambda item: (-len(item[1]), item[0]))
        }

    def _part(self, pairs: Sequence[Pair]) -> dict[str, Any]:
        return {"n": len(pairs), "score": self._changes(pairs, {"score": _score})["score"]}

    def _changes(
        self, pairs: Sequence[Pair], quantities: Mapping[str, Quantity]
    ) -> dict[str, dict[str, float | None]]:
        """Mean before, after, and the change with its bootstrap interval, of each quantity."""
        before_SK = np.array([[q(b) for q in quantities.values()] for b, _ in pairs])
        after_SK = np.array([[q(a) for q in quantities.values()] for _, a in pairs])
        groups = [b.group for b, _ in pairs]
        low_K, high_K = cluster_bootstrap(
            after_SK - before_SK,
            groups,
            resamples=self.settings.resamples,
            confidence=self.settings.confidence,
            seed=self.settings.seed,
        )
        columns = zip(before_SK.mean(0), after_SK.mean(0), low_K, high_K, strict=True)
        return {
            name: {
                "before": float(b),
                "after": float(a),
                "change": float(a - b),
                # One class resampled is always itself: an interval without width would be false.
                "low": float(low) if len(set(groups)) > 1 else None,
                "high": float(high) if len(set(groups)) > 1 else None,
            }
            for name, (b, a, low, high) in zip(quantities, columns, strict=True)
        }


def _score(episode: Episode) -> float:
    return episode.score


def _reward(episode: Episode) -> float:
    return episode.reward


def _one_of(members: Collection[str]) -> Quantity:
    """1 for an episode whose outcome is among ``members``, else 0."""
    return lambda episode: float(episode.outcome in members)


def pair_up(before: Sequence[Episode], after: Sequence[Episode]) -> list[Pair]:
    """Pair episodes of the same example, decoding and sample.

    Raises:
        ConditionsError: one side has an episode that the other lacks.
    """
    old, new = {e.key: e for e in before}, {e.key: e for e in after}
    if old.keys() != new.keys():
        missing = sorted(map(str, old.keys() ^ new.keys()))[0]
        raise ConditionsError(
            f"baseline and retest do not hold the same replies: {missing} is in only one of them",
            hint="measure both again with: dvc repro -f baseline_eval retest",
        )
    return [(old[key], new[key]) for key in old]


def rejudged(episodes: Sequence[Episode], table: RewardTable) -> list[Episode]:
    """The same episodes with their reward taken from ``table``; outcomes are facts and stay."""
    return [replace(e, reward=table.reward(e.outcome, e.n_tokens)) for e in episodes]


def _mcnemar(pairs: Sequence[Pair], members: frozenset[str]) -> dict[str, float | int]:
    gained = sum(b.outcome not in members and a.outcome in members for b, a in pairs)
    lost = sum(b.outcome in members and a.outcome not in members for b, a in pairs)
    return {"gained": gained, "lost": lost, "p": mcnemar(gained, lost)}


def _transitions(pairs: Sequence[Pair]) -> dict[str, dict[str, int]]:
    counts = Counter((b.outcome, a.outcome) for b, a in pairs)
    table: dict[str, dict[str, int]] = {}
    for (old, new), n in sorted(counts.items()):
        table.setdefault(old, {})[new] = n
    return table


def _flips(pairs: Sequence[Pair], flipped: Callable[[Episode, Episode], bool]) -> list[dict[str, Any]]:
    return [
        {"id": b.example["id"], "sample": b.sample, "before": b.outcome, "after": a.outcome}
        for b, a in pairs
        if flipped(b, a)
    ]
