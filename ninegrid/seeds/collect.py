"""Runs the seeds of a plan that are missing, and writes what all of them say."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ninegrid.errors import DataError
from ninegrid.outputs import write_csv, write_json
from ninegrid.progress import Progress, interval_text, say
from ninegrid.seeds.plan import Plan
from ninegrid.seeds.results import DECODINGS, SeedResult, read_experiment, read_record, write_record
from ninegrid.seeds.running import find_experiment, run_experiment


@dataclass(frozen=True)
class Outcome:
    """The seeds that finished, in the order of the plan, and those that failed."""

    results: list[SeedResult]
    failed: list[int]


def run_plan(root: Path, plan: Plan, folder: Path) -> Outcome:
    """Run what is missing, one seed after the other; a failed seed does not stop the others.

    Args:
        root: the project.
        folder: keeps records and logs; must exist.
    """
    kept = {seed: read_record(_record(folder, seed), plan.digests[seed]) for seed in plan.seeds}
    done = [known for known in kept.values() if known is not None]
    for known in done:
        say(f"repeat_seeds: seed {known.seed} is done: experiment {known.experiment}")
    progress = Progress("repeat_seeds: seeds", len(plan.seeds), done=len(done))
    failed: list[int] = []
    for seed in (seed for seed, result in kept.items() if result is None):
        result = kept[seed] = _run_seed(root, plan, seed, folder)
        if result is None:
            failed.append(seed)
        progress.advance(f"seed {seed} {'FAILED' if result is None else _headline(result)}")
    return Outcome([kept_one for kept_one in kept.values() if kept_one is not None], failed)


def _run_seed(root: Path, plan: Plan, seed: int, folder: Path) -> SeedResult | None:
    """Run one seed, or take up its experiment where only our record of it is missing."""
    name, log = plan.experiment(seed), folder / f"seed-{seed}.log"
    if find_experiment(root, name) is None:
        say(f"repeat_seeds: seed {seed}: experiment {name}, log {log}")
        began = time.monotonic()
        status = run_experiment(root, name, plan.overrides_of(seed), log, f"[seed {seed}] ")
        if status != 0:
            say(
                f"repeat_seeds: seed {seed} failed after {time.monotonic() - began:.0f} s, "
                f"status {status}: {log}"
            )
            return None
    try:
        result = _read(root, plan, seed)
    except DataError as error:
        say(f"repeat_seeds: seed {seed}: {error}")
        return None
    write_record(_record(folder, seed), result)
    return result


def _read(root: Path, plan: Plan, seed: int) -> SeedResult:
    name = plan.experiment(seed)
    revision = find_experiment(root, name)
    if revision is None:
        raise DataError(f"DVC made no experiment {name}", hint="see its log")
    return read_experiment(root, revision, plan.settings.paths.retest, seed, plan.digests[seed], name)


def _record(folder: Path, seed: int) -> Path:
    return folder / f"seed-{seed}.json"


def _headline(result: SeedResult) -> str:
    return "  ".join(
        f"{decoding} {found.score:+.3f}, change {found.change:+.3f} "
        + interval_text({"low": found.change_low, "high": found.change_high})
        for decoding, found in ((d, result.figures[d]) for d in DECODINGS)
    )


def write_outcome(plan: Plan, outcome: Outcome, folder: Path) -> str:
    """Write ``seeds.csv``, ``summary.json``, ``seeds.svg`` and ``seeds.png``; returns the tables as text."""
    from ninegrid.seeds.figure import draw_seeds
    from ninegrid.seeds.spread import summary
    from ninegrid.seeds.table import csv_rows, tables

    results: Sequence[SeedResult] = outcome.results
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
