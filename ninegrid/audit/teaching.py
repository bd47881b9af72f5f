"""What single examples can teach under a reward table: how to play, how to be legal, or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ninegrid.audit.policies import Pay
from ninegrid.tasks.protocol import CallOutcome, Example, Task, ToolCall

SHARE_DIGITS = 6


@dataclass(frozen=True)
class Teaching:
    """Judges examples by what a trainer could learn from the differences in pay.

    Attributes:
        task: whose actions are paid.
        pay: the reward of each outcome.
        calls: valid calls that can be made on any example (`policies.constant_calls`).
    """

    task: Task
    pay: Pay
    calls: Sequence[ToolCall]

    def is_flat(self, example: Example) -> bool:
        """Whether every legal action pays the same, so that nothing about play can be learned."""
        return self._prices(self.task.legal_outcomes(example)) == 1

    def is_mute(self, example: Example) -> bool:
        """Whether every reply at all pays the same: a valid call or none, legal or not.

        Where legal actions cannot be listed, any outcome may come of them.
        """
        known = [*CallOutcome, *(self.task.legal_outcomes(example) or self.task.outcomes)]
        if self._prices(known) > 1:
            return False
        return self._prices([*known, *(self.task.judge(example, call).outcome for call in self.calls)]) == 1

    def _prices(self, outcomes: Iterable[str]) -> int:
        return len({self.pay[outcome] for outcome in outcomes})

    def describe(self, examples: Sequence[Example]) -> dict[str, Any]:
        """Counts and shares of flat and of mute examples, in all and for each stratum."""
        strata: dict[str, list[tuple[bool, bool]]] = {}
        for example in examples:
            kinds = strata.setdefault(self.task.stratum(example), [])
            kinds.append((self.is_flat(example), self.is_mute(example)))
        return {
            **_counts([kind for kinds in strata.values() for kind in kinds]),
            "strata": {label: _counts(strata[label]) for label in sorted(strata)},
        }


def _counts(kinds: Sequence[tuple[bool, bool]]) -> dict[str, float]:
    """Counts and shares from (flat, mute) of each example."""
    flat, mute = (sum(column) for column in zip(*kinds, strict=True))
    return {
        "count": len(kinds),
        "flat": flat,
        "flat_share": round(flat / len(kinds), SHARE_DIGITS),
        "mute": mute,
        "mute_share": round(mute / len(kinds), SHARE_DIGITS),
    }
