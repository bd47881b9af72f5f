"""Section ``alternatives``: what could be done instead of training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from ninegrid.config import require
from ninegrid.errors import SettingsError
from ninegrid.tasks.protocol import Task

AlternativeName = Literal["more_examples", "forced", "forced_more_examples"]
NAMES: tuple[AlternativeName, ...] = get_args(AlternativeName)


@dataclass(frozen=True)
class Alternative:
    """One way to use the untrained model better.

    Attributes:
        name: as in the settings and in file names.
        worked_examples: how many its prompt shows; None for as many as everywhere else.
        forced: every reply is held to the format of one call.
    """

    name: AlternativeName
    worked_examples: int | None
    forced: bool

    @property
    def label(self) -> str:
        """A few words that name it."""
        parts = ["call forced"] if self.forced else []
        parts += [f"{self.worked_examples} worked examples"] if self.worked_examples is not None else []
        return "untrained, " + ", ".join(parts)

    @property
    def description(self) -> str:
        """What it is, in a sentence."""
        shown, forced = self.worked_examples, self.forced
        prompt = "the prompt of the baseline" if shown is None else f"a prompt with {shown} worked examples"
        held = ", each token drawn among those that can still become one valid call" if forced else ""
        return f"The untrained model under {prompt}{held}."


@dataclass(frozen=True)
class AlternativeSettings:
    """Which alternatives are measured.

    Attributes:
        names: any of `NAMES`; with none the stage loads no model.
        worked_examples: shown by those with more of them; None for all that the task offers.
    """

    names: tuple[AlternativeName, ...] = NAMES
    worked_examples: int | None = None

    def __post_init__(self) -> None:
        distinct = len(set(self.names)) == len(self.names)
        require(distinct, "names", list(self.names), "each name once, of " + ", ".join(NAMES))
        enough = self.worked_examples is None or self.worked_examples >= 1
        require(enough, "worked_examples", self.worked_examples, ">= 1, or null for all")

    def shown(self, task: Task) -> int:
        """How many worked examples "more" are.

        Raises:
            SettingsError: the task does not offer so many.
        """
        offered = len(task.worked_examples())
        if self.worked_examples is not None and self.worked_examples > offered:
            raise SettingsError(
                f"alternatives.worked_examples = {self.worked_examples}, "
                f"but task {task.name} offers {offered}",
                hint=f"set alternatives.worked_examples={offered} or fewer",
            )
        return offered if self.worked_examples is None else self.worked_examples

    def chosen(self, task: Task) -> list[Alternative]:
        """The alternatives to measure on ``task``, in the order of the settings.

        Raises:
            SettingsError: the task does not offer as many worked examples.
        """
        shown = self.shown(task)
        return [
            Alternative(name, shown if name.endswith("more_examples") else None, name.startswith("forced"))
            for name in self.names
        ]
