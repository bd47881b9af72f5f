"""Numbers and foreign strings as a reader should see them.

`visible` is the one place that makes text safe to *look at* (control and direction characters,
lone surrogates); that it is safe as *markup* is the template engine's job (autoescape).
"""

from __future__ import annotations

import math
import unicodedata

MISSING = "–"
"""Shown where there is no number."""

_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


def number(value: float | None, digits: int = 3) -> str:
    """``-0.5`` as ``−0.500``; a missing or non-finite value as a dash."""
    if value is None or not math.isfinite(value):
        return MISSING
    text = f"{abs(value):,.{digits}f}"
    return f"−{text}" if value < 0 and float(text.replace(",", "")) != 0 else text


def signed(value: float | None, digits: int = 3) -> str:
    """As `number`, with the true sign kept even where rounding leaves only zeros."""
    if value is None or not math.isfinite(value):
        return MISSING
    sign = "" if value == 0 else "+" if value > 0 else "−"
    return f"{sign}{abs(value):,.{digits}f}"


def percent(share: float | None, digits: int = 1) -> str:
    """0.5 as ``50.0%``."""
    text = number(None if share is None else 100 * share, digits)
    return text if text == MISSING else f"{text}%"


def points(share: float | None, digits: int = 1) -> str:
    """A difference of shares in percentage points, signed, without the word."""
    return signed(None if share is None else 100 * share, digits)


def p_value(p: float | None) -> str:
    """``p = 0.042``, or ``p < 0.001`` below that."""
    if p is None or not math.isfinite(p):
        return "p unknown"
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def count(n: int, one: str, many: str | None = None) -> str:
    """``1 reply``, ``1,204 replies``."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def words(name: str) -> str:
    """An identifier as a reader would say it: ``no_tool_call`` as ``no tool call``."""
    return name.replace("_", " ")


def visible(text: str) -> str:
    """``text`` with every character that would hide, reorder or break the page spelled out.

    Line breaks and tabs stay.  The result always encodes as UTF-8.
    """
    return "".join(_spell(c) if unicodedata.category(c) in _INVISIBLE else c for c in text)


def clip(text: str, limit: int) -> tuple[str, int]:
    """The first ``limit`` characters, and how many were left out."""
    return text[:limit], max(0, len(text) - limit)


def _spell(char: str) -> str:
    if char in "\n\t":
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
