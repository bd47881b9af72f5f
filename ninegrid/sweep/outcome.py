"""What a sweep leaves behind when its cells have ended: a table, a CSV, a picture, and what failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ninegrid.errors import DataError
from ninegrid.experiments.results import Result, read_kept
from ninegrid.outputs import write_csv
from ninegrid.sweep.meeting import Note
from ninegrid.sweep.rank import distinct


def finished(folder: Path, notes: Sequence[Note]) -> list[Result]:
    """The results of the cells that did not fail, in the order of the cells."""
    done = [note for note in notes if note.failure is None]
    return distinct([replace(read_kept(folder / f"{note.file}.json"), values=note.values) for note in done])


def write_outcome(name: str, folder: Path, results: Sequence[Result]) -> str:
    """Write ``sweep.csv``, ``sweep.svg`` and ``sweep.png``; returns the tables as text.

    Raises:
        DataError: the folder cannot be written.
    """
    from ninegrid.sweep.figure import draw_sweep
    from ninegrid.sweep.rank import rank
    from ninegrid.sweep.table import csv_rows, tables

    settings, rows = rank(results), csv_rows(results)
    picture, pixels = draw_sweep(name, settings)
    try:
        write_csv(folder / "sweep.csv", rows, list(dict.fromkeys(key for row in rows for key in row)))
        (folder / "sweep.svg").write_text(picture, encoding="utf-8", newline="\n")
        (folder / "sweep.png").write_bytes(pixels)
    except OSError as error:
        raise DataError(f"cannot write {folder}: {error.strerror or error}") from error
    return tables(settings)
