"""Colours by role.  The light values are drawn; on the page CSS variables take their place.

Okabe-Ito hues, so that no pair that must be told apart differs in red and green alone.
"""

from __future__ import annotations

from collections.abc import Sequence

ROLES = {
    "ink": ("#1c2127", "#e8eaec"),
    "muted": ("#5b6570", "#a3adb8"),
    "rule": ("#d9dde2", "#353c44"),
    "paper": ("#ffffff", "#14181c"),
    "before": ("#6b7681", "#98a3ae"),
    "after": ("#0072b2", "#56b4e9"),
    "reward": ("#b34a00", "#f09a4f"),
}
"""Role -> (light, dark).  Light values are distinct, and differ from the
colours below by a hair where the hue is shared: a figure's SVG is recoloured by value."""

_FAILED = ("#a83c00", "#d55e00", "#ea8f1f", "#f2b84b", "#f9dd8e")
_DARK, _LIGHT = "#111111", "#fefefe"
_PASSED = ("#bfe3f7", "#55b3e8", "#0071b1")


def outcome_colours(outcomes: Sequence[str], passed: frozenset[str]) -> dict[str, str]:
    """One colour an outcome, worst to best: vermilion to pale yellow, then pale to deep blue.

    The turn from warm to cold falls where an outcome belongs to ``passed`` (the weakest
    milestone).  Lightness falls towards both ends, so the order survives without hue.
    """
    failed = [o for o in outcomes if o not in passed]
    good = [o for o in outcomes if o in passed]
    return {
        **dict(zip(failed, _ramp(_FAILED, len(failed)), strict=True)),
        **dict(zip(good, _ramp(_PASSED, len(good), from_end=True), strict=True)),
    }


def readable_on(colour: str) -> str:
    """Near-black or near-white, whichever stands out more on ``colour``."""
    dark, light, ground = (_luminance(c) + 0.05 for c in (_DARK, _LIGHT, colour))
    return _LIGHT if light / ground > ground / dark else _DARK


def _ramp(stops: Sequence[str], n: int, from_end: bool = False) -> list[str]:
    """``n`` colours spread over ``stops``; a single one is the first stop, or the last."""
    if n == 1:
        return [stops[-1] if from_end else stops[0]]
    places = [i * (len(stops) - 1) / (n - 1) for i in range(n)]
    return [_between(stops, place) for place in places]


def _between(stops: Sequence[str], place: float) -> str:
    i = min(int(place), len(stops) - 2)
    part = place - i
    pairs = zip(_rgb(stops[i]), _rgb(stops[i + 1]), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in pairs)


def _rgb(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))


def _luminance(colour: str) -> float:
    """Relative luminance as WCAG defines it."""
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in _rgb(colour))
    ]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
