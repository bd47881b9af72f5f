"""What carries over and what does not, in sentences; all of it follows from the record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ninegrid.report.stats import Direction, direction
from ninegrid.report.text import number, signed, words

Json = Mapping[str, Any]


class Carry(StrEnum):
    """What became of the gain under a perturbation, as far as the intervals allow to say."""

    WHOLE = "carries over"
    """Training raised the score, and no loss against the unperturbed retest is seen."""
    PART = "carries over in part"
    """Training raised the score, but it is below the unperturbed retest."""
    NONE = "no gain is seen"
    """That training raised the score cannot be said."""


SAID = {
    Carry.WHOLE: "The gain carries over with",
    Carry.PART: "It carries over in part with",
    Carry.NONE: "No gain is seen with",
}


@dataclass(frozen=True)
class Finding:
    """One perturbation's verdict with the sentence that supports it."""

    name: str
    carry: Carry
    text: str


def carry(side: Json) -> Carry:
    """Read one decoding of one perturbation."""
    if direction(side["by_training"]["score"]) != Direction.UP:
        return Carry.NONE
    cost = side["by_perturbation"]
    return Carry.PART if cost and direction(cost["score"]) == Direction.DOWN else Carry.WHOLE


def findings(record: Json, decoding: str) -> list[Finding]:
    """One for each perturbation."""
    return [
        Finding(name, carry(found[decoding]), _sentence(found, found[decoding]))
        for name, found in record["perturbations"].items()
    ]


def summary(record: Json, decoding: str) -> str:
    """A few sentences over all perturbations."""
    gain = record["unperturbed"][decoding]["by_training"]["score"]
    boards = record["unperturbed"]["boards"]
    first = f"As it was asked in training, the mean {decoding} score on {boards} held-out boards went " + (
        f"from {number(gain['before'])} to {number(gain['after'])}: {_change(gain)}."
    )
    if direction(gain) != Direction.UP:
        return f"{first} That is no clear gain, so there is little that could carry over."
    return " ".join([first, *_by_carry(findings(record, decoding))])


def _by_carry(found: list[Finding]) -> Iterator[str]:
    for kind in Carry:
        names = [words(finding.name) for finding in found if finding.carry == kind]
        if names:
            yield f"{SAID[kind]} {', '.join(names)}."


def _sentence(found: Json, side: Json) -> str:
    gain, cost = side["by_training"]["score"], side["by_perturbation"]
    moved = f"{number(gain['before'])} to {number(gain['after'])}, {_change(gain)}"
    if cost is None:
        players = ", ".join(f"{p['label']} {number(p['score'], 2)}" for p in found["players"].values())
        return f"{moved}, on {found['boards']} boards of its own" + (f" ({players})." if players else ".")
    return f"{moved}; against the unperturbed retest on the same boards {_change(cost['score'])}."


def _change(change: Json) -> str:
    if change["low"] is None or change["high"] is None:
        return f"{signed(change['change'])} [one class: no interval]"
    return f"{signed(change['change'])} [{signed(change['low'])}, {signed(change['high'])}]"


def warnings(record: Json, max_new_tokens: int) -> list[str]:
    """What a reader must know before believing a number."""
    return [
        f"{words(name)}: a right call takes {found['call_tokens']} tokens and decoding.max_new_tokens is "
        f"{max_new_tokens}, so no such reply can be complete."
        for name, found in record["perturbations"].items()
        if found["call_tokens"] > max_new_tokens
    ]
