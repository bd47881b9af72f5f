"""The page about the perturbed retests, written from the record alone."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from ninegrid.perturb.figure import perturbed_plot
from ninegrid.perturb.findings import Carry, findings, summary, warnings
from ninegrid.report.inputs import DECODINGS
from ninegrid.report.page import Rendered, page_environment, page_style, render_figure
from ninegrid.report.tables import ChangeRow, change_row
from ninegrid.report.text import percent, words

Json = Mapping[str, Any]

TONES = {Carry.WHOLE: "up", Carry.PART: "note", Carry.NONE: "down"}
MARKERS = {"up": "▲", "note": "◐", "down": "▼"}


@dataclass(frozen=True)
class Row:
    """One row of a table.

    Attributes:
        gain: from untrained to trained.
        cost: from the unperturbed retest to the perturbed one; None with boards of its own.
        rates: milestone -> rate before and after training.
    """

    name: str
    gain: ChangeRow
    cost: ChangeRow | None
    rates: dict[str, tuple[str, str]]


@dataclass(frozen=True)
class Line:
    """A line of a prompt; ``new`` where the unperturbed prompt has no such line."""

    text: str
    new: bool


def render_perturbed(record: Json, max_new_tokens: int) -> tuple[str, Rendered]:
    """The page as text, and its figure."""
    figure = render_figure(perturbed_plot(record))
    template = resources.files("ninegrid.perturb") / "page.html.j2"
    said = {decoding: findings(record, decoding) for decoding in DECODINGS}
    tones = {TONES[finding.carry] for finding in said["sampled"]}
    page = (
        page_environment()
        .from_string(template.read_text(encoding="utf-8"))
        .render(
            r=record,
            style=page_style(),
            figure=figure,
            decodings=DECODINGS,
            tone=tones.pop() if len(tones) == 1 else "note",
            tones=TONES,
            markers=MARKERS,
            findings=said,
            summaries={decoding: summary(record, decoding) for decoding in DECODINGS},
            warnings=warnings(record, max_new_tokens),
            rows={decoding: _rows(record, decoding) for decoding in DECODINGS},
            level=f"{100 * record['bootstrap']['confidence']:g}%",
            prompts={name: _changed(found) for name, found in record["perturbations"].items()},
        )
    )
    return page, figure


def _rows(record: Json, decoding: str) -> list[Row]:
    told = {"unperturbed": record["unperturbed"], **record["perturbations"]}
    return [_row(name, found[decoding]) for name, found in told.items()]


def _row(name: str, side: Json) -> Row:
    gain, cost = side["by_training"], side["by_perturbation"]
    return Row(
        name=words(name),
        gain=change_row(name, gain["score"]),
        cost=None if cost is None else change_row(name, cost["score"]),
        rates={
            milestone: (percent(change["before"]), percent(change["after"]))
            for milestone, change in gain["milestones"].items()
        },
    )


def _changed(found: Json) -> list[Line]:
    """The perturbed prompt, line by line."""
    plain, prompt = found["plain"].split("\n"), found["prompt"].split("\n")
    kept = difflib.SequenceMatcher(None, plain, prompt, autojunk=False).get_matching_blocks()
    same = {block.b + i for block in kept for i in range(block.size)}
    return [Line(text, i not in same) for i, text in enumerate(prompt)]
