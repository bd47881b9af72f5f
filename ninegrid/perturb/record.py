"""``perturbed.json``: what each perturbation does to the score, before and after training.

Everything the page, the figure and the mirror say is read from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ninegrid.evaluation.compare import Comparison
from ninegrid.evaluation.episodes import Episode
from ninegrid.evaluation.metrics import DECODINGS, evaluation_metrics
from ninegrid.evaluation.settings import EvalSettings
from ninegrid.perturb.cases import Case
from ninegrid.perturb.measure import Replies
from ninegrid.report.stats import clustered_mean
from ninegrid.tasks.protocol import Example, Task

Json = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """Replies to the same examples before and after training."""

    examples: Sequence[Example]
    untrained: Sequence[Episode]
    trained: Sequence[Episode]


def unperturbed(
    examples: Sequence[Example], baseline: Sequence[Episode], retest: Sequence[Episode]
) -> Measured:
    """The baseline's and the retest's replies to ``examples``."""
    ids = {example.id for example in examples}
    before, after = ([e for e in side if e.example["id"] in ids] for side in (baseline, retest))
    return Measured(examples, before, after)


class Recorder:
    """Writes the record of one task under one evaluation's settings.

    Args:
        task: the unperturbed task.
        settings: bootstrap and confidence.
    """

    def __init__(self, task: Task, settings: EvalSettings) -> None:
        self._task, self._settings = task, settings
        self._comparison = Comparison(task, settings, frozenset())

    def record(
        self,
        cases: Sequence[Case],
        untrained: Replies,
        trained: Replies,
        plain: Measured,
        training: Mapping[str, Any],
    ) -> Json:
        """The whole record.

        Args:
            cases: what was measured.
            untrained, trained: the replies to each case.
            plain: the unperturbed replies, to the examples of every paired case.
            training: the training's ``metrics.json``.
        """
        sides = zip(cases, untrained.asked, untrained.episodes, trained.episodes, strict=True)
        settings = self._settings
        return {
            "model": training["model"],
            "training": {key: training[key] for key in ("algorithm", "steps", "seed")},
            "task": self._task.name,
            "milestones": list(self._task.milestones),
            "bootstrap": {
                "resamples": settings.resamples,
                "seed": settings.seed,
                "unit": "group",
                "confidence": settings.confidence,
            },
            "unperturbed": self._entry(plain, None),
            "perturbations": {
                case.name: {
                    "description": case.perturbation.description,
                    "paired": case.paired,
                    **asdict(asked),
                    **self._entry(Measured(case.examples, before, after), plain if case.paired else None),
                }
                for case, asked, before, after in sides
            },
        }

    def _entry(self, found: Measured, plain: Measured | None) -> Json:
        """What is known of one way of asking; ``plain`` are the replies to pair it with."""
        by_training = self._comparison.compare(found.untrained, found.trained)
        by_perturbation = None if plain is None else self._comparison.compare(plain.trained, found.trained)
        before, after = (self._side(side, found.examples) for side in (found.untrained, found.trained))
        return {
            "boards": len(found.examples),
            "groups": len({example.group for example in found.examples}),
            "players": self._players(before["players"]),
            **{
                decoding: {
                    "untrained": before[decoding],
                    "trained": after[decoding],
                    "by_training": self._changes(by_training[decoding]),
                    "by_perturbation": by_perturbation and self._changes(by_perturbation[decoding]),
                }
                for decoding in DECODINGS
            },
        }

    def _players(self, expected: Mapping[str, float]) -> Json:
        labels = self._task.players()
        return {name: {"label": labels[name]["label"], "score": score} for name, score in expected.items()}

    def _side(self, episodes: Sequence[Episode], examples: Sequence[Example]) -> Json:
        metrics = evaluation_metrics(episodes, self._task, examples, self._settings.confidence)
        return {
            "players": metrics["players"],
            **{
                decoding: {**metrics[decoding], "score": self._score(episodes, decoding)}
                for decoding in DECODINGS
            },
        }

    def _score(self, episodes: Sequence[Episode], decoding: str) -> Json:
        chosen = [asdict(e) for e in episodes if e.decoding == decoding]
        mean = clustered_mean(chosen, "score", self._settings.confidence)
        assert mean is not None, "there is an episode of each decoding"
        return {"mean": mean.value, "low": mean.low, "high": mean.high}

    @staticmethod
    def _changes(compared: Mapping[str, Any]) -> Json:
        return {key: compared[key] for key in ("score", "milestones", "outcomes")}


def headline_metrics(record: Mapping[str, Any]) -> Json:
    """The numbers that runs are compared by: name -> decoding -> what -> number."""
    return {
        name: {decoding: _numbers(found[decoding]) for decoding in DECODINGS}
        for name, found in record["perturbations"].items()
    }


def _numbers(side: Mapping[str, Any]) -> dict[str, float]:
    numbers = {
        "untrained_score": side["untrained"]["score"]["mean"],
        "score": side["trained"]["score"]["mean"],
        **_change("change", side["by_training"]["score"]),
        **{f"{name}_rate": rate["rate"] for name, rate in side["trained"]["milestones"].items()},
    }
    if side["by_perturbation"] is not None:
        numbers |= _change("against_unperturbed", side["by_perturbation"]["score"])
    return numbers


def _change(stem: str, change: Mapping[str, float | None]) -> dict[str, float]:
    named = {stem: change["change"], f"{stem}_low": change["low"], f"{stem}_high": change["high"]}
    return {name: value for name, value in named.items() if value is not None}
