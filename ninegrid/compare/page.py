"""The page that sets loops side by side, written from their files alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from ninegrid.compare.differences import changed_settings, check_same_examples, costs, less_the_first
from ninegrid.compare.figure import plots
from ninegrid.compare.loop import Loop
from ninegrid.errors import DataError
from ninegrid.report.inputs import DECODINGS
from ninegrid.report.page import Rendered, page_environment, page_style, render_figure
from ninegrid.report.stats import Direction, direction
from ninegrid.report.tables import ChangeRow, change_row
from ninegrid.report.text import number, signed

Json = Mapping[str, Any]
MARKERS = {Direction.UP: "▲", Direction.DOWN: "▼", Direction.UNCLEAR: "≈", Direction.SAME: "="}


@dataclass(frozen=True)
class Finding:
    """One sentence about a loop beside the first."""

    tone: Direction
    text: str


def write_comparison(folder: Path, loops: Sequence[Loop]) -> Path:
    """Write ``compare.html`` and its figures; equal loops give equal bytes.

    Args:
        folder: is made if need be.
        loops: two or more; the first is what the others are set beside.

    Returns:
        The path of the page.

    Raises:
        ConditionsError: the loops did not answer the same examples.
        DataError: the folder cannot be written.
    """
    check_same_examples(loops)
    figures = [render_figure(plot) for plot in plots(loops)]
    page = folder / "compare.html"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for figure in figures:
            (folder / f"{figure.name}.svg").write_text(figure.svg, encoding="utf-8", newline="\n")
            (folder / f"{figure.name}.png").write_bytes(figure.png)
        page.write_text(render_comparison(loops, figures), encoding="utf-8", newline="\n")
    except OSError as error:
        raise DataError(f"cannot write {folder}: {error.strerror or error}") from error
    return page


def render_comparison(loops: Sequence[Loop], figures: Sequence[Rendered]) -> str:
    """The page as text."""
    template = (resources.files("ninegrid.compare") / "page.html.j2").read_text(encoding="utf-8")
    differences = {decoding: less_the_first(loops, decoding) for decoding in DECODINGS}
    bootstrap = loops[0].comparison["bootstrap"]
    return page_environment().from_string(template).render(
        style=page_style(),
        figures={figure.name: figure for figure in figures},
        loops=loops,
        first=loops[0],
        decodings=DECODINGS,
        markers=MARKERS,
        findings=findings(loops, differences),
        level=f"{100 * bootstrap['confidence']:g}%",
        bootstrap=bootstrap,
        groups=loops[0].comparison["sampled"]["groups"],
        settings=changed_settings(loops),
        scores={decoding: _scores(loops, differences[decoding], decoding) for decoding in DECODINGS},
        outcomes={decoding: _outcomes(loops, decoding) for decoding in DECODINGS},
        costs={name: [number(costs(loop)[name], 0) for loop in loops] for name in costs(loops[0])},
    )  # fmt: skip


def findings(loops: Sequence[Loop], differences: Mapping[str, Sequence[Json]]) -> list[Finding]:
    """A sentence for each loop after the first: better, worse, or within noise."""
    said = []
    for i, loop in enumerate(loops[1:]):
        parts, tones = [], []
        for decoding in DECODINGS:
            change = differences[decoding][i]
            tones.append(direction(change))
            parts.append(f"{decoding} {_sentence(change)}")
        said.append(Finding(tones[0], f"{loop.name}: {'; '.join(parts)}."))
    return said


def _sentence(change: Json) -> str:
    told = signed(change["change"])
    if change["low"] is None:
        return f"{told}, without an interval (one class alone)"
    ends = f"{signed(change['low'])} to {signed(change['high'])}"
    match direction(change):
        case Direction.UP:
            return f"better by {told} ({ends})"
        case Direction.DOWN:
            return f"worse by {told} ({ends})"
        case Direction.SAME:
            return "the same, reply by reply"
        case _:
            return f"within noise: {told} ({ends})"


def _scores(
    loops: Sequence[Loop], differences: Sequence[Json], decoding: str
) -> list[tuple[ChangeRow, ChangeRow | None]]:
    """For each loop its own change by training, and its difference from the first."""
    own = [change_row(loop.name, loop.comparison[decoding]["score"]) for loop in loops]
    beside: list[ChangeRow | None] = [None]
    beside += [change_row(loop.name, d) for loop, d in zip(loops[1:], differences, strict=True)]
    return list(zip(own, beside, strict=True))


def _outcomes(loops: Sequence[Loop], decoding: str) -> dict[str, list[ChangeRow]]:
    """Outcome -> its change by training in each loop."""
    names = dict.fromkeys(name for loop in loops for name in loop.comparison[decoding]["outcomes"])
    return {
        name: [
            change_row(loop.name, loop.comparison[decoding]["outcomes"][name], rate=True) for loop in loops
        ]
        for name in names
    }
