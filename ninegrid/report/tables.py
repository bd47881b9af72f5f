"""The rows of the page's tables, as text ready to be shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ninegrid.report.inputs import DECODINGS, Json, ReportInputs
from ninegrid.report.stats import Direction, direction
from ninegrid.report.text import MISSING, number, percent, points, signed, words

STEP_COLUMNS = (
    ("rollout/score_mean", "score", 3),
    ("rollout/rewards_mean", "reward", 3),
    ("rollout/response_len_mean", "tokens", 1),
    ("train/informative_groups", "informative groups", 2),
    ("rollout/decision_entropy", "decision entropy", 3),
    ("train/grad_norm", "gradient norm", 3),
    ("train/clip_fraction", "clip fraction", 3),
)
STEP_ROWS = 12


@dataclass(frozen=True)
class Bar:
    """A change and its interval as percentages of a strip whose middle is 0."""

    low: float
    high: float
    middle: float


@dataclass(frozen=True)
class ChangeRow:
    """Before, after and change of one quantity; ``tone`` is up, down, unclear or same."""

    label: str
    before: str
    after: str
    change: str
    interval: str
    tone: str
    bar: Bar | None = None


def headline(inputs: ReportInputs) -> dict[str, list[ChangeRow]]:
    """Decoding -> score, reward if it differs, and milestone rates."""
    return {decoding: list(_headline(inputs, inputs.comparison[decoding])) for decoding in DECODINGS}


def _headline(inputs: ReportInputs, side: Json) -> Iterator[ChangeRow]:
    reach = _reach(inputs)
    yield change_row("score", side["score"], reach=reach)
    if inputs.reward_differs:
        yield change_row("reward in force", side["reward"], reach=reach)
    for name in inputs.milestones:
        yield change_row(f"{words(name)} rate", side["milestones"][name], rate=True, reach=reach)


def _reach(inputs: ReportInputs) -> float:
    """The largest distance from 0 that any headline interval spans."""
    changes = []
    for decoding in DECODINGS:
        side = inputs.comparison[decoding]
        changes += [side["score"], *side["milestones"].values()]
        changes += [side["reward"]] if inputs.reward_differs else []
    ends = [abs(c[key]) for c in changes for key in ("change", "low", "high") if c.get(key) is not None]
    return max(ends, default=0.0) or 1.0


def change_row(label: str, change: Json, *, rate: bool = False, reach: float | None = None) -> ChangeRow:
    """One row; rates in percent and percentage points."""
    show, difference = (percent, points) if rate else (number, signed)
    low, high = change.get("low"), change.get("high")
    interval = MISSING if low is None or high is None else f"{difference(low)} to {difference(high)}"
    return ChangeRow(
        label=label,
        before=show(change["before"]),
        after=show(change["after"]),
        change=difference(change["change"]),
        interval=interval,
        tone=direction(change).value,
        bar=None if reach is None or interval == MISSING else _bar(change, reach),
    )


def _bar(change: Json, reach: float) -> Bar:
    low, high, middle = (round(50 + 50 * change[key] / reach, 2) for key in ("low", "high", "change"))
    return Bar(low, high, middle)


@dataclass(frozen=True)
class OutcomeRow:
    """Rate of one outcome on both sides, each with its own interval, and the paired change."""

    outcome: str
    before: str
    before_interval: str
    after: str
    after_interval: str
    change: ChangeRow


def outcome_rows(inputs: ReportInputs, decoding: str) -> list[OutcomeRow]:
    """One row an outcome, worst first."""
    rows = []
    for outcome in inputs.outcomes:
        before = inputs.baseline_metrics[decoding]["outcomes"][outcome]
        after = inputs.retest_metrics[decoding]["outcomes"][outcome]
        change = change_row(outcome, inputs.comparison[decoding]["outcomes"][outcome], rate=True)
        rows.append(
            OutcomeRow(
                outcome, percent(before["rate"]), _span(before), percent(after["rate"]), _span(after), change
            )
        )
    return rows


def _span(rate: Json) -> str:
    return f"{percent(rate['low'])} to {percent(rate['high'])}"


@dataclass(frozen=True)
class Cell:
    """Count of one move between outcomes; ``shade`` in percent, ``tone`` up, down, same or empty."""

    count: int
    shade: int
    tone: str


@dataclass(frozen=True)
class Transitions:
    """The before -> after table without outcomes that never occur (``left_out``)."""

    outcomes: list[str]
    rows: list[tuple[str, list[Cell], int]]
    totals: list[int]
    total: int
    left_out: list[str]


def transitions(inputs: ReportInputs, decoding: str) -> Transitions:
    """Counts from an outcome before (row) to one after (column)."""
    table: Mapping[str, Mapping[str, int]] = inputs.comparison[decoding]["transitions"]
    counts = {b: {a: int(table.get(b, {}).get(a, 0)) for a in inputs.outcomes} for b in inputs.outcomes}
    used = [o for o in inputs.outcomes if any(counts[o].values()) or any(row[o] for row in counts.values())]
    largest = max((n for row in counts.values() for n in row.values()), default=0) or 1
    rows = [
        (b, [_cell(inputs.score_table, b, a, counts[b][a], largest) for a in used], sum(counts[b].values()))
        for b in used
    ]
    totals = [sum(counts[b][a] for b in used) for a in used]
    return Transitions(used, rows, totals, sum(totals), [o for o in inputs.outcomes if o not in used])


def _cell(score: Mapping[str, float], before: str, after: str, count: int, largest: int) -> Cell:
    if count == 0:
        return Cell(0, 0, "empty")
    tone = "same" if score[before] == score[after] else "up" if score[after] > score[before] else "down"
    return Cell(count, round(12 + 68 * (count / largest) ** 0.5), tone)


@dataclass(frozen=True)
class PlayerRow:
    """A reference player and how the retested policy's mean scores stand to it."""

    label: str
    description: str
    expected: str
    gaps: dict[str, str]


