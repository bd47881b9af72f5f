"""The verdict in plain words: every sentence is chosen by the numbers, none is fixed in advance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ninegrid.report.inputs import DECODINGS, Json, ReportInputs, Rows
from ninegrid.report.stats import Direction, clustered_mean, direction
from ninegrid.report.text import count, number, p_value, percent, points, signed, words

SIGNIFICANT = 0.05
CLEAR = frozenset({Direction.UP, Direction.DOWN})
YARDSTICK = "random_legal"
"""The player whose play needs no skill; a policy that does not beat it has learned only form."""


@dataclass(frozen=True)
class Finding:
    """One statement of the verdict; ``tone`` is up, down, flat or note."""

    tone: str
    text: str


@dataclass(frozen=True)
class Verdict:
    """``status`` in two or three words, ``summary`` in one or two sentences, then the findings."""

    status: str
    tone: str
    summary: str
    findings: tuple[Finding, ...]


def judge(inputs: ReportInputs, steps: Rows) -> Verdict:
    """Put the comparison into words."""
    directions = {d: direction(inputs.comparison[d]["score"]) for d in DECODINGS}
    status, tone, lead = _status(*directions.values())
    if not steps and inputs.warm_start:
        lead += f"No step was taken after the warm start by {inputs.warm_start}, so this measures it alone. "
    elif not steps:
        status, lead = "Not trained", "No training step was taken, so this compares the model with itself. "
    first, second = (_score_clause(inputs, decoding, directions[decoding]) for decoding in DECODINGS)
    summary = f"{lead}The held-out score of sampled replies {first}; that of greedy replies {second}."
    return Verdict(status, tone, summary, tuple(_findings(inputs, steps)))


def _status(sampled: Direction, greedy: Direction) -> tuple[str, str, str]:
    pair = {sampled, greedy}
    if pair == {Direction.SAME}:
        return "Unchanged", "flat", "Nothing changed. "
    found = pair & CLEAR
    if not found:
        return "No clear change", "flat", "No change that can be told from noise. "
    if len(found) == 2:
        return "Mixed", "note", "The two ways of decoding disagree. "
    up = found == {Direction.UP}
    if len(pair) == 1:
        return (
            ("Better", "up", "After training the replies score higher. ")
            if up
            else ("Worse", "down", "After training the replies score lower. ")
        )
    kind = "gain" if up else "loss"
    where = "sampled" if sampled in found else "greedy"
    status = "Better in part" if up else "Worse in part"
    return status, "up" if up else "down", f"A clear {kind}, but only in {where} replies. "


def _score_clause(inputs: ReportInputs, decoding: str, way: Direction) -> str:
    score = inputs.comparison[decoding]["score"]
    values = f"from {number(score['before'])} to {number(score['after'])}"
    interval = interval_text(inputs, score)
    if way is Direction.SAME:
        return f"is {number(score['after'])} before and after"
    if way is Direction.UNCLEAR:
        return f"went {values}: {_noise(score)} ({interval})"
    return f"{'rose' if way is Direction.UP else 'fell'} {values} ({interval})"


def _noise(change: Json) -> str:
    """What to call a change whose direction is unclear."""
    if change.get("low") is None or change.get("high") is None:
        return "whether by chance cannot be told"
    return "within noise, the interval includes 0"


def interval_text(inputs: ReportInputs, change: Json, rate: bool = False) -> str:
    """``+1.05, 95% interval +0.99 to +1.11``; for rates in percentage points."""
    show = points if rate else signed
    level = f"{100 * inputs.confidence:g}% interval"
    unit = " points" if rate else ""
    if change.get("low") is None or change.get("high") is None:
        return f"{show(change['change'])}{unit}, no interval"
    return f"{show(change['change'])}{unit}, {level} {show(change['low'])} to {show(change['high'])}"


def _findings(inputs: ReportInputs, steps: Rows) -> Iterator[Finding]:
    for name in inputs.milestones:
        yield _milestone(inputs, name)
    yield from _yardstick(inputs)
    yield _one_by_one(inputs)
    yield from _subsets(inputs)
    yield from _left(inputs)
    yield from _reward(inputs)
    yield from _truncated(inputs)
    yield from _training(steps)


def _milestone(inputs: ReportInputs, name: str) -> Finding:
    sampled = inputs.comparison["sampled"]["milestones"][name]
    way = direction(sampled)
    before, after = percent(sampled["before"]), percent(sampled["after"])
    interval = interval_text(inputs, sampled, rate=True)
    label = words(name)
    if way in CLEAR:
        verb = "rose" if way is Direction.UP else "fell"
        text = f"Replies counted as {label} {verb} from {before} to {after} ({interval})."
    elif way is Direction.SAME:
        text = f"Replies counted as {label}: {after} before and after."
    else:
        text = f"Replies counted as {label}: {before} before, {after} after; {_noise(sampled)} ({interval})."
    text += _mcnemar(label, inputs.comparison["sampled"]["mcnemar"][name], way) + _greedy_rate(
        inputs, name, way
    )
    return Finding(_tone(way), text)


def _mcnemar(label: str, test: Json, way: Direction) -> str:
    gained, lost, p = test["gained"], test["lost"], test["p"]
    if gained == lost == 0:
        return " No reply crossed that line in either direction."
    text = (
        f" {count(gained, 'reply', 'replies')} became {label}, {lost:,} ceased to be (McNemar {p_value(p)})."
    )
    if way in CLEAR and p >= SIGNIFICANT:
        return f"{text[:-1]}, so the paired test does not confirm the interval."
    if way not in CLEAR and p < SIGNIFICANT:
        return f"{text[:-1]}; that test alone sees a change, but it takes related boards for independent."
    return text


def _greedy_rate(inputs: ReportInputs, name: str, sampled: Direction) -> str:
    change = inputs.comparison["greedy"]["milestones"][name]
    way = direction(change)
    text = f" Greedy: {percent(change['before'])} to {percent(change['after'])}"
    if way is Direction.SAME:
        return f" Greedy: {percent(change['after'])} before and after."
    if way is Direction.UNCLEAR:
        return f"{text}, {_noise(change)} ({interval_text(inputs, change, rate=True)})."
    if way is sampled:
        return f"{text}."
    kind = "the opposite way" if sampled in CLEAR else f"a clear {'rise' if way is Direction.UP else 'fall'}"
    return f"{text}, {kind} ({interval_text(inputs, change, rate=True)})."


def _yardstick(inputs: ReportInputs) -> Iterator[Finding]:
    player = inputs.players.get(YARDSTICK)
    if player is None:
        return
    best = max(inputs.players.values(), key=lambda p: float(p["expected"]))
    parts = [_against(inputs, decoding, float(player["expected"])) for decoding in DECODINGS]
    ways = {way for way, _ in parts}
    tone = _tone(ways.pop()) if len(ways) == 1 else "note"
    text = (
        f"Against the reference player “{player['label']}” ({number(player['expected'])} on the same "
        f"{inputs.unit[1]}): {'; '.join(text for _, text in parts)}. "
        f"The highest reference, “{best['label']}”, scores {number(best['expected'])}."
    )
    yield Finding(tone, text)


def _against(inputs: ReportInputs, decoding: str, reference: float) -> tuple[Direction, str]:
    chosen = [e for e in inputs.retest_episodes if e["decoding"] == decoding]
    mean = clustered_mean(chosen, "score", inputs.confidence)
    if mean is None:
        return Direction.UNCLEAR, f"no {decoding} replies"
    way = mean.against(reference)
    place = {
        Direction.UP: "better than it",
        Direction.DOWN: "worse than it",
        Direction.SAME: "exactly level with it",
        Direction.UNCLEAR: "not to be told from it",
    }[way]
    span = "" if mean.low is None else f" ({number(mean.low)} to {number(mean.high)})"
    return way, f"{decoding} replies after training are {place} at {number(mean.value)}{span}"


def _one_by_one(inputs: ReportInputs) -> Finding:
    sampled = inputs.comparison["sampled"]
    n, better, worse = sampled["n"], len(sampled["flips"]["improved"]), len(sampled["flips"]["worsened"])
    if better == worse == 0:
        return Finding(
            "flat",
            f"Reply by reply: not one of {count(n, 'sampled reply', 'sampled replies')} changed its score.",
        )
    rest = n - better - worse
    return Finding(
        _tone(direction(sampled["score"])),
        f"Reply by reply, of {count(n, 'sampled reply', 'sampled replies')}: {better:,} score higher than "
        f"before, {worse:,} lower, {rest:,} the same.",
    )


def _subsets(inputs: ReportInputs) -> Iterator[Finding]:
    subset = inputs.comparison["sampled"].get("subsets", {}).get("decisive")
    if not subset or not subset["n"]:
        return
    score = subset["score"]
    way = direction(score)
    noise = f", {_noise(score)}" if way is Direction.UNCLEAR else ""
    yield Finding(
        _tone(way),
        f"Where the choice matters ({count(subset['n'], 'sampled reply', 'sampled replies')} on "
        f"{inputs.unit[1]} whose legal answers do not all pay the same) the score went from "
        f"{number(score['before'])} to {number(score['after'])} ({interval_text(inputs, score)}){noise}.",
    )


def _left(inputs: ReportInputs) -> Iterator[Finding]:
    """Where most of what the best reference player earns is still missing."""
    kinds = inputs.comparison["sampled"]["kinds"]
    best = {name: max(kind["players"].values(), default=0.0) for name, kind in kinds.items()}
    missing = {name: kind["n"] * (best[name] - kind["score"]["after"]) for name, kind in kinds.items()}
    short = sum(gap for gap in missing.values() if gap > 0)
    if len(kinds) < 2 or short <= 0:
        return
    name = max(missing, key=lambda kind: missing[kind])
    kind = kinds[name]
    yield Finding(
        "note",
        f"Most of what is still missing, {percent(missing[name] / short)} of it, is on {inputs.unit[1]} that "
        f"ask for “{name}”: there {count(kind['n'], 'sampled reply', 'sampled replies')} score "
        f"{number(kind['score']['after'])} where {number(best[name])} is possible.",
    )


def _reward(inputs: ReportInputs) -> Iterator[Finding]:
    if not inputs.reward_differs:
        return
    reward, score = (inputs.comparison["sampled"][key] for key in ("reward", "score"))
    ways = direction(reward), direction(score)
    text = (
        f"Training used a reward of its own; under it, sampled replies went from {number(reward['before'])} "
        f"to {number(reward['after'])} ({interval_text(inputs, reward)})."
    )
    if ways[0] is Direction.UP and ways[1] is not Direction.UP:
        text += (
            " The reward rose and the score did not: the policy learned what was paid, not what is scored."
        )
    yield Finding(_tone(ways[0]) if ways[0] is ways[1] else "note", text)


def _truncated(inputs: ReportInputs) -> Iterator[Finding]:
    rate = inputs.retest_metrics["sampled"]["truncated_rate"]
    if rate and rate > 0.01:
        yield Finding(
            "note", f"{percent(rate)} of the sampled replies after training were cut at the length limit."
        )


def _training(steps: Rows) -> Iterator[Finding]:
    if not steps:
        return
    groups = [row.get("train/informative_groups") for row in steps]
    known = [g for g in groups if g is not None]
    silent = sum(g == 0 for g in known)
    taken = count(len(steps), "training step")
    if known and silent == len(steps):
        yield Finding(
            "note",
            f"In none of the {taken} did the samples of any group earn different rewards, so the reward "
            "gave no direction to learn in.",
        )
    elif silent:
        yield Finding(
            "note",
            f"In {silent:,} of {taken} no group carried a signal: within each, all samples earned the same.",
        )


def _tone(way: Direction) -> str:
    return way.value if way in CLEAR else "flat"
