"""``python -m ninegrid.plan [KEY=VALUE ...]``: what a training would need in memory, with the arithmetic.

Settings are those of ``params.yaml`` with the overrides; if one of these chooses a group, such as
model=ling_3_tiny, all are composed from ``conf/``, as `ninegrid.params` would.  Nothing is loaded, fetched
or written.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

from ninegrid.errors import NinegridError
from ninegrid.plan.command import overrides_of, params_with
from ninegrid.progress import say

GB = 10**9


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the plan; returns 0 if the run fits, 1 if it does not, 2 if nothing could be said."""
    parser = argparse.ArgumentParser(prog="python -m ninegrid.plan", description=__doc__)
    parser.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="settings in place of those of params.yaml"
    )
    parser.add_argument("--memory", type=float, metavar="GB", help="plan for a device with so much to be had")
    options = parser.parse_args(arguments)
    try:
        return _print_plan(options.overrides, options.memory)
    except NinegridError as error:
        print(f"plan: {error}", file=sys.stderr)
        return 2


def _print_plan(overrides: Sequence[str], memory: float | None) -> int:
    from ninegrid.settings import validate

    params = params_with(overrides)
    settings: Any = validate(params)
    from ninegrid.plan.advice import advise
    from ninegrid.plan.plan import Plan, Planner
    from ninegrid.plan.table import advice_text, plan_text, verdict

    say("plan: running a pass of the model without numbers; a large one takes a minute")
    planner = Planner(settings, measure_prompts=True)

    def on_device(plan: Plan) -> Plan:
        if memory is None:
            return plan
        n_bytes = round(memory * GB)
        return dataclasses.replace(
            plan,
            device=dataclasses.replace(plan.device, name="such a device", total=n_bytes, available=n_bytes),
        )

    plan = on_device(planner.training(settings))
    heldout = round(settings.boards.count * settings.boards.heldout_share)
    measured = on_device(planner.evaluation(settings, heldout, settings.eval.n_samples + 1))
    for each in (measured, plan):
        print(plan_text(each), verdict(each), sep="\n\n", end="\n\n", flush=True)
    if plan.fits:
        return 0
    say("plan: trying settings that would need less")
    advice = advise(settings, plan, lambda changed: on_device(planner.training(changed)))
    print(advice_text(advice, overrides_of(params)))
    return 1


if __name__ == "__main__":
    sys.exit(main())
