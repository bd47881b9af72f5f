"""Recorded replies: baseline and retest side by side, and the flips among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ninegrid.evaluation.episodes import read_episodes
from ninegrid.paths import PathSettings
from ninegrid.tasks.protocol import Task

if TYPE_CHECKING:
    from ninegrid.evaluation.compare import Pair

Change = Literal["all", "flips", "improved", "worsened"]
ANY = "any"


@dataclass(frozen=True)
class Filter:
    """Which pairs to look at.

    Attributes:
        decoding: "any", "sampled" or "greedy".
        change: all of them, or those whose score changed, rose or fell.
        before, after: an outcome, or "any".
    """

    decoding: str = "sampled"
    change: Change = "all"
    before: str = ANY
    after: str = ANY

    def takes(self, pair: Pair) -> bool:
        before, after = pair
        return (
            self.decoding in (ANY, before.decoding)
            and self.change in ("all", *_changes(pair))
            and self.before in (ANY, before.outcome)
            and self.after in (ANY, after.outcome)
        )


def read_pairs(paths: PathSettings, task: Task) -> list[Pair]:
    """The replies of baseline and retest, paired by board, decoding and sample.

    Raises:
        DataError: a file is missing or damaged.
        ConditionsError: the two do not hold replies to the same boards.
    """
    from ninegrid.evaluation.compare import pair_up  # brings scipy, in the thread that waits for it

    files = {"baseline": "baseline_eval", "retest": "retest"}
    before, after = (
        read_episodes(paths.folder(name) / "episodes.jsonl", task.outcomes, stage)
        for name, stage in files.items()
    )
    return pair_up(before, after)


def select(pairs: Sequence[Pair], wanted: Filter) -> list[int]:
    """The places of the pairs that a filter takes, ascending."""
    return [place for place, pair in enumerate(pairs) if wanted.takes(pair)]


def is_flip(pair: Pair) -> bool:
    """Whether the score changed, up or down."""
    return "flips" in _changes(pair)


def next_flip(pairs: Sequence[Pair], places: Sequence[int], after: int) -> int | None:
    """The first flip among ``places`` beyond ``after``, or else the first of all; None without any."""
    flips = [place for place in places if is_flip(pairs[place])]
    return next((place for place in flips if place > after), flips[0] if flips else None)


def count_changes(pairs: Sequence[Pair], decoding: str) -> Counter[str]:
    """How many pairs of a decoding each choice of `Filter.change` takes."""
    counts: Counter[str] = Counter()
    for pair in pairs:
        if decoding in (ANY, pair[0].decoding):
            counts.update(["all", *_changes(pair)])
    return counts


def _changes(pair: Pair) -> tuple[str, ...]:
    before, after = pair
    if after.score == before.score:
        return ()
    return ("flips", "improved" if after.score > before.score else "worsened")
