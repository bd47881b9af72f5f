"""One call in the Hermes dialect: ``<tool_call>{"name": "...", "arguments": {...}}</tool_call>``.

Not here: finding calls in a reply (`ninegrid.chat.parser`), and what an argument may be
(`ninegrid.chat.judging`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ninegrid.chat.dialect import CLOSE, OPEN
from ninegrid.chat.strict_json import DECODER, CallError, check_tree, skip_space
from ninegrid.tasks.protocol import ToolCall


class _Member(NamedTuple):
    key: str
    start: int
    end: int


def read_call(text: str, start: int) -> ToolCall:
    """The call whose opening marker stands at ``start``.

    Raises:
        ValueError, RecursionError: there is none that can be read.
    """
    value, end = DECODER.raw_decode(text, skip_space(text, start + len(OPEN)))
    end = skip_space(text, end)
    if not text.startswith(CLOSE, end):
        raise CallError(f"no {CLOSE} after the JSON value")
    name, arguments = _call_fields(value)
    return ToolCall(name, arguments, (start, end + len(CLOSE)))


def value_span(text: str, call: ToolCall, key: str) -> tuple[int, int]:
    """The half-open range of characters of an argument's value, for a call that was read from ``text``."""
    outer = _members(text, skip_space(text, call.span[0] + len(OPEN)))
    start = next(member.start for member in outer if member.key == "arguments")
    return next((m.start, m.end) for m in _members(text, start) if m.key == key)


def _call_fields(value: Any) -> tuple[str, dict[str, Any]]:
    if not isinstance(value, dict):
        raise CallError("not a JSON object")
    if value.keys() != {"name", "arguments"}:
        raise CallError("the object's keys are not exactly name and arguments")
    if not isinstance(value["name"], str):
        raise CallError("name is not a string")
    if not isinstance(value["arguments"], dict):
        raise CallError("arguments is not a JSON object")
    check_tree(value)
    return value["name"], value["arguments"]


def _members(text: str, start: int) -> Iterator[_Member]:
    """The members of the well-formed JSON object at ``start``, with where their values stand."""
    position = skip_space(text, start + 1)
    while text[position] != "}":
        key, position = DECODER.raw_decode(text, position)
        value_start = skip_space(text, skip_space(text, position) + 1)
        _, value_end = DECODER.raw_decode(text, value_start)
        yield _Member(key, value_start, value_end)
        position = skip_space(text, value_end)
        if text[position] == ",":
            position = skip_space(text, position + 1)
