"""What the measurement does not show, said of this run and no other."""

from __future__ import annotations

from collections.abc import Iterator

from ninegrid.report.inputs import ReportInputs, Rows
from ninegrid.report.text import count

FEW_GROUPS = 30
"""Below this number of groups a bootstrap over groups gives intervals that are too narrow."""


def limits(inputs: ReportInputs, steps: Rows) -> list[str]:
    """Sentences for the last section of the page."""
    return list(_limits(inputs, steps))


def _limits(inputs: ReportInputs, steps: Rows) -> Iterator[str]:
    one, many = inputs.unit
    if steps:
        yield (
            "How much the result depends on the training seed. One training run is shown; the intervals "
            f"cover the choice of held-out {many}, not the spread between training runs. Repeat training "
            "with other values of train.seed before calling one setting better than another."
        )
    yield (
        "Anything about other models, other tasks or other prompts. Both measurements use one prompt, "
        f"and every held-out {one} comes from the same generator as the training {many}."
    )
    level, odds = 100 * inputs.confidence, round(1 / (1 - inputs.confidence))
    yield (
        f"That every marked change is real. Each interval stands for itself at {level:g}%: among many "
        f"quantities that did not change, about one in {odds} would be marked all the same."
    )
    groups = int(inputs.comparison["sampled"]["groups"])
    if groups < FEW_GROUPS:
        yield (
            f"Small effects. The held-out {many} fall into only {count(groups, 'group')} of related ones, "
            "and a bootstrap over so few tends to give intervals that are too narrow."
        )
    if inputs.reward_differs:
        yield (
            "That the reward in force is a better reward. Runs with different rewards are compared on the "
            "score, which no setting changes."
        )
