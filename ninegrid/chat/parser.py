"""The one parser of tool calls: reply text in, well-formed calls and named failures out.

The dialect is Hermes: ``<tool_call>{"name": "...", "arguments": {...}}</tool_call>``, with prose allowed
around it.  The parser is strict (what a JSON-reading server would have to guess at is malformed), never
raises for any text, and takes time linear in it.  It does not know which tools exist or what their
arguments mean: that is `ninegrid.chat.judging`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from ninegrid.tasks.protocol import ToolCall

OPEN = "<tool_call>"
CLOSE = "</tool_call>"

MAX_READ = 16
"""Blocks beyond this many are counted, not read: a reply of a million markers stays cheap."""
MAX_DEPTH = 32
"""Deepest nesting of a call.  Whoever walks, compares or writes the arguments recurses this far at most."""
MAX_DIGITS = 300
"""Longest whole number.  It still converts to a float, which JSON-schema checks may do."""

_SPACE = re.compile(r"[ \t\n\r]*")


@dataclass(frozen=True)
class ParsedReply:
    """What a reply holds.

    Attributes:
        calls: the well-formed calls, in order.
        malformed: one reason for every block that could not be read, in order.
        blocks: opened blocks in all; ``<tool_call>`` inside a string of a well-formed call is text.
            Equals ``len(calls) + len(malformed)`` unless there are more than `MAX_READ`.
    """

    calls: tuple[ToolCall, ...] = ()
    malformed: tuple[str, ...] = ()
    blocks: int = 0


def parse_reply(text: str) -> ParsedReply:
    """Read every tool call of ``text``; never raises, whatever the text."""
    calls: list[ToolCall] = []
    malformed: list[str] = []
    position = text.find(OPEN)
    while position >= 0 and len(calls) + len(malformed) < MAX_READ:
        try:
            call = _read_block(text, position)
        except (ValueError, RecursionError) as error:
            malformed.append(_reason(error))
            position = text.find(OPEN, position + len(OPEN))
        else:
            calls.append(call)
            position = text.find(OPEN, call.span[1])
    unread = text.count(OPEN, position) if position >= 0 else 0
    return ParsedReply(tuple(calls), tuple(malformed), len(calls) + len(malformed) + unread)


def argument_span(text: str, call: ToolCall, key: str) -> tuple[int, int] | None:
    """Where the value of argument ``key`` stands in the reply.

    Args:
        text: the reply.
        call: a call that `parse_reply` read from it.
        key: name of an argument, as decoded (the reply may have written it with escapes).

    Returns:
        The half-open range of characters of the value, a string's quotes included; None if ``call`` has no
        such argument or was not read from ``text``.
    """
    if key not in call.arguments or _block_at(text, call.span[0]) != call:
        return None
    outer = _members(text, _skip_space(text, call.span[0] + len(OPEN)))
    start = next(member.start for member in outer if member.key == "arguments")
    return next((m.start, m.end) for m in _members(text, start) if m.key == key)


class _BlockError(ValueError):
    """A block that is JSON, or nearly, but no call."""


class _Member(NamedTuple):
    key: str
    start: int
    end: int


def _block_at(text: str, start: int) -> ToolCall | None:
    """The well-formed call whose opening marker stands at ``start``, or None."""
    if not text.startswith(OPEN, start):
        return None
    try:
        return _read_block(text, start)
    except (ValueError, RecursionError):
        return None


def _read_block(text: str, start: int) -> ToolCall:
    value, end = _DECODER.raw_decode(text, _skip_space(text, start + len(OPEN)))
    end = _skip_space(text, end)
    if not text.startswith(CLOSE, end):
        raise _BlockError(f"no {CLOSE} after the JSON value")
    name, arguments = _call_fields(value)
    return ToolCall(name, arguments, (start, end + len(CLOSE)))


def _call_fields(value: Any) -> tuple[str, dict[str, Any]]:
    if not isinstance(value, dict):
        raise _BlockError("not a JSON object")
    if value.keys() != {"name", "arguments"}:
        raise _BlockError("the object's keys are not exactly name and arguments")
    if not isinstance(value["name"], str):
        raise _BlockError("name is not a string")
    if not isinstance(value["arguments"], dict):
        raise _BlockError("arguments is not a JSON object")
    check_tree(value)
    return value["name"], value["arguments"]


def check_tree(root: dict[str, Any], deepest: int = MAX_DEPTH) -> None:
    """Refuse JSON data that could not be walked or written again: deep nesting, text that UTF-8 cannot hold.

    Raises:
        ValueError: saying which.
    """
    pending: list[tuple[Any, int]] = [(root, 1)]
    while pending:
        value, depth = pending.pop()
        if isinstance(value, str):
            _check_text(value)
            continue
        if not isinstance(value, (dict, list)):
            continue
        if depth > deepest:
            raise _BlockError(f"nested deeper than {deepest} levels")
        if isinstance(value, dict):
            for key in value:
                _check_text(key)
        children = value.values() if isinstance(value, dict) else value
        pending.extend((child, depth + 1) for child in children)


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _BlockError("a string holds a lone surrogate") from error


def _members(text: str, start: int) -> Iterator[_Member]:
    """The members of the well-formed JSON object at ``start``, with where their values stand."""
    position = _skip_space(text, start + 1)
    while text[position] != "}":
        key, position = _DECODER.raw_decode(text, position)
        value_start = _skip_space(text, _skip_space(text, position) + 1)
        _, value_end = _DECODER.raw_decode(text, value_start)
        yield _Member(key, value_start, value_end)
        position = _skip_space(text, value_end)
        if text[position] == ",":
            position = _skip_space(text, position + 1)


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    assert match is not None  # the pattern matches the empty string
    return match.end()


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _BlockError("a key appears twice in one object")
    return members


def _whole_number(digits: str) -> int:
    # The interpreter's own JSON scanner takes other scripts' digits where its C version is absent.
    if len(digits) > MAX_DIGITS or not digits.isascii():
        raise _BlockError(f"not a whole number of at most {MAX_DIGITS} ASCII digits")
    return int(digits)


def _real_number(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number) or not digits.isascii():
        raise _BlockError("a number that a float cannot hold")
    return number


def _no_constant(literal: str) -> Any:
    raise _BlockError(f"{literal} is not JSON")


def _reason(error: ValueError | RecursionError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON at character {error.pos}: {error.msg}"
    if isinstance(error, RecursionError):
        return f"nested deeper than {MAX_DEPTH} levels"
    return str(error)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_keys,
    parse_int=_whole_number,
    parse_float=_real_number,
    parse_constant=_no_constant,
)
