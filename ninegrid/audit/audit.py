"""``audit.json``: the whole audit of one reward table over both sides of a split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ninegrid.audit.findings import Evidence, findings
from ninegrid.audit.policies import constant_calls, mean, trivial_policies
from ninegrid.audit.teaching import Teaching
from ninegrid.reward import RewardTable
from ninegrid.tasks.protocol import Example, Task

TRAIN, HELDOUT = "train", "heldout"
DIGITS = 6


def audit(task: Task, table: RewardTable, sides: Mapping[str, Sequence[Example]]) -> dict[str, Any]:
    """The content of ``audit.json``; equal arguments give equal content.

    Numbers that are worth following stand in mappings and become metrics; texts stand in lists.

    Args:
        table: names exactly the task's outcomes (`RewardTable.check`).
        sides: "train" and "heldout" -> examples, none of them empty.
    """
    pay = table.outcomes
    policies = trivial_policies(task, pay, [example for side in sides.values() for example in side])
    teaching = Teaching(task, pay, constant_calls(task))
    earns = {side: {p.name: mean([p.earns(e) for e in sides[side]]) for p in policies} for side in sides}
    taught = {side: teaching.describe(examples) for side, examples in sides.items()}
    evidence = Evidence(task, table, policies, earns[TRAIN], taught[TRAIN])
    return {
        "reward": table.to_mapping(),
        "earns": {
            side: {name: round(value, DIGITS) for name, value in earns[side].items()} for side in earns
        },
        "examples": taught,
        "policies": [{"name": p.name, "kind": p.kind, "label": p.label} for p in policies],
        "findings": [asdict(finding) for finding in findings(evidence)],
    }
