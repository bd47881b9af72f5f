"""Would something cheaper have done it?  The trained policy beside the best use of the untrained model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ninegrid.evaluation.alternatives import Tried, measured_only
from ninegrid.evaluation.episodes import Episode
from ninegrid.evaluation.metrics import DECODINGS, player_scores
from ninegrid.evaluation.settings import EvalSettings
from ninegrid.evaluation.statistics import Floats, cluster_bootstrap
from ninegrid.tasks.protocol import Example, Task

EITHER = "either"
"""Best against best: each side under the decoding that suits it better."""

Way = tuple[str, str]
"""Name of a policy, and a decoding."""

Scores = dict[str, float]
"""Mean score of the replies to each example, by its id."""


@dataclass(frozen=True)
class Cheaper:
    """Sets a trained policy beside the alternatives to training.

    Attributes:
        task: names milestones and players.
        settings: bootstrap resamples, confidence and seed.
    """

    task: Task
    settings: EvalSettings

    def compare(
        self,
        examples: Sequence[Example],
        untrained: Sequence[Episode],
        tried: Mapping[str, Tried],
        trained: Sequence[Episode],
    ) -> dict[str, Any]:
        """What ``comparison.json`` holds under ``alternatives``.

        All episodes are replies to the same ``examples``.  Being the baseline, the plain untrained model
        is an alternative too, in particular its greedy replies.
        """
        measured = measured_only(tried)
        episodes = {
            "untrained": untrained,
            **{n: t.episodes for n, t in measured.items()},
            "trained": trained,
        }
        texts = {
            "untrained": ("untrained", "The untrained model under the prompt of the baseline."),
            **{name: (t.label, t.description) for name, t in measured.items()},
            "trained": ("trained", "The policy after training, under the prompt of the baseline."),
        }
        return {
            "policies": {
                name: {"label": label, "description": text, **self._figures(episodes[name])}
                for name, (label, text) in texts.items()
            },
            "left_out": {t.label: t.left_out for t in tried.values() if t.left_out is not None},
            "players": self._players(examples),
            "trained_minus_best": self._against_best(episodes),
        }

    def _figures(self, episodes: Sequence[Episode]) -> dict[str, Any]:
        """Decoding -> mean score and milestone rates, each with its interval."""
        return {d: self._means([e for e in episodes if e.decoding == d]) for d in DECODINGS}

    def _means(self, episodes: Sequence[Episode]) -> dict[str, Any]:
        milestones = self.task.milestones
        values_SK = np.array([[e.score, *(e.outcome in m for m in milestones.values())] for e in episodes])
        means = self._with_intervals(values_SK.astype(float), [e.group for e in episodes])
        return {"score": means[0], "milestones": dict(zip(milestones, means[1:], strict=True))}

    def _players(self, examples: Sequence[Example]) -> dict[str, Any]:
        """Exact mean score and milestone rates of each reference player."""
        return {
            player: {
                "score": score,
                "milestones": {m: self._rate(player, examples, m) for m in self.task.milestones},
            }
            for player, score in player_scores(self.task, examples).items()
        }

    def _rate(self, player: str, examples: Sequence[Example], milestone: str) -> float:
        members = self.task.milestones[milestone]
        chances = [self.task.expected_outcomes(player, example) for example in examples]
        return float(np.mean([sum(p for o, p in chance.items() if o in members) for chance in chances]))

    def _against_best(self, episodes: Mapping[str, Sequence[Episode]]) -> dict[str, Any]:
        """The trained policy less the best alternative: under each decoding, and best against best."""
        scores: dict[Way, Scores] = {
            (name, d): _score_by_example(e for e in replies if e.decoding == d)
            for name, replies in episodes.items()
            for d in DECODINGS
        }
        group = {e.example["id"]: e.group for e in episodes["trained"]}
        return {
            **{d: self._difference({w: s for w, s in scores.items() if w[1] == d}, group) for d in DECODINGS},
            EITHER: self._difference(scores, group),
        }

    def _difference(self, scores: Mapping[Way, Scores], group: Mapping[str, str]) -> dict[str, Any]:
        """The best trained way less the best other way, paired on the examples."""
        mean = {way: float(np.mean(list(by_id.values()))) for way, by_id in scores.items()}
        trained = max((way for way in scores if way[0] == "trained"), key=mean.__getitem__)
        best = max((way for way in scores if way[0] != "trained"), key=mean.__getitem__)
        change_S1 = np.array([[scores[trained][i] - scores[best][i]] for i in group])
        (change,) = self._with_intervals(change_S1, list(group.values()))
        return {
            "trained_decoding": trained[1],
            "best": best[0],
            "best_decoding": best[1],
            "before": mean[best],
            "after": mean[trained],
            "change": change["mean"],
            "low": change["low"],
            "high": change["high"],
        }

    def _with_intervals(self, values_SK: Floats, groups: Sequence[str]) -> list[dict[str, float | None]]:
        """Mean of each column with its bootstrap interval; without one where all belong to one group."""
        low_K, high_K = cluster_bootstrap(
            values_SK,
            groups,
            resamples=self.settings.resamples,
            confidence=self.settings.confidence,
            seed=self.settings.seed,
        )
        several = len(set(groups)) > 1
        return [
            {
                "mean": float(mean),
                "low": float(low) if several else None,
                "high": float(high) if several else None,
            }
            for mean, low, high in zip(values_SK.mean(0), low_K, high_K, strict=True)
        ]


def _score_by_example(episodes: Iterable[Episode]) -> Scores:
    scores: dict[str, list[float]] = defaultdict(list)
    for episode in episodes:
        scores[episode.example["id"]].append(episode.score)
    return {i: float(np.mean(values)) for i, values in scores.items()}
