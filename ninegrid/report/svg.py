"""Saving figures: to the byte alike for equal inputs, coloured by the reader's colour scheme."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape

import matplotlib
from matplotlib.figure import Figure

from ninegrid.report.palette import ROLES

SVG_NS = "http://www.w3.org/2000/svg"


@contextmanager
def drawing_rules(salt: str) -> Iterator[None]:
    """Matplotlib's own defaults plus ours, whatever the user's matplotlibrc says; restored after.

    ``salt`` seeds the ids inside an SVG, so that two figures on one page share none.
    """
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {
                "svg.fonttype": "none",
                "svg.hashsalt": salt,
                "text.parse_math": False,
                "font.family": "sans-serif",
                "font.sans-serif": ["DejaVu Sans"],
                "axes.unicode_minus": True,
                "axes.spines.top": False,
                "axes.spines.right": False,
                "axes.edgecolor": ROLES["muted"][0],
                "axes.labelcolor": ROLES["muted"][0],
                "axes.titlelocation": "left",
                "axes.titlecolor": ROLES["ink"][0],
                "axes.axisbelow": True,
                "axes.grid": True,
                "axes.grid.axis": "y",
                "grid.color": ROLES["rule"][0],
                "grid.linewidth": 0.7,
                "text.color": ROLES["ink"][0],
                "xtick.color": ROLES["muted"][0],
                "ytick.color": ROLES["muted"][0],
                "xtick.labelcolor": ROLES["muted"][0],
                "ytick.labelcolor": ROLES["muted"][0],
                "legend.frameon": False,
            }
        )
        yield


def png(figure: Figure) -> bytes:
    """The figure on white, 160 dots an inch, without metadata."""
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=160, facecolor="white", metadata={"Software": None})
    return out.getvalue()


def svg(figure: Figure, prefix: str) -> str:
    """The figure's SVG element without background, colours as CSS variables, ids prefixed."""
    out = io.StringIO()
    figure.savefig(
        out,
        format="svg",
        transparent=True,
        metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
    )
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'<style type="text/css">.*?</style>', "", text, flags=re.DOTALL)
    text = text.replace("xlink:href=", "href=")
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r'(href="#|url\(#)', rf"\1{prefix}-", text)
    text = re.sub(r"(fill|stroke): (#[0-9a-f]{6})\b", _recolour, text)
    return "\n".join(line.rstrip() for line in text.splitlines())


def inline(svg_text: str, label: str) -> str:
    """The element as it stands in an HTML page: named, sized by CSS, no namespaces."""
    head, rest = svg_text.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', head)
    if box is None:
        raise ValueError("matplotlib wrote an SVG without a viewBox")
    attributes = f'{box.group()} role="img" aria-label="{escape(label)}"'
    return f'<svg {attributes} stroke-linejoin="round" stroke-linecap="butt">{rest}'


def standalone(svg_text: str, label: str) -> str:
    """The element as a file of its own, on paper that follows the reader's colour scheme."""
    head, rest = svg_text.split(">", 1)
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', head)
    if box is None:
        raise ValueError("matplotlib wrote an SVG without a viewBox")
    width, height = box.groups()
    style = (
        ":root { font-family: system-ui, sans-serif } @media (prefers-color-scheme: dark) { :root { "
        + "; ".join(f"--{role}: {dark}" for role, (_, dark) in ROLES.items())
        + " } }"
    )
    return (
        f'<svg xmlns="{SVG_NS}" width="{width}pt" height="{height}pt" viewBox="0 0 {width} {height}" '
        f'role="img" stroke-linejoin="round" stroke-linecap="butt">\n<title>{escape(label)}</title>\n'
        f"<style>{style}</style>\n"
        f'<rect width="100%" height="100%" style="fill: {variable("paper")}"/>{rest}\n'
    )


def variable(role: str) -> str:
    """The CSS value of a role: its variable, or the light colour where none is set."""
    return f"var(--{role}, {ROLES[role][0]})"


def _recolour(match: re.Match[str]) -> str:
    for role, (light, _) in ROLES.items():
        if match.group(2) == light:
            return f"{match.group(1)}: {variable(role)}"
    return match.group()
