"""From the ``task`` settings to a task: import the class, check its arguments, check what it offers.

Not here: any knowledge of a particular task.  The class may live anywhere that Python can import
from, such as a file in the folder in which a stage is started.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import typing
from collections.abc import Mapping, Sequence
from dataclasses import field, make_dataclass
from types import ModuleType
from typing import Any

from ninegrid.config import OutOfRange, TaskSettings, bind
from ninegrid.errors import SettingsError
from ninegrid.tasks.protocol import CallOutcome, Task

ATTRIBUTES = tuple(typing.get_type_hints(Task))
METHODS = tuple(name for name, value in vars(Task).items() if inspect.isfunction(value) and name[0] != "_")
"""What the task protocol names: attributes may be made by the constructor, methods may not."""


def load_task(settings: TaskSettings) -> Task:
    """Make the task that ``settings`` names.

    Raises:
        SettingsError: the class cannot be imported, an argument is unknown, missing, of the wrong type
            or out of range, or the class does not offer what the task protocol asks for.
    """
    found = _import_class(settings.target)
    _check_offers(found, METHODS, settings.target)
    arguments = _bind_arguments(found, settings.arguments)
    try:
        task = found(**arguments)
    except OutOfRange as error:
        raise SettingsError(f"task.{error.field} = {error.value!r}, allowed: {error.allowed}") from error
    _check_offers(task, ATTRIBUTES, settings.target)
    _check_consistent(task, settings.target)
    return task


def import_module_of(path: str, setting: str, expected: str) -> tuple[ModuleType, str]:
    """Import the module in which ``path`` says that something is.

    Args:
        path: such as ``package.module.Name``.
        setting: that names it, and ``expected``: what it should look like, for messages.

    Returns:
        The module, and the last part of the path.

    Raises:
        SettingsError: it is no such path, or the module cannot be imported.
    """
    module_name, _, name = path.rpartition(".")
    if not all(part.isidentifier() for part in path.split(".")) or not module_name:
        raise SettingsError(f"{setting} = {path!r}, expected {expected}")
    try:
        return importlib.import_module(module_name), name
    except ImportError as error:
        raise SettingsError(
            f"{setting} = {path!r}: cannot import {module_name}: {error}",
            hint="the module must be installed, or lie in the folder in which the stage is started",
        ) from error


def _import_class(path: str) -> type[Any]:
    module, name = import_module_of(path, "task._target_", "package.module.ClassName")
    found = getattr(module, name, None)
    if not isinstance(found, type):
        raise _no_such_class(path, module.__name__, name, vars(module))
    return found


def _no_such_class(path: str, module_name: str, name: str, offered: Mapping[str, Any]) -> SettingsError:
    classes = [key for key, value in offered.items() if isinstance(value, type)]
    near = difflib.get_close_matches(name, classes, n=1, cutoff=0.6)
    hint = f"task._target_={module_name}.{near[0]}" if near else None
    return SettingsError(f"task._target_ = {path!r}: {module_name} has no class {name}", hint=hint)


def _bind_arguments(found: type[Any], raw: Mapping[str, Any]) -> dict[str, Any]:
    """Check ``raw`` against the class's signature, as any other section of the settings is."""
    hints = typing.get_type_hints(found.__init__)
    columns = [
        _column(name, hints.get(name, Any), parameter.default)
        for name, parameter in inspect.signature(found).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    bound: Any = bind(make_dataclass("Arguments", columns, kw_only=True), raw, "task")
    return {name: getattr(bound, name) for name in raw}


def _column(name: str, hint: Any, default: Any) -> tuple[str, Any, Any]:
    if default is inspect.Parameter.empty:
        return name, hint, field()
    return name, hint, field(default_factory=lambda: default)


def _check_offers(offered: object, names: Sequence[str], path: str) -> None:
    missing = [name for name in names if not hasattr(offered, name)]
    if missing:
        raise SettingsError(
            f"task._target_ = {path!r}: the class lacks {', '.join(missing)}",
            hint="what a task must offer is written in ninegrid/tasks/protocol.py",
        )


def _check_consistent(task: Task, path: str) -> None:
    """Refuse tables that do not fit each other, before any stage relies on them."""
    problems = [problem for problem in (_outcomes_problem(task), _decision_problem(task)) if problem]
    if problems:
        raise SettingsError(f"task._target_ = {path!r}: {problems[0]}")


def _outcomes_problem(task: Task) -> str | None:
    outcomes, shared = list(task.outcomes), [str(outcome) for outcome in CallOutcome]
    if outcomes[: len(shared)] != shared:
        return f"outcomes begin with {outcomes[: len(shared)]}, expected {shared}"
    if set(task.score) != set(outcomes):
        return f"score and outcomes differ in {sorted(set(task.score) ^ set(outcomes))}"
    for name, members in task.milestones.items():
        if not members <= set(outcomes):
            return f"milestone {name} names unknown outcomes {sorted(members - set(outcomes))}"
    return None


def _decision_problem(task: Task) -> str | None:
    arguments = {name for tool in task.tools for name in tool["function"]["parameters"].get("properties", {})}
    if task.decision is not None and task.decision not in arguments:
        return f"decision = {task.decision!r} is no argument of its tools ({', '.join(sorted(arguments))})"
    return None
