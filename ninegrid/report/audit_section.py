"""The section "What the reward pays": rows and sentences from the reward audit's ``audit.json``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ninegrid.report.inputs import Json
from ninegrid.report.text import count, number, percent, words

SIDES = ("train", "heldout")
GROUPS = {
    "reply": "replies that are no valid call",
    "constant": "the same call every time",
    "legal": "legal actions only",
    "player": "reference players",
}
TONES = {"ok": "flat", "warning": "note"}


@dataclass(frozen=True)
class AuditRow:
    """What one policy earns, or several alike, on each side of the split; as text."""

    label: str
    train: str
    heldout: str


@dataclass(frozen=True)
class TeachingRow:
    """How many training examples of one stratum teach nothing about play, or nothing at all."""

    stratum: str
    count: str
    flat: str
    mute: str


@dataclass(frozen=True)
class AuditSection:
    """``groups`` holds (title, rows); ``findings`` holds (tone, sentence)."""

    groups: list[tuple[str, list[AuditRow]]]
    findings: list[tuple[str, str]]
    teaching: list[TeachingRow]
    warnings: int


def audit_section(audit: Json) -> AuditSection | None:
    """The section's content, or None where no audit was given."""
    if not audit:
        return None
    groups = [(title, list(_rows(audit, kind))) for kind, title in GROUPS.items()]
    findings = [(TONES[f["level"]], f["text"]) for f in audit["findings"]]
    return AuditSection(
        groups=[(title, rows) for title, rows in groups if rows],
        findings=findings,
        teaching=_teaching(audit["examples"]["train"]),
        warnings=sum(f["level"] == "warning" for f in audit["findings"]),
    )


def _rows(audit: Json, kind: str) -> Iterator[AuditRow]:
    """One row a policy; of constant calls the best, and the others together."""
    policies = [p for p in audit["policies"] if p["kind"] == kind]
    if kind == "constant":
        policies = sorted(policies, key=lambda p: -audit["earns"]["train"][p["name"]])
        for policy in policies[:1]:
            yield _row(audit, f"{policy['label']}, the best of them", [policy])
        if policies[1:]:
            yield _row(audit, count(len(policies) - 1, "other"), policies[1:])
        return
    for policy in policies:
        yield _row(audit, words(policy["label"]), [policy])


def _row(audit: Json, label: str, policies: Sequence[Json]) -> AuditRow:
    spans = {side: [audit["earns"][side][policy["name"]] for policy in policies] for side in SIDES}
    return AuditRow(label, **{side: _span(values) for side, values in spans.items()})


def _span(values: Sequence[float]) -> str:
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} to {high}"


def _teaching(side: Json) -> list[TeachingRow]:
    strata = {**side["strata"], "all": side}
    return [
        TeachingRow(name, f"{s['count']:,}", f"{s['flat']:,} ({percent(s['flat_share'])})", f"{s['mute']:,}")
        for name, s in strata.items()
    ]
