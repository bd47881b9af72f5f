"""Makes a task's drawing of an example safe to embed in the page.

A drawing may show what a model wrote, so nothing in it is trusted: it is reduced to an allow-list of
shapes, text and their attributes.  Scripts, styles, links, images and references all go.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from ninegrid.report.text import visible

SVG_NS = "http://www.w3.org/2000/svg"
_ELEMENT = re.compile("svg|g|rect|line|polyline|polygon|path|circle|ellipse|text|tspan|title|desc")
_ATTRIBUTE = re.compile(
    "x|y|x1|y1|x2|y2|dx|dy|cx|cy|r|rx|ry|d|points|width|height|viewBox|preserveAspectRatio|transform"
    "|fill|fill-opacity|fill-rule|stroke|stroke-width|stroke-opacity|stroke-dasharray|stroke-linecap"
    "|stroke-linejoin|opacity|font-size|font-family|font-weight|font-style|text-anchor|dominant-baseline"
    "|role|aria-label|aria-hidden|style"
)
_UNSAFE_VALUE = re.compile(r"url\s*\(|image|@|\\|/\*|javascript:|position", re.IGNORECASE)


def safe_drawing(text: str, label: str) -> str | None:
    """The drawing as markup for HTML, or None if ``text`` is not well-formed SVG.

    ``label`` names it to those who cannot see it, where it brings no title of its own.
    """
    if "<!DOCTYPE" in text:
        return None
    try:
        root = ET.fromstring(text)
    except (ET.ParseError, UnicodeEncodeError):
        return None
    if _local(root.tag) != "svg":
        return None
    drawing = _clean(root)
    drawing.set("role", "img")
    if drawing.find("title") is None:
        drawing.set("aria-label", visible(label))
    return ET.tostring(drawing, encoding="unicode", short_empty_elements=False)


def _clean(element: ET.Element) -> ET.Element:
    clean = ET.Element(_local(element.tag))
    clean.text, clean.tail = visible(element.text or ""), visible(element.tail or "")
    for key, value in element.attrib.items():
        if _ATTRIBUTE.fullmatch(key) and not _UNSAFE_VALUE.search(value):
            clean.set(key, visible(value))
    clean.extend(_clean(child) for child in element if _ELEMENT.fullmatch(_local(child.tag)))
    return clean


def _local(tag: object) -> str:
    """Tag without its namespace; foreign namespaces keep theirs and so match nothing."""
    name = str(tag)
    return name.removeprefix(f"{{{SVG_NS}}}")
