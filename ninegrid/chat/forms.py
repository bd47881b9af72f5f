"""How a chat template writes calls of one tool, and the grammar of all of them.

Found by letting the template write a call.  The grammar is Lark as llguidance reads it; that library itself
is used elsewhere (`ninegrid.chat.forced`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ninegrid.chat.dialect import CallStyle
from ninegrid.chat.xml_calls import KEY, VALUE, meaning
from ninegrid.errors import CannotForceError
from ninegrid.tasks.protocol import Json, ToolCall

SEPARATORS = ((",", ":"), (", ", ": "))
"""Between the members of a JSON object and after a key: the ways in which templates write them."""

PROBE = {"first": 5, "second": 6}
"""Arguments by which a template is asked how it writes a call."""

HINT = "leave what forces the call out of alternatives.names"

_TAGGED = re.compile(
    rf"(?P<before>.*?)(?P<lead>\s*){KEY[0]}first{KEY[1]}(?P<middle>\s*){VALUE[0]}5{VALUE[1]}"
    rf"(?P<joint>\s*){KEY[0]}second{KEY[1]}(?P=middle){VALUE[0]}6{VALUE[1]}(?P<after>.*)",
    re.DOTALL,
)
_UNWRITTEN = ("pattern", "format")
"""What a schema can ask of a text that the grammar of a tagged one does not hold."""


@dataclass(frozen=True)
class JsonForm:
    """How a call of one tool is written whose arguments are one JSON object.

    Attributes:
        name: the tool's.
        before, after: the text around the arguments, markers included.
        item_separator, key_separator: of the arguments' JSON.
        schema: JSON schema of the arguments.
    """

    name: str
    before: str
    after: str
    item_separator: str
    key_separator: str
    schema: Json

    def grammar(self, rule: str) -> list[str]:
        """The lines that define ``rule``: all calls of the tool."""
        return [
            f"{rule}: {json.dumps(self.before)} {rule}_arguments {json.dumps(self.after)}",
            f"{rule}_arguments: {_json_rule({'type': 'object', **self.schema}, self._style())}",
        ]

    def _style(self) -> Json:
        return {"item_separator": self.item_separator, "key_separator": self.key_separator}


@dataclass(frozen=True)
class TaggedForm:
    """How a call of one tool is written whose arguments are tagged, each value for itself.

    Attributes:
        name: the tool's.
        before, after: the text around the arguments, markers included.
        lead, joint: white space before the first argument, and before each later one.
        middle: white space between a key and its value.
        schema: JSON schema of the arguments.  They are written in its order, and no others.
    """

    name: str
    before: str
    after: str
    lead: str
    joint: str
    middle: str
    schema: Json

    def grammar(self, rule: str) -> list[str]:
        """The lines that define ``rule``: all calls of the tool.

        Raises:
            CannotForceError: an argument's schema is beyond this grammar.
        """
        properties = dict(self.schema.get("properties", {}))
        needed = set(self.schema.get("required", ()))
        if not needed <= properties.keys() or (self.lead != self.joint and needed != properties.keys()):
            raise CannotForceError(
                f"the schema of tool {self.name!r} cannot be forced: arguments that may be left out, or that "
                f"have no schema: {sorted(needed ^ properties.keys())}",
                hint=HINT,
            )
        parts, lines = [json.dumps(self.before)], list[str]()
        for i, (key, schema) in enumerate(properties.items()):
            parts.append(f"{rule}_{i}" + ("" if key in needed else "?"))
            space = self.joint if i else self.lead
            tag = json.dumps(f"{space}{KEY[0]}{key}{KEY[1]}{self.middle}{VALUE[0]}")
            lines.append(f"{rule}_{i}: {tag} {rule}_{i}_value {json.dumps(VALUE[1])}")
            lines.append(f"{rule}_{i}_value: {self._value(key, schema)}")
        return [f"{rule}: {' '.join([*parts, json.dumps(self.after)])}", *lines]

    def _value(self, key: str, schema: Any) -> str:
        if meaning(schema) != "text":
            shared = {name: self.schema[name] for name in ("$defs", "definitions") if name in self.schema}
            return _json_rule({**shared, **schema} if isinstance(schema, Mapping) else schema, {})
        if "const" in schema or "enum" in schema:
            texts = [schema["const"]] if "const" in schema else schema["enum"]
            return " | ".join(json.dumps(text) for text in texts)
        asked = [name for name in _UNWRITTEN if name in schema]
        if asked:
            raise CannotForceError(
                f"the schema of tool {self.name!r} cannot be forced: {asked[0]} of the argument {key!r}",
                hint=HINT,
            )
        return f"/[^<]{{{schema.get('minLength', 0)},{schema.get('maxLength', '')}}}/"


CallForm = JsonForm | TaggedForm


def call_form(tool: Json, write: Callable[[ToolCall], str], style: CallStyle = "hermes") -> CallForm:
    """Find how calls of ``tool`` are written.

    Args:
        tool: in the OpenAI function format.
        write: a call as the chat template writes it, markers included.
        style: the dialect of calls.

    Raises:
        CannotForceError: its arguments are in none of the known ways.
    """
    name, schema = tool["function"]["name"], tool["function"].get("parameters") or {}
    text = write(ToolCall(name, PROBE))
    if style == "xml":
        tagged = _TAGGED.fullmatch(text)
        if tagged is not None:
            return TaggedForm(name, schema=schema, **tagged.groupdict())
    else:
        for separators in SEPARATORS:
            before, found, after = text.partition(json.dumps(PROBE, separators=separators))
            if found:
                return JsonForm(name, before, after, *separators, schema)
    raise CannotForceError(f"the chat template writes a call in an unknown way: {text!r}", hint=HINT)


def _json_rule(schema: Any, style: Json) -> str:
    """A JSON value of ``schema``; an object's is how it is written."""
    if isinstance(schema, Mapping):
        schema = {**schema, "x-guidance": {**style, "whitespace_flexible": False}}
    return f"%json {json.dumps(schema)}"
