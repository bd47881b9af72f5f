"""Runs the seeds of a plan that are missing, and writes what all of them say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ninegrid.errors import DataError
from ninegrid.experiments.execute import CellError, execute, known_result
from ninegrid.experiments.results import DECODINGS, SEED_KEY, Result
from ninegrid.outputs import write_csv, write_json
from ninegrid.progress import Progress, interval_text, say
from ninegrid.seeds.plan import Plan


@dataclass(frozen=True)
class Outcome:
    """The seeds that finished, in the order of the plan, and those that failed."""

    results: list[Result]
    failed: list[int]


def run_plan(root: Path, plan: Plan, folder: Path) -> Outcome:
    """Run what is missing, one seed after the other; a failed seed does not stop the others.

    Args:
        root: the project.
        folder: keeps records and logs; must exist.
    """
    kept = {cell.experiment: known_result(root, cell, folder) for cell in plan.cells}
    missing = [cell for cell in plan.cells if kept[cell.experiment] is None]
    for cell in plan.cells:
        if cell not in missing:
            say(f"repeat_seeds: {cell.label} is done: experiment {cell.experiment}")
    progress = Progress("repeat_seeds: seeds", len(plan.seeds), done=len(plan.seeds) - len(missing))
    failed: list[int] = []
    for cell in missing:
        try:
            result = kept[cell.experiment] = execute(root, cell, folder, plan.settings.paths.retest)
        except CellError as failure:
            failed.append(cell.values[SEED_KEY])
            say(f"repeat_seeds: {cell.label} {failure}")
            progress.advance(f"{cell.label} FAILED")
        else:
            progress.advance(f"{cell.label} {_headline(result)}")
    return Outcome([result for result in kept.values() if result is not None], failed)


def _headline(result: Result) -> str:
    return "  ".join(
        f"{decoding} {found.score:+.3f}, change {found.change:+.3f} "
        + interval_text({"low": found.change_low, "high": found.change_high})
        for decoding, found in ((d, result.figures[d]) for d in DECODINGS)
    )


def write_outcome(plan: Plan, outcome: Outcome, folder: Path) -> str:
    """Write ``seeds.csv``, ``summary.json``, ``seeds.svg`` and ``seeds.png``; returns the tables as text."""
    from ninegrid.seeds.figure import draw_seeds
    from ninegrid.seeds.summary import summary
    from ninegrid.seeds.table import csv_rows, tables

    results: Sequence[Result] = outcome.results
    rows = csv_rows(results)
    picture, pixels = draw_seeds(plan.name, results)
    try:
        write_csv(folder / "seeds.csv", rows, list(rows[0]))
        write_json(folder / "summary.json", summary(plan.name, plan.overrides, results, outcome.failed))
        (folder / "seeds.svg").write_text(picture, encoding="utf-8", newline="\n")
        (folder / "seeds.png").write_bytes(pixels)
    except OSError as error:
        raise DataError(f"cannot write {folder}: {error.strerror or error}") from error
    return tables(results)
