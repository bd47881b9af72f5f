"""``RESULTS.md``: the sections of the benchmarks, each from its last saved run on one kind of machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

FILE = Path(__file__).with_name("RESULTS.md")
HEAD = """# Benchmarks

Written by `python -m benchmarks --save`; what each one measures, and what not, is said in its section.
Figures are medians, with the smallest and the largest in brackets.

Machine: {machine}.
"""


def save(path: Path, machine: str, order: Sequence[str], name: str, section: str) -> None:
    """Put the section of benchmark ``name`` into the file; see `merge`."""
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    path.write_text(merge(old, machine, order, name, section), encoding="utf-8")


def put(path: Path, name: str, section: str) -> None:
    """Put a section that names its own machine into the file, and leave all others as they are."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    kept = {**_sections(text), name: section}
    path.write_text(
        "\n".join(
            [re.split(r"^## ", text, maxsplit=1, flags=re.MULTILINE)[0].rstrip() + "\n", *kept.values()]
        ),
        encoding="utf-8",
    )


def merge(old: str, machine: str, order: Sequence[str], name: str, section: str) -> str:
    """``old`` with one section replaced or added.

    Sections that were measured on another machine, or with other versions, are dropped: figures from two
    machines must not stand side by side.
    """
    head = HEAD.format(machine=machine)
    kept = _sections(old.removeprefix(head)) if old.startswith(head) else {}
    kept[name] = section
    return "\n".join([head, *(kept[key] for key in order if key in kept)])


def _sections(text: str) -> dict[str, str]:
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)[1:]
    return {part[3:].partition(":")[0]: part.rstrip("\n") + "\n" for part in parts}
