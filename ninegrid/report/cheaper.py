"""The section "Would something cheaper have done it?": its table and its sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ninegrid.report.inputs import DECODINGS, Json, ReportInputs
from ninegrid.report.stats import Direction, direction
from ninegrid.report.tables import ChangeRow, change_row
from ninegrid.report.text import MISSING, number, percent, signed


@dataclass(frozen=True)
class PolicyRow:
    """One way to play; ``kind`` is alternative, trained or player."""

    kind: str
    label: str
    decoding: str
    score: str
    interval: str
    rates: list[str]
    description: str


@dataclass(frozen=True)
class Section:
    """The section's content.

    Attributes:
        answer: one sentence.
        tone: of the answer, as elsewhere on the page.
        milestones: names of the rates in each row.
        rows: alternatives, the trained policy, reference players.
        differences: (what is compared, the trained policy less the best alternative).
        left_out: label of an alternative that could not be measured -> why.
    """

    answer: str
    tone: str
    milestones: Sequence[str]
    rows: list[PolicyRow]
    differences: list[tuple[str, ChangeRow]]
    left_out: Mapping[str, str]


def section(inputs: ReportInputs) -> Section | None:
    """The section, or None if the comparison knows nothing of alternatives."""
    found = inputs.comparison.get("alternatives")
    if found is None:
        return None
    either = found["trained_minus_best"]["either"]
    return Section(
        answer=_answer(found, inputs.confidence),
        tone=_TONES[direction(either)],
        milestones=list(inputs.milestones),
        rows=[*_policy_rows(found), *_player_rows(inputs, found)],
        differences=list(_differences(found)),
        left_out=found["left_out"],
    )


_TONES = {
    Direction.UP: "up",
    Direction.DOWN: "down",
    Direction.UNCLEAR: "flat",
    Direction.SAME: "flat",
}


def _answer(found: Json, confidence: float) -> str:
    """Best against best: each side under the decoding that suits it better."""
    either = found["trained_minus_best"]["either"]
    trained = f"the trained policy ({either['trained_decoding']})"
    best = f"the best alternative ({_label(found, either)}, {either['best_decoding']})"
    if either["low"] is None:
        return f"Not known: {trained} scores {signed(either['change'])} against {best}, without an interval."
    by = (
        f"{number(abs(either['change']))} ({100 * confidence:g}% interval of the difference "
        f"{signed(either['low'])} to {signed(either['high'])})"
    )
    match direction(either):
        case Direction.UP:
            return f"No: {trained} beats {best} by {by}."
        case Direction.DOWN:
            return f"Yes: {best} beats {trained} by {by}."
        case Direction.SAME:
            return f"Yes: {trained} and {best} score the same on every reply."
    ahead = "ahead of" if either["change"] > 0 else "behind"
    return f"Not clear: {trained} is {ahead} {best} by {by}, which is within noise."


def _label(found: Json, difference: Json) -> str:
    return str(found["policies"][difference["best"]]["label"])


def _policy_rows(found: Json) -> Iterator[PolicyRow]:
    for name, policy in found["policies"].items():
        for decoding in DECODINGS:
            figures = policy[decoding]
            score = figures["score"]
            yield PolicyRow(
                kind="trained" if name == "trained" else "alternative",
                label=policy["label"],
                decoding=decoding,
                score=number(score["mean"]),
                interval=_interval(score),
                rates=[percent(rate["mean"]) for rate in figures["milestones"].values()],
                description=policy["description"],
            )


def _player_rows(inputs: ReportInputs, found: Json) -> Iterator[PolicyRow]:
    for name, figures in found["players"].items():
        yield PolicyRow(
            kind="player",
            label=inputs.players[name]["label"],
            decoding=MISSING,
            score=number(figures["score"]),
            interval="exact",
            rates=[percent(rate) for rate in figures["milestones"].values()],
            description=inputs.players[name]["description"],
        )


def _interval(mean: Json) -> str:
    if mean["low"] is None:
        return MISSING
    return f"{number(mean['low'])} to {number(mean['high'])}"


def _differences(found: Json) -> Iterator[tuple[str, ChangeRow]]:
    for name, difference in found["trained_minus_best"].items():
        sides = f"{difference['trained_decoding']} against {difference['best_decoding']}"
        how = f"best against best ({sides})" if name == "either" else f"both {name}"
        yield how, change_row(_label(found, difference), difference)
