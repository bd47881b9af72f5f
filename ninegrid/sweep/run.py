"""One job of a sweep, in whatever process and on whatever machine Hydra's launcher starts it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ninegrid.errors import NinegridError
from ninegrid.experiments.cell import Cell
from ninegrid.experiments.execute import execute, known_result
from ninegrid.experiments.results import Result
from ninegrid.experiments.running import Manner, StoppedError
from ninegrid.progress import interval_text
from ninegrid.sweep.meeting import Note, flag, is_on, leave_note

EVERY_S = 60.0
"""Seconds between lines of a cell's own output on the terminal."""


def run_cell(
    root: Path,
    cell: Cell,
    folder: Path,
    retest: str,
    number: int,
    total: int | None,
    mark: str,
    tags: Mapping[str, str],
) -> Result | None:
    """Make sure that the cell's result is there, and leave a note of how it ended.

    Args:
        root: the project.
        folder: of the sweep, in which it has begun.
        retest: folder of the retest's outputs, relative to the project.
        number: of the cell, from 0.
        total: how many cells there are; None if that is not known.
        mark: of the execution that the cell belongs to.
        tags: environment variables for the cell's processes.

    Returns:
        None for a cell that failed.

    Raises:
        StoppedError: the execution has ended.
    """
    manner = Manner(tags, EVERY_S, lambda: is_on(folder, mark))
    manner.check_wanted()
    with flag(folder, number):
        result, failure = known_result(root, cell, folder), None
        known = result is not None
        if result is None:
            try:
                result = execute(root, cell, folder, retest, manner)
            except StoppedError:
                raise
            except NinegridError as error:
                failure = str(error)
        headline = "" if result is None else _headline(result)
        leave_note(folder, Note(number, cell.label, cell.file, cell.values, failure, known, headline, total))
    return result


def _headline(result: Result) -> str:
    found = result.figures["sampled"]
    change = interval_text({"low": found.change_low, "high": found.change_high})
    return f"score {found.score:+.3f}, change {found.change:+.3f} {change}"
