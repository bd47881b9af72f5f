"""The stage's files.  They are there with their names even where nothing was asked for.

``perturbed.json`` is the whole record, ``metrics.json`` its headline, ``episodes.jsonl`` every reply with the
perturbation and the policy it belongs to, ``perturbed.svg`` the figure and ``report.html`` the page.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ninegrid.outputs import output_folder, write_json

if TYPE_CHECKING:
    from ninegrid.evaluation.episodes import Episode

NOTHING_FIGURE = '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>\n'
NOTHING_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>No perturbed retests</title></head>
<body><p>No perturbed retest was asked for. To measure them all:
<code>python -m ninegrid.params perturb=all</code>, then <code>dvc repro</code>.</p></body>
</html>
"""

Replies = tuple[str, str, "Episode"]
"""Perturbation, policy, and a reply."""


def write_nothing(folder: Path) -> None:
    """The outputs of a stage that was asked for no perturbation."""
    _write(folder, {"perturbations": {}}, {}, (), NOTHING_PAGE, NOTHING_FIGURE)


def write_perturbed(folder: Path, record: Mapping[str, Any], replies: Iterable[Replies], limit: int) -> None:
    """Write record, headline, replies, page and figure; ``limit`` is the longest reply in tokens."""
    from ninegrid.perturb.page import render_perturbed
    from ninegrid.perturb.record import headline_metrics

    page, figure = render_perturbed(record, limit)
    _write(folder, record, headline_metrics(record), replies, page, figure.svg)


def _write(
    folder: Path,
    record: Mapping[str, Any],
    headline: Mapping[str, Any],
    replies: Iterable[Replies],
    page: str,
    figure: str,
) -> None:
    with output_folder(folder) as draft:
        write_json(draft / "perturbed.json", record)
        write_json(draft / "metrics.json", headline)
        lines = (json.dumps(_line(*reply), ensure_ascii=True) for reply in replies)
        (draft / "episodes.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        (draft / "report.html").write_text(page, encoding="utf-8", newline="\n")
        (draft / "perturbed.svg").write_text(figure, encoding="utf-8", newline="\n")


def _line(perturbation: str, policy: str, episode: Episode) -> dict[str, Any]:
    return {"perturbation": perturbation, "policy": policy, **asdict(episode)}
