"""Before a training begins: it ends here, with what to change, if it would run out of memory hours later.

Working it out takes a second or two; a run that needs a fraction of what there is passes on a rougher count.
"""

from __future__ import annotations

import os
import sys

from ninegrid.errors import NinegridError
from ninegrid.plan.model_sizes import CannotPlanError
from ninegrid.plan.plan import Plan, Planner, PlanSettings
from ninegrid.progress import say

SKIP = "NINEGRID_SKIP_PLAN"
"""Environment variable: set to 1, a run begins whatever is predicted."""


class WillNotFitError(NinegridError):
    """A run would need more memory than there is."""


def check_memory(settings: PlanSettings) -> None:
    """Refuse a training that is predicted not to fit.

    An architecture that cannot be predicted is let through, with a line that says so.

    Raises:
        WillNotFitError: naming what it needs, what there is, which setting to lower, and the command.
    """
    if os.environ.get(SKIP) == "1":
        return
    try:
        planner = Planner(settings, measure_prompts=False)
        if planner.surely_fits(settings):
            return
        plan = planner.training(settings)
    except CannotPlanError as error:
        say(f"train_gspo: memory is not predicted: {error.message}")
        return
    if not plan.fits:
        raise _refusal(settings, plan, planner)


def _refusal(settings: PlanSettings, plan: Plan, planner: Planner) -> WillNotFitError:
    from ninegrid.plan.advice import advise
    from ninegrid.plan.command import overrides_of, params_with
    from ninegrid.plan.table import command, gigabytes

    peak, device = plan.peak, plan.device
    parts = sorted(peak.lines, key=lambda line: -line.n_bytes)[:3]
    largest = ", ".join(f"{line.name} {gigabytes(line.n_bytes)}" for line in parts)
    message = (
        f"this training would need {gigabytes(peak.total)} in its {peak.name} ({largest}), "
        f"and {gigabytes(device.available)} can be had on {device.name}"
    )
    advice = advise(settings, plan, planner.training)
    anyway = f"or go on anyway with {SKIP}=1; the whole count: python -m ninegrid.plan"
    if not advice.plan.fits:
        least = gigabytes(advice.plan.peak.total)
        return WillNotFitError(
            f"{message}; no settings bring it below {least}", hint=f"take a smaller model, {anyway}"
        )
    given = [
        argument for argument in sys.argv[1:] if "=" in argument and not argument.startswith(("-", "hydra"))
    ]
    lower = f"; lower {advice.changes[0].override.split('=')[0]} first"
    line = command(advice, overrides_of(params_with(given)))
    return WillNotFitError(message + lower, hint=f"this fits: {line}\n     {anyway}")
