"""The perturbed retests from end to end: read, measure both policies, record, write, mirror."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ninegrid.config import flatten
from ninegrid.evaluation.conditions import check_conditions
from ninegrid.evaluation.episodes import Episode, read_episodes
from ninegrid.evaluation.metrics import DECODINGS
from ninegrid.evaluation.trained import check_trained, read_training
from ninegrid.paths import PathSettings
from ninegrid.perturb.cases import Case, make_cases, spread
from ninegrid.perturb.measure import PerturbedSettings, Replies, measure_cases
from ninegrid.perturb.outputs import write_perturbed
from ninegrid.perturb.record import Recorder, headline_metrics, unperturbed
from ninegrid.perturb.settings import PerturbSettings
from ninegrid.policy.agent import Agent
from ninegrid.progress import interval_text, say
from ninegrid.tasks.dataset import read_examples
from ninegrid.tasks.protocol import Example, Perturbation, Task
from ninegrid.tracking import Run

STAGE, MEASUREMENT = "perturb_retest", "perturbed retest"


class RetestSettings(PerturbedSettings, Protocol):
    """The sections that the perturbed retests read."""

    @property
    def perturb(self) -> PerturbSettings: ...
    @property
    def paths(self) -> PathSettings: ...


@dataclass(frozen=True)
class Inputs:
    """What earlier stages left, read and checked before anything is measured.

    Attributes:
        heldout: all held-out examples.
        baseline, retest: the unperturbed replies to them.
        training: the training's ``metrics.json``.
    """

    heldout: list[Example]
    baseline: list[Episode]
    retest: list[Episode]
    training: dict[str, Any]


def read_inputs(paths: PathSettings, task: Task) -> Inputs:
    """Read what the perturbed retests are compared with.

    Raises:
        DataError: a file is missing or damaged.
    """
    baseline, retest = paths.folder("baseline"), paths.folder("retest")
    return Inputs(
        heldout=read_examples(task, paths.folder("boards") / "heldout.jsonl"),
        baseline=read_episodes(baseline / "episodes.jsonl", task.outcomes),
        retest=read_episodes(retest / "episodes.jsonl", task.outcomes, "retest"),
        training=read_training(paths),
    )


@dataclass(frozen=True)
class PerturbedRetest:
    """Both policies' replies to every case, and the record made of them."""

    cases: Sequence[Case]
    untrained: Replies
    trained: Replies
    record: dict[str, Any]

    def write(self, folder: Path, limit: int) -> None:
        """Write the stage's files; ``limit`` is the longest reply in tokens."""
        sides = {"untrained": self.untrained, "trained": self.trained}
        replies = (
            (case.name, policy, episode)
            for i, case in enumerate(self.cases)
            for policy, side in sides.items()
            for episode in side.episodes[i]
        )
        write_perturbed(folder, self.record, replies, limit)


def retest_perturbed(
    task: Task, chosen: Mapping[str, Perturbation], inputs: Inputs, settings: RetestSettings
) -> PerturbedRetest:
    """Measure the untrained model, then the trained policy, under every perturbation.

    Raises:
        ConditionsError: the unperturbed measurements were taken under other settings.
        DataError: the policy is not the one that training ended with.
    """
    paths, limit = settings.paths, settings.perturb.boards
    cases = make_cases(chosen, inputs.heldout, limit)

    def check_untrained(_: Agent, conditions: dict[str, Any]) -> None:
        names, stages = ("baseline", MEASUREMENT), ("baseline_eval", STAGE)
        check_conditions(paths.folder("baseline"), conditions, names, stages)

    def check_policy(agent: Agent, conditions: dict[str, Any]) -> None:
        check_conditions(paths.folder("retest"), conditions, ("retest", MEASUREMENT), ("retest", STAGE))
        check_trained(agent, inputs.training)

    def measure(folder: str, label: str, before: Any) -> Replies:
        return measure_cases(
            paths.folder(folder), task, cases, inputs.heldout, settings, label=label, before=before
        )

    untrained = measure("model", "untrained", check_untrained)
    trained = measure("policy", "trained", check_policy)
    plain = unperturbed(spread(inputs.heldout, limit), inputs.baseline, inputs.retest)
    record = Recorder(task, settings.eval).record(cases, untrained, trained, plain, inputs.training)
    return PerturbedRetest(cases, untrained, trained, record)


def mirror_perturbed(run: Run, record: Mapping[str, Any], folder: Path) -> None:
    """Mirror the headline as flat names (perturbed/NAME/DECODING/WHAT) and the files."""
    flat = flatten(headline_metrics(record))
    run.metrics({f"perturbed/{name.replace('.', '/')}": value for name, value in flat.items()})
    for name in ("perturbed.json", "episodes.jsonl", "perturbed.svg", "report.html"):
        run.artifact(folder / name, "perturbed")


def say_perturbed(record: Mapping[str, Any]) -> None:
    """One line for each perturbation and decoding."""
    for name, found in record["perturbations"].items():
        for decoding in DECODINGS:
            gain, cost = found[decoding]["by_training"]["score"], found[decoding]["by_perturbation"]
            against = "" if cost is None else f"; against unperturbed {_text(cost['score'])}"
            say(
                f"{STAGE}: {name}, {decoding}: mean score {gain['before']:+.3f} -> {gain['after']:+.3f}, "
                f"change {_text(gain)}{against}"
            )


def _text(change: Mapping[str, float]) -> str:
    return f"{change['change']:+.3f} {interval_text(change)}"
