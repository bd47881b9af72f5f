"""A plan as text."""

from __future__ import annotations

from collections.abc import Sequence

from ninegrid.plan.advice import Advice
from ninegrid.plan.plan import Plan

GB = 1e9


def gigabytes(n_bytes: float) -> str:
    """A size with the digits that matter."""
    return f"{n_bytes / GB:.2f} GB"


def plan_text(plan: Plan) -> str:
    """Every phase with its lines."""
    device = plan.device
    lines = [
        f"Memory plan of {plan.title} on {device.name}, "
        f"{gigabytes(device.total)} in all, {gigabytes(device.available)} to be had",
        *(f"  {fact}" for fact in plan.facts),
    ]
    for phase in plan.phases:
        mark = "  <- the peak" if phase is plan.peak else ""
        lines += ["", f"{phase.name:<24}{gigabytes(phase.total):>10}{mark}"]
        lines += [f"  {x.name:<22}{gigabytes(x.n_bytes):>10}  {x.arithmetic}" for x in phase.lines]
    return "\n".join(lines)


def verdict(plan: Plan) -> str:
    """Whether it fits, in one line."""
    room = plan.device.available - plan.peak.total
    if plan.fits:
        return f"It fits: {gigabytes(room)} to spare at the peak ({plan.peak.name})."
    return (
        f"It does not fit: {plan.peak.name} needs {gigabytes(plan.peak.total)}, "
        f"{gigabytes(-room)} more than can be had."
    )


def advice_text(advice: Advice, overrides: Sequence[str]) -> str:
    """What to change, what each change costs, and the command."""
    if not advice.changes:
        return "No setting lowers this peak: take a smaller model or a larger device."
    lines = [f"Lower first: {advice.changes[0].override.replace('=', ' to ')}."]
    lines += [f"  {change.override:<40}{change.cost}" for change in advice.changes]
    total = gigabytes(advice.plan.peak.total)
    if not advice.plan.fits:
        return "\n".join(
            [*lines, f"Even with all of these it needs {total}: take a smaller model or a larger device."]
        )
    return "\n".join([*lines, f"With these it fits, in {total}:", f"  {command(advice, overrides)}"])


def command(advice: Advice, overrides: Sequence[str]) -> str:
    """The command that makes the changes, on top of ``overrides``."""
    changed = {change.override.split("=")[0] for change in advice.changes}
    kept = [o for o in overrides if o.split("=")[0] not in changed]
    return " ".join(["python -m ninegrid.params", *kept, *(change.override for change in advice.changes)])
