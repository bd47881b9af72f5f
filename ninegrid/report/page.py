"""Writes the page and its figures.  What the page says is decided elsewhere; here it is assembled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ninegrid.errors import DataError
from ninegrid.report import cheaper, gallery, tables
from ninegrid.report.audit_section import audit_section
from ninegrid.report.canvas import NARROW, WIDE, Layout
from ninegrid.report.figures import HEALTH, Plot, plots
from ninegrid.report.inputs import DECODINGS, ReportInputs, Rows, read_steps, without_false_intervals
from ninegrid.report.limits import limits
from ninegrid.report.palette import ROLES
from ninegrid.report.stats import smoothing_window
from ninegrid.report.svg import drawing_rules, inline, png, standalone, svg
from ninegrid.report.text import count, number, p_value, percent, visible, words
from ninegrid.report.verdict import judge


@dataclass(frozen=True)
class Rendered:
    """A figure as files (``svg``, ``png``) and as markup for the page in both layouts."""

    name: str
    svg: str
    png: bytes
    wide: Markup
    narrow: Markup


def write_report(folder: Path, inputs: ReportInputs) -> Path:
    """Write ``report.html``, ``figures/*.svg`` and ``figures/*.png``; equal inputs give equal bytes.

    Returns:
        The path of the page.

    Raises:
        DataError: the inputs contradict each other, or ``folder`` cannot be written.
    """
    inputs = replace(inputs, comparison=without_false_intervals(inputs.comparison))
    steps = read_steps(inputs.steps)
    figures = [render_figure(plot) for plot in plots(inputs, steps)]
    html = render_page(inputs, steps, figures)
    page = folder / "report.html"
    try:
        (folder / "figures").mkdir(parents=True, exist_ok=True)
        for figure in figures:
            (folder / "figures" / f"{figure.name}.svg").write_text(figure.svg, encoding="utf-8", newline="\n")
            (folder / "figures" / f"{figure.name}.png").write_bytes(figure.png)
        page.write_text(html, encoding="utf-8", newline="\n")
    except OSError as error:
        raise DataError(
            f"cannot write the report to {folder}: {error.strerror}",
            hint="free the folder, then run: dvc repro",
        ) from error
    return page


def render_figure(plot: Plot) -> Rendered:
    """Draw one figure in both layouts."""
    label = visible(plot.label)
    with drawing_rules(plot.name):
        figure = plot.draw(WIDE)
        wide, picture = svg(figure, f"{plot.name}-wide"), png(figure)
        narrow = svg(plot.draw(NARROW), f"{plot.name}-narrow")
    return Rendered(
        plot.name,
        standalone(wide, label),
        picture,
        _for_page(wide, label, WIDE),
        _for_page(narrow, label, NARROW),
    )


def _for_page(text: str, label: str, layout: Layout) -> Markup:
    return Markup('<div class="plot {}">{}</div>').format(layout.name, Markup(inline(text, label)))


def render_page(inputs: ReportInputs, steps: Rows, figures: list[Rendered]) -> str:
    """The page as text."""
    template = page_environment().from_string(_resource("page.html.j2"))
    return template.render(_context(inputs, steps, figures))


def page_environment() -> Environment:
    """How a page's template is filled: every value escaped and made visible, our filters at hand."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_readable
    )
    environment.filters.update(words=words, number=number, percent=percent, p_value=p_value)
    environment.globals.update(count=count)
    return environment


def page_style() -> Markup:
    """The style sheet of every page, with the roles' colours."""
    return Markup(_variables() + _resource("style.css"))


def _resource(name: str) -> str:
    return (resources.files("ninegrid.report") / name).read_text(encoding="utf-8")


def _readable(value: Any) -> Any:
    """Every string that is not markup of ours passes here on its way into the page."""
    return value if isinstance(value, Markup) else visible(str(value))


def _context(inputs: ReportInputs, steps: Rows, figures: list[Rendered]) -> dict[str, Any]:
    header, rows = tables.step_rows(steps)
    return {
        "r": inputs,
        "n_steps": len(steps),
        "style": page_style(),
        "figures": {f.name: f for f in figures},
        "verdict": judge(inputs, steps),
        "level": f"{100 * inputs.confidence:g}%",
        "decodings": DECODINGS,
        "headline": tables.headline(inputs),
        "outcome_rows": {d: tables.outcome_rows(inputs, d) for d in DECODINGS},
        "transitions": {d: tables.transitions(inputs, d) for d in DECODINGS},
        "players": tables.player_rows(inputs),
        "audit": audit_section(inputs.audit),
        "cheaper": cheaper.section(inputs),
        "subsets": tables.subset_rows(inputs),
        "kinds": tables.kind_rows(inputs),
        "mcnemar": tables.mcnemar_rows(inputs),
        "step_header": header,
        "step_rows": rows,
        "window": smoothing_window(len(steps)),
        "health": HEALTH,
        "gallery": {way: gallery.cards(inputs, way) for way in ("improved", "worsened")},
        "drawing": lambda card: Markup(card.drawing),
        "limits": limits(inputs, steps),
    }


def _variables() -> str:
    """The roles' colours as CSS variables: light, dark when asked for, light again on paper."""
    light = "; ".join(f"--{role}: {colour}" for role, (colour, _) in ROLES.items())
    dark = "; ".join(f"--{role}: {colour}" for role, (_, colour) in ROLES.items())
    return f":root {{ {light} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
