"""One call in the dialect of GLM 4.5 and Ling 3: the tool's name, then tagged arguments.

``<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>...</tool_call>``, with white space
allowed between the tags.  A value is text; the tool's JSON schema says what it stands for.  Not here: finding
calls in a reply (`ninegrid.chat.parser`), and whether an argument is one that the tool takes
(`ninegrid.chat.judging`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ninegrid.chat.dialect import CLOSE, OPEN
from ninegrid.chat.strict_json import CallError, check_tree, read_value, reason, skip_space
from ninegrid.tasks.protocol import Json, ToolCall

KEY = ("<arg_key>", "</arg_key>")
VALUE = ("<arg_value>", "</arg_value>")

NAME_CHARACTER = r"""[^\s<>{}\[\]()"'=,]"""
"""Of one word.  Neither JSON nor a call as Python writes it is a call of an oddly named tool."""

_NAME = re.compile(f"{NAME_CHARACTER}+")
_PAIR = re.compile(rf"{KEY[0]}([^<>]+){KEY[1]}[ \t\n\r]*{VALUE[0]}")

Meaning = Literal["text", "json", "either"]


class _Member(NamedTuple):
    key: str
    start: int
    end: int


def read_call(text: str, start: int, tools: Sequence[Json]) -> ToolCall:
    """The call whose opening marker stands at ``start``.

    Args:
        tools: those offered, in the OpenAI function format; their schemas say what values mean.

    Raises:
        ValueError, RecursionError: there is none that can be read.
    """
    name = _NAME.match(text, skip_space(text, start + len(OPEN)))
    if name is None:
        raise CallError("no name of a tool")
    schemas = _properties(tools, name.group())
    arguments: dict[str, Any] = {}
    position = skip_space(text, name.end())
    for key, begin, end in _members(text, position):
        if key in arguments:
            raise CallError(f"the argument {key!r} appears twice")
        arguments[key] = _value(text[begin:end], schemas.get(key), key)
        position = skip_space(text, end + len(VALUE[1]))
    if not text.startswith(CLOSE, position):
        raise CallError(f"no {CLOSE} after the name and its tagged arguments")
    check_tree({"name": name.group(), "arguments": arguments})
    return ToolCall(name.group(), arguments, (start, position + len(CLOSE)))


def value_span(text: str, call: ToolCall, key: str) -> tuple[int, int]:
    """The half-open range of characters of an argument's value, for a call that was read from ``text``.

    White space around a value that is no text does not belong to it.
    """
    start = skip_space(text, call.span[0] + len(OPEN)) + len(call.name)
    members = _members(text, skip_space(text, start))
    begin, end = next((m.start, m.end) for m in members if m.key == key)
    if isinstance(call.arguments[key], str):
        return begin, end
    return skip_space(text, begin), begin + len(text[begin:end].rstrip(" \t\n\r"))


def meaning(schema: object) -> Meaning:
    """What the text of a value stands for under its JSON schema.

    ``text`` where only a string fits: the text itself.  ``json`` where no string fits: the text must be JSON.
    ``either`` where the schema does not tell: JSON if the text is JSON, else the text itself.
    """
    if not isinstance(schema, Mapping):
        return "either"
    kinds = schema.get("type")
    if kinds is None:
        known = schema["enum"] if "enum" in schema else [schema["const"]] if "const" in schema else [None, ""]
        kinds = ["string" if isinstance(value, str) else "other" for value in known]
    names = {kinds} if isinstance(kinds, str) else set(kinds)
    if "string" not in names:
        return "json"
    return "text" if names == {"string"} else "either"


def _members(text: str, position: int) -> Iterator[_Member]:
    """The tagged arguments from ``position`` on, with where their values stand."""
    while match := _PAIR.match(text, position):
        end = text.find(VALUE[1], match.end())
        if end < 0:
            raise CallError(f"no {VALUE[1]} after the value of {match.group(1)!r}")
        yield _Member(match.group(1), match.end(), end)
        position = skip_space(text, end + len(VALUE[1]))


def _properties(tools: Sequence[Json], name: str) -> Mapping[str, Any]:
    """Schemas of the arguments of the tool ``name``; none for a tool that was not offered."""
    functions = (tool["function"] for tool in tools)
    schema = next((f.get("parameters") for f in functions if f["name"] == name), None)
    found = schema.get("properties") if isinstance(schema, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _value(text: str, schema: object, key: str) -> Any:
    kind = meaning(schema)
    if kind == "text":
        return text
    try:
        return read_value(text)
    except (ValueError, RecursionError) as error:
        if kind == "either":
            return text
        raise CallError(f"the value of {key!r} is {reason(error)}") from error
