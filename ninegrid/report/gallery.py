"""Which replies to show side by side, and what is shown of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from ninegrid.errors import DataError
from ninegrid.report.drawing import safe_drawing
from ninegrid.report.inputs import DECODINGS, Json, ReportInputs
from ninegrid.report.text import clip, number, visible

REPLY_LIMIT = 600
"""Characters of a reply that the page shows."""
CALL_LIMIT = 120
Pair = tuple[Json, Json]
"""The episodes of one flip, before and after."""


@dataclass(frozen=True)
class Side:
    """One reply as shown: ``left_out`` counts the characters beyond `REPLY_LIMIT`."""

    when: str
    outcome: str
    score: str
    call: str
    reply: str
    left_out: int


@dataclass(frozen=True)
class Card:
    """One flip; ``alike`` counts the flips with the same two outcomes, ``drawing`` is safe markup or None."""

    example_id: str
    decoding: str
    sample: int
    alike: int
    drawing: str | None
    sides: tuple[Side, Side]


def cards(inputs: ReportInputs, way: str, limit: int = 6) -> list[Card]:
    """Up to ``limit`` flips of ``way`` ("improved" or "worsened"), see `choose`.

    Sampled replies are shown; greedy ones where no sampled reply flipped that way.

    Raises:
        DataError: a flip names a reply that the episodes lack.
    """
    for decoding in DECODINGS:
        flips = inputs.comparison[decoding]["flips"][way]
        if flips:
            before = _by_key(inputs.baseline_episodes, decoding)
            after = _by_key(inputs.retest_episodes, decoding)
            pairs = [_pair(flip, decoding, before, after) for flip in flips]
            return [_card(inputs, decoding, pair, alike) for pair, alike in choose(pairs, limit)]
    return []


def choose(pairs: Sequence[Pair], limit: int) -> list[tuple[Pair, int]]:
    """``limit`` flips, each with how many share its kind (outcome before and after).

    Two thirds of the places go to flips with a call on both sides, where one decision can be
    held against the other; places that one half cannot fill go to the other half.
    """
    kinds: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for pair in pairs:
        kinds[pair[0]["outcome"], pair[1]["outcome"]].append(pair)
    both, other = _in_turns(kinds, calls=True), _in_turns(kinds, calls=False)
    n_other = min(len(other), max(limit - len(both), limit // 3))
    return both[: limit - n_other] + other[:n_other]


def _in_turns(kinds: Mapping[tuple[str, str], list[Pair]], calls: bool) -> list[tuple[Pair, int]]:
    """Kinds take turns, the most frequent first, so that the rare are not drowned by the common."""
    ordered = sorted(kinds.items(), key=lambda item: (-len(item[1]), item[0]))
    rows = [[(p, len(found)) for p in found if _both_call(p) == calls] for _, found in ordered]
    return [entry for turn in zip_longest(*rows) for entry in turn if entry is not None]


def _both_call(pair: Pair) -> bool:
    return all(episode["call"] is not None for episode in pair)


def _by_key(episodes: Sequence[Json], decoding: str) -> dict[tuple[str, int], Json]:
    return {(e["example"]["id"], e["sample"]): e for e in episodes if e["decoding"] == decoding}


def _pair(
    flip: Json,
    decoding: str,
    before: Mapping[tuple[str, int], Json],
    after: Mapping[tuple[str, int], Json],
) -> Pair:
    key = (flip["id"], flip["sample"])
    for name, episodes in (("baseline", before), ("retest", after)):
        if key not in episodes:
            raise DataError(
                f"comparison.json names {decoding} reply {key[1]} to {key[0]}, the {name} episodes lack it",
                hint="run: dvc repro -f retest",
            )
    return before[key], after[key]


def _card(inputs: ReportInputs, decoding: str, pair: Pair, alike: int) -> Card:
    name = pair[0]["example"]["id"]
    sides = _side("before", pair[0]), _side("after", pair[1])
    label = f"{inputs.unit[0]} {name} with the calls before and after training"
    drawing = safe_drawing(inputs.draw({"before": pair[0], "after": pair[1]}), label)
    return Card(name, decoding, pair[0]["sample"], alike, drawing, sides)


def _side(when: str, episode: Json) -> Side:
    reply, left_out = clip(episode["reply"], REPLY_LIMIT)
    call = episode["call"]
    return Side(
        when=when,
        outcome=episode["outcome"],
        score=number(episode["score"], 2),
        call="no call" if call is None else _call_text(call),
        reply=visible(reply),
        left_out=left_out,
    )


def _call_text(call: Mapping[str, Any]) -> str:
    arguments = ", ".join(f"{key}={value!r}" for key, value in call["arguments"].items())
    text, left_out = clip(f"{call['name']}({arguments})", CALL_LIMIT)
    return text + "…" if left_out else text