def player_rows(inputs: ReportInputs) -> list[PlayerRow]:
    """Reference players as configured, weakest first; gap = score after training - expected."""
    after = {d: inputs.comparison[d]["score"]["after"] for d in DECODINGS}
    return [
        PlayerRow(
            player["label"],
            player["description"],
            number(player["expected"]),
            {d: signed(None if after[d] is None else after[d] - player["expected"]) for d in DECODINGS},
        )
        for player in inputs.players.values()
    ]


def subset_rows(inputs: ReportInputs) -> list[tuple[str, str, int, ChangeRow]]:
    """(decoding, subset, replies, score row) for every subset that holds a reply."""
    return [
        (decoding, name, int(subset["n"]), change_row(name, subset["score"]))
        for decoding in DECODINGS
        for name, subset in inputs.comparison[decoding].get("subsets", {}).items()
        if subset["n"]
    ]


@dataclass(frozen=True)
class KindRow:
    """Score on one kind of example, with what each reference player expects there, weakest first."""

    decoding: str
    replies: int
    score: ChangeRow
    players: list[str]


def kind_rows(inputs: ReportInputs) -> list[KindRow]:
    """The most frequent kind first; nothing where all examples are of one kind."""
    return [
        KindRow(
            decoding,
            int(kind["n"]),
            change_row(name, kind["score"]),
            [number(kind["players"][player]) for player in inputs.players],
        )
        for decoding in DECODINGS
        if len(inputs.comparison[decoding]["kinds"]) > 1
        for name, kind in inputs.comparison[decoding]["kinds"].items()
    ]


def step_rows(steps: Sequence[Mapping[str, float | None]]) -> tuple[list[str], list[list[str]]]:
    """Header and about a dozen evenly spaced rows of the training log, first and last among them."""
    columns = [c for c in STEP_COLUMNS if any(row.get(c[0]) is not None for row in steps)]
    last = len(steps) - 1
    picked = sorted({round(i * last / (STEP_ROWS - 1)) for i in range(STEP_ROWS)}) if steps else []
    rows = [
        [
            number(steps[i].get("step"), 0),
            *(number(steps[i].get(name), digits) for name, _, digits in columns),
        ]
        for i in picked
    ]
    return ["step", *(title for _, title, _ in columns)], rows


def mcnemar_rows(inputs: ReportInputs) -> list[tuple[str, str, Json, Direction]]:
    """(decoding, milestone, test, direction of the rate's change)."""
    return [
        (
            decoding,
            name,
            inputs.comparison[decoding]["mcnemar"][name],
            direction(inputs.comparison[decoding]["milestones"][name]),
        )
        for decoding in DECODINGS
        for name in inputs.milestones
    ]
