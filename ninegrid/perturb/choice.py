"""Which of a task's perturbations the settings ask for.

Not here: any perturbation (they belong to the tasks) and how they are measured.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from ninegrid.errors import SettingsError
from ninegrid.tasks.protocol import Perturbable, Perturbation, Task


def offered_perturbations(task: Task) -> Mapping[str, Perturbation]:
    """All perturbations of ``task``; none if it has none."""
    return task.perturbations() if isinstance(task, Perturbable) else {}


def chosen_perturbations(task: Task, names: Sequence[str]) -> dict[str, Perturbation]:
    """The perturbations called ``names``, in that order.

    Raises:
        SettingsError: the task does not offer one of them; names the nearest that it does.
    """
    offered = offered_perturbations(task)
    for name in names:
        if name not in offered:
            raise _not_offered(task, name, list(offered))
    return {name: offered[name] for name in names}


def _not_offered(task: Task, name: str, offered: Sequence[str]) -> SettingsError:
    if not offered:
        return SettingsError(
            f"perturb.names holds {name!r}, but task {task.name} offers no perturbations",
            hint="set perturb=none",
        )
    near = difflib.get_close_matches(name, offered, n=1, cutoff=0.6)
    known = f"did you mean {near[0]}?" if near else f"it offers {', '.join(offered)}"
    return SettingsError(f"perturb.names holds {name!r}, which task {task.name} does not offer; {known}")
