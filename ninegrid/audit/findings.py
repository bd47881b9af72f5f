"""What the figures of an audit mean, in sentences: each is chosen by the numbers.

A warning says that training under this table may lead elsewhere than to better play, or nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ninegrid.audit.policies import BEST, CONSTANT, RANDOM, WORST, Policy
from ninegrid.reward import RewardTable
from ninegrid.tasks.protocol import Interactive, Task

OK, WARNING = "ok", "warning"

MANY = 0.5
"""From this share on, examples that teach nothing about play are a warning."""


@dataclass(frozen=True)
class Finding:
    """One sentence; ``level`` is "ok" or "warning"."""

    level: str
    text: str


@dataclass(frozen=True)
class Evidence:
    """What the sentences are chosen by.

    Attributes:
        task: it ranks outcomes by its score.
        table: the reward in force.
        policies: those audited.
        earns: name of a policy -> mean reward on the training examples.
        taught: `Teaching.describe` of the training examples.
    """

    task: Task
    table: RewardTable
    policies: Sequence[Policy]
    earns: Mapping[str, float]
    taught: Mapping[str, Any]


def findings(found: Evidence) -> list[Finding]:
    """Every statement about a table; where all outcomes pay the same there is but one."""
    pays = set(found.table.outcomes.values())
    if len(pays) == 1:
        return [Finding(WARNING, f"Every outcome pays {_show(*pays)}: nothing can be learned.")]
    return [
        *_order(found),
        *_ties(found),
        *_habits(found),
        *_play(found),
        *_mute(found),
        *_length(found),
    ]


def _order(found: Evidence) -> Iterator[Finding]:
    """Whether a better outcome ever pays less than a worse one."""
    score, pay = found.task.score, found.table.outcomes
    quiet = True
    for better in found.task.outcomes:
        worse = [o for o in found.task.outcomes if score[o] < score[better] and pay[o] > pay[better]]
        if worse:
            quiet = False
            best_paid = max(worse, key=lambda outcome: pay[outcome])
            yield Finding(
                WARNING,
                f"{_name(better)} pays {_show(pay[better])}, less than {_name(best_paid)} "
                f"({_show(pay[best_paid])}), which is the worse outcome: the order of rewards contradicts "
                "the order of outcomes.",
            )
    if quiet:
        yield Finding(OK, "No outcome pays less than a worse one.")


def _ties(found: Evidence) -> Iterator[Finding]:
    """Whether a failed reply pays as much as one that passes the weakest milestone."""
    passed = next(iter(found.task.milestones.values()), frozenset[str]())
    pay = found.table.outcomes
    for outcome in (o for o in found.task.outcomes if o in passed):
        alike = [o for o in found.task.outcomes if o not in passed and pay[o] == pay[outcome]]
        if alike:
            yield Finding(
                WARNING,
                f"{_name(outcome)} pays {_show(pay[outcome])}, no more than "
                f"{' and '.join(map(_name, alike))}: nothing leads from one to the other.",
            )


def _habits(found: Evidence) -> Iterator[Finding]:
    """Whether a policy that ignores the example can earn as much as one that obeys the rules."""
    earns = found.earns
    habit = max((p for p in found.policies if p.ignorant), key=lambda policy: earns[policy.name])
    name = (
        f"the constant {habit.label}" if habit.kind == CONSTANT else f"a reply of kind {_name(habit.label)}"
    )
    value = _show(earns[habit.name])
    if isinstance(found.task, Interactive):
        yield Finding(
            OK,
            f"Of the replies without an acceptable call, {_name(habit.label)} earns most, {value}. What the "
            "same call earns again and again in a course of several steps is not worked out"
            + (", nor what reward.steps adds." if found.table.steps else "."),
        )
        return
    if WORST not in earns:
        yield Finding(
            OK,
            f"The best policy that ignores the board, {name}, earns {value}. The task does not list its "
            "legal actions, so it cannot be compared with legal play.",
        )
        return
    for rival, label in ((RANDOM, "random legal play"), (WORST, "the worst legal play")):
        if earns[habit.name] >= earns[rival]:
            more = "more than" if earns[habit.name] > earns[rival] else "as much as"
            yield Finding(
                WARNING,
                f"{name[0].upper()}{name[1:]} earns {more} {label}: {value} against {_show(earns[rival])} on "
                "training boards. A habit can be worth more than the rules.",
            )
            return
    yield Finding(
        OK,
        f"No habit earns as much as legal play: the best policy that ignores the board, {name}, earns "
        f"{value} on training boards, the worst legal play {_show(earns[WORST])}.",
    )


def _play(found: Evidence) -> Iterator[Finding]:
    """How much better play can earn, and how many examples have nothing to say about it."""
    if WORST not in found.earns:
        return
    flat, count, share = (found.taught[key] for key in ("flat", "count", "flat_share"))
    best, random = found.earns[BEST], found.earns[RANDOM]
    if flat == count:
        yield Finding(
            WARNING,
            "On every training board all legal actions pay the same: legality can be learned, play cannot.",
        )
        return
    yield Finding(
        OK,
        f"Above random legal play ({_show(random)}) there is {_show(best - random)} to be earned "
        "by playing well.",
    )
    yield Finding(
        WARNING if share >= MANY else OK,
        f"{flat:,} of {count:,} training boards ({share:.0%}) pay the same for every legal action: "
        "they can teach legality, not play.",
    )


def _mute(found: Evidence) -> Iterator[Finding]:
    mute, count = found.taught["mute"], found.taught["count"]
    if mute:
        yield Finding(
            WARNING,
            f"{mute:,} of {count:,} training boards pay the same for every reply, legal or not: "
            "they teach nothing.",
        )
    else:
        yield Finding(OK, "There is no training board on which every reply pays the same.")


def _length(found: Evidence) -> Iterator[Finding]:
    """Whether a length penalty can make silence pay better than a call."""
    penalty, pay = found.table.length_penalty, found.table.outcomes
    if penalty == 0:
        return
    passed = next(iter(found.task.milestones.values()), frozenset[str]())
    failed = [pay[o] for o in found.task.outcomes if o not in passed]
    gap = min((pay[o] for o in passed), default=max(pay.values())) - max(failed, default=min(pay.values()))
    tokens = max(0.0, gap) / penalty
    longest = max((_characters(w.call) for w in found.task.worked_examples()), default=0)
    yield Finding(
        OK if tokens > longest else WARNING,
        f"The length penalty of {penalty:g} a token is not in these figures. A reply that passes and is "
        f"{tokens:,.0f} tokens longer than one that fails is worth no more; a call has up to {longest} "
        "characters.",
    )


def _characters(call: Any) -> int:
    return len(json.dumps({"name": call.name, "arguments": dict(call.arguments)}))


def _name(outcome: str) -> str:
    return f"“{outcome.replace('_', ' ')}”"


def _show(value: float) -> str:
    return f"{value:.3f}"
