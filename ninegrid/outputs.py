"""Writing a stage's outputs: whole or not at all, with one clear message when it cannot be done."""

from __future__ import annotations

import csv
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ninegrid.atomic import new_folder
from ninegrid.errors import DataError

HINT = "make room on the disk or the folder writable; what was there before is untouched"


@contextmanager
def output_folder(folder: Path) -> Iterator[Path]:
    """Fill a folder aside; it takes the place of ``folder`` when the block ends without error.

    Raises:
        DataError: it cannot be written.
    """
    folder = folder.resolve()  # a link stays a link to where the files go
    try:
        with new_folder(folder) as draft:
            yield draft.path
    except OSError as error:
        raise DataError(f"cannot write {folder}: {error.strerror or error}", hint=HINT) from error


def check_writable(folder: Path) -> None:
    """Fail now rather than after hours of work if ``folder`` will not be writable.

    Raises:
        DataError: it cannot be written.
    """
    folder = folder.resolve()
    probe = folder.parent / f".{folder.name}.probe"
    try:
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(20, "a file is in its place")
        with new_folder(probe) as draft:
            (draft.path / "probe").write_bytes(b"\0" * 4096)
        (probe / "probe").unlink()
        probe.rmdir()
    except OSError as error:
        raise DataError(f"cannot write {folder}: {error.strerror or error}", hint=HINT) from error


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Indented JSON; NaN and infinities are refused, since they are not JSON."""
    path.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def read_json(path: Path, stage: str, keys: Collection[str] = ()) -> dict[str, Any]:
    """Read what a stage wrote: an object that has at least ``keys``.

    Raises:
        DataError: the file is missing, not JSON or not that; names the stage that makes it.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or any(key not in content for key in keys):
            raise ValueError(f"expected an object with {', '.join(keys) or 'keys'}")
        return content
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist", hint=f"make it with: dvc repro {stage}") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}", hint=f"dvc repro -f {stage}") from error


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Rows as CSV; None becomes an empty cell, floats keep every digit."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
