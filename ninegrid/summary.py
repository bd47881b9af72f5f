"""The loop's result in a few lines, from the retest's files: ``python -m ninegrid.summary``."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ninegrid.app import read_sections
from ninegrid.errors import DataError, NinegridError
from ninegrid.params import read_params
from ninegrid.paths import PathSettings
from ninegrid.progress import interval_text
from ninegrid.project import project_root


@dataclass(frozen=True)
class _Sections:
    paths: PathSettings


def summary() -> list[str]:
    """Lines with before, after and change, and where the report lies.

    Raises:
        DataError: there is no finished retest.
    """
    paths: PathSettings = read_sections(_Sections, read_params()).paths
    folder = paths.folder("retest")
    try:
        comparison = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{folder / 'comparison.json'} cannot be read: {error}", hint="dvc repro") from error
    players = ", ".join(f"{name} {score:.2f}" for name, score in comparison["players"].items())
    confidence = comparison["bootstrap"]["confidence"]
    lines = [line for decoding in ("sampled", "greedy") for line in _lines(decoding, comparison[decoding])]
    report = (folder / "report.html").relative_to(project_root())
    return [
        f"On {comparison['sampled']['boards']} held-out boards, before -> after, "
        f"change with its {confidence:.0%} interval:",
        *lines,
        f"  reference players' mean score: {players}",
        f"The whole story: {report}. The runs in MLflow: make ui",
    ]


def _lines(decoding: str, figures: Mapping[str, Any]) -> list[str]:
    rows = {"mean score": figures["score"], **{f"{n} rate": c for n, c in figures["milestones"].items()}}
    return [
        f"  {decoding:8} {name:13} {row['before']:+.3f} -> {row['after']:+.3f}   "
        f"{row['change']:+.3f} {interval_text(row)}"
        for name, row in rows.items()
    ]


def main() -> int:
    """Print the summary; returns the exit status."""
    try:
        print("\n".join(summary()))
    except NinegridError as error:
        print(f"summary: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
