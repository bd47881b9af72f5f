"""The few elements of the page that the UI library has no name for, and its colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from ninegrid.play.words import outcome_text
from ninegrid.report.palette import ROLES, outcome_colours, readable_on
from ninegrid.tasks.protocol import Task


def text(tag: str, content: str = "", classes: str = "", **attributes: str) -> TextElement:
    """An element of plain text; what it holds is never read as markup."""
    element = TextElement(tag=tag, text=content).classes(classes)
    set_attributes(element, attributes)
    return element


def box(tag: str = "div", classes: str = "", **attributes: str) -> ui.element:
    """An element that holds others."""
    element = ui.element(tag).classes(classes)
    set_attributes(element, attributes)
    return element


def set_attributes(element: ui.element, attributes: Mapping[str, Any]) -> None:
    """HTML attributes by Python names: ``aria_label`` is ``aria-label``."""
    for name, value in attributes.items():
        element.props[name.strip("_").replace("_", "-")] = value


def badge(outcome: str, colours: Mapping[str, str]) -> TextElement:
    """The name of an outcome on its colour."""
    element = text("span", classes="badge")
    set_badge(element, outcome, colours)
    return element


def set_badge(element: TextElement, outcome: str, colours: Mapping[str, str]) -> None:
    """Show another outcome on a badge."""
    colour = colours[outcome]
    element.set_text(outcome_text(outcome).name)
    element.style(replace=f"background: {colour}; color: {readable_on(colour)}")


def button(label: str, act: Any, *, main: bool = False) -> ui.button:
    """A button; the ``main`` one of a group stands out."""
    made = ui.button(label, on_click=act, color="primary" if main else None)
    return made.props("no-caps unelevated dense" if main else "no-caps outline dense")


def toggle(label: str, options: Mapping[str, str], value: str, choose: Any) -> ui.toggle:
    """A labelled row of buttons of which one is pressed; ``choose`` is called with the new value."""
    with box(classes="choice"):
        text("span", label, "label")
        chosen = ui.toggle(dict(options), value=value, on_change=lambda event: choose(event.value))
        chosen.props("no-caps unelevated dense")
        set_attributes(chosen, {"role": "group", "aria-label": label})
    return chosen


def colours_of(task: Task) -> Mapping[str, str]:
    """A colour for each outcome, as in the report."""
    return outcome_colours([str(outcome) for outcome in task.outcomes], next(iter(task.milestones.values())))


@cache
def style_sheet() -> str:
    """The page's style, with the project's colours for light and dark."""
    themes = [_variables(0), f"@media (prefers-color-scheme: dark) {{ {_variables(1)} }}"]
    return "\n".join([*themes, files("ninegrid.play").joinpath("style.css").read_text(encoding="utf-8")])


def _variables(theme: int) -> str:
    return ":root { " + " ".join(f"--{role}: {pair[theme]};" for role, pair in ROLES.items()) + " }"


def percent(share: float) -> str:
    """A probability in whole percent; what would round to nothing, or to certainty, is told apart from it."""
    if 0 < share < 0.005:
        return "<1%"
    return ">99%" if 0.995 <= share < 1 else f"{share:.0%}"


def squares_text(squares: Sequence[int]) -> str:
    """``1, 5 or 9``."""
    *others, last = map(str, squares)
    return f"{', '.join(others)} or {last}" if others else last
