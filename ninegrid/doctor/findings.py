"""What a check found, and how checks are run so that one that breaks does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from ninegrid.errors import NinegridError

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """What was found of one thing.

    Attributes:
        status: ``fail`` stops a run, ``warn`` makes one slower, different or smaller.
        text: the state, with its figures.
        hint: what to do next; the command, where there is one.
    """

    status: Status
    text: str
    hint: str | None = None


Check = Callable[[], Finding]


def examine(checks: Iterable[tuple[str, Check]]) -> Iterator[tuple[str, Finding]]:
    """Run checks one after the other and yield what each found."""
    for name, check in checks:
        yield name, _run(check)


def _run(check: Check) -> Finding:
    try:
        return check()
    except ImportError as error:
        return Finding("fail", f"cannot be looked at: {error}", "make setup")
    except NinegridError as error:
        return Finding("fail", error.message, error.hint)
    except Exception as error:  # whatever is broken here is what is to be told
        return Finding("fail", f"cannot be looked at: {type(error).__name__}: {error}")


def text(name: str, finding: Finding) -> str:
    """One finding as a line, with the next command below it."""
    line = f"{finding.status:<5}{name:<14}{finding.text}"
    return line if finding.hint is None else f"{line}\n{'':<19}-> {finding.hint}"
