"""The one parser of replies: text in, thoughts, well-formed calls and named failures out.

Two dialects of calls are read (`ninegrid.chat.dialect`), with prose allowed around them.  What a reasoning
model thinks is no part of its answer: a call within a thought is no call.  The parser is strict (what a
server would have to guess at is malformed), never raises for any text, and takes time linear in it.  Which
arguments a tool takes it does not judge: that is `ninegrid.chat.judging`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ninegrid.chat import hermes_calls, xml_calls
from ninegrid.chat.dialect import HERMES, OPEN, THINKING, Dialect
from ninegrid.chat.strict_json import reason
from ninegrid.tasks.protocol import Json, ToolCall

MAX_READ = 16
"""Blocks beyond this many are counted, not read: a reply of a million markers stays cheap."""

_MARK = re.compile(f"{OPEN}|{THINKING[0]}")


@dataclass(frozen=True)
class ParsedReply:
    """What a reply holds.

    Attributes:
        calls: the well-formed calls, in order.
        malformed: one reason for every block that could not be read, in order.
        blocks: opened blocks in all; ``<tool_call>`` inside a string of a well-formed call is text.
            Equals ``len(calls) + len(malformed)`` unless there are more than `MAX_READ`.
        thoughts: the half-open ranges of characters of the thoughts, markers included, in order.
        cut_in_thought: the reply ends before its last thought does.
    """

    calls: tuple[ToolCall, ...] = ()
    malformed: tuple[str, ...] = ()
    blocks: int = 0
    thoughts: tuple[tuple[int, int], ...] = ()
    cut_in_thought: bool = False


def parse_reply(text: str, dialect: Dialect = HERMES, tools: Sequence[Json] = ()) -> ParsedReply:
    """Read every tool call of ``text`` outside its thoughts; never raises, whatever the text.

    Args:
        text: the reply, without what the prompt wrote of it.
        dialect: how it is written.
        tools: those offered, in the OpenAI function format; the ``xml`` dialect needs their schemas to tell
            texts from other values.
    """
    calls, malformed, thoughts = list[ToolCall](), list[str](), list[tuple[int, int]]()
    unread = position = 0
    if dialect.in_thought:
        position = _end_of_thought(text, 0)
        thoughts.append((0, position))
    while mark := _MARK.search(text, position):
        if mark.group() == THINKING[0]:
            position = _end_of_thought(text, mark.end())
            thoughts.append((mark.start(), position))
        elif len(calls) + len(malformed) == MAX_READ:
            position = _next_thought(text, mark.start())
            unread += text.count(OPEN, mark.start(), position)
        else:
            try:
                calls.append(_read_call(text, mark.start(), dialect, tools))
                position = calls[-1].span[1]
            except (ValueError, RecursionError) as error:
                malformed.append(reason(error))
                position = mark.end()
    blocks = len(calls) + len(malformed) + unread
    return ParsedReply(tuple(calls), tuple(malformed), blocks, tuple(thoughts), _is_cut(text, thoughts))


def argument_span(
    text: str, call: ToolCall, key: str, dialect: Dialect = HERMES, tools: Sequence[Json] = ()
) -> tuple[int, int] | None:
    """Where the value of argument ``key`` stands in the reply.

    Args:
        text: the reply.
        call: a call that `parse_reply` read from it.
        key: name of an argument, as decoded (the reply may have written it with escapes).
        dialect, tools: with which it was read.

    Returns:
        The half-open range of characters of the value, the quotes of a JSON string included; None if ``call``
        has no such argument or was not read from ``text``.
    """
    start = call.span[0]
    if key not in call.arguments or start < 0 or not text.startswith(OPEN, start):
        return None
    try:
        if _read_call(text, start, dialect, tools) != call:
            return None
    except (ValueError, RecursionError):
        return None
    return (xml_calls if dialect.calls == "xml" else hermes_calls).value_span(text, call, key)


def _read_call(text: str, start: int, dialect: Dialect, tools: Sequence[Json]) -> ToolCall:
    if dialect.calls == "xml":
        return xml_calls.read_call(text, start, tools)
    return hermes_calls.read_call(text, start)


def _end_of_thought(text: str, start: int) -> int:
    """Where a thought ends whose inside begins at ``start``: behind its closing marker, or with the reply."""
    close = text.find(THINKING[1], start)
    return len(text) if close < 0 else close + len(THINKING[1])


def _next_thought(text: str, start: int) -> int:
    found = text.find(THINKING[0], start)
    return len(text) if found < 0 else found


def _is_cut(text: str, thoughts: Sequence[tuple[int, int]]) -> bool:
    if not thoughts:
        return False
    start, end = thoughts[-1]
    return end == len(text) and not text.endswith(THINKING[1], start)
