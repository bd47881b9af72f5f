"""How servers read replies: the ``response_template`` that a saved tokenizer carries.

``tokenizer.parse_response`` and ``transformers serve`` follow it.  They raise where a region that they have
opened does not hold JSON, so here a call is opened only where all of it is readable; anything else, a call
that was cut at the token limit included, is text.  What a call means is `ninegrid.chat.parser`'s to say: this
pattern reads the same calls, apart from what it cannot tell (docs/how-it-works.md names them).
"""

from __future__ import annotations

import re

from ninegrid.chat.dialect import CLOSE, OPEN, THINKING, CallStyle
from ninegrid.chat.strict_json import MAX_DIGITS
from ninegrid.chat.xml_calls import KEY, NAME_CHARACTER, VALUE
from ninegrid.tasks.protocol import Json

_SPACE = r"[ \t\n\r]*+"
_STRING = rf'"(?:[^"\\<\x00-\x1f]++|<(?!{CLOSE[1:]})|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{{4}}))*+"'
_NUMBER = rf"-?+(?:0|[1-9][0-9]{{0,{MAX_DIGITS - 2}}}+)(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+"


def response_template(start: str, end: str, calls: CallStyle = "hermes") -> Json:
    """The template for replies that begin after ``start`` and end with ``end``.

    Args:
        start: what the chat template writes before a reply and its thought.
        end: what ends a reply.
        calls: the dialect of its calls.
    """
    return {
        "version": 1,
        "defaults": {"role": "assistant"},
        "start_anchor": start,
        "fields": {
            "reasoning_content": {
                "open": THINKING[0],
                # What ends a reply ends its thought too, without being a part of it.
                "close_pattern": rf"{THINKING[1]}|(?={re.escape(end)})",
                "content": "text",
                "repeats": True,
                "join": "\n",
            },
            "tool_calls": {
                **(_xml_calls() if calls == "xml" else _json_calls()),
                "close": CLOSE,
                "repeats": True,
            },
            # Text may stand on both sides of a call; without `repeats` the last piece alone would be kept.
            "content": {
                "close_pattern": rf"\s*{re.escape(end)}",
                "content": "text",
                "repeats": True,
                "join": "\n",
            },
        },
    }


def _json_calls() -> Json:
    return {
        "open_pattern": rf"{_json_grammar()}\s*{OPEN}(?={_SPACE}{_call()}{_SPACE}{CLOSE})",
        "content": "json",
        "transform": {"type": "function", "function": "{content}"},
    }


def _xml_calls() -> Json:
    """The values stay texts here: the server casts them by the schemas of the tools that it is given."""
    value = rf"(?:[^<]++|<(?!{VALUE[1][1:]}|{CLOSE[1:]}))*+"
    pair = rf"{KEY[0]}[^<>]++{KEY[1]}{_SPACE}{VALUE[0]}{value}{VALUE[1]}{_SPACE}"
    name = rf"(?P<name>{NAME_CHARACTER}++)"
    tags = rf"{KEY[0]}(?P<key>[^<>]+){KEY[1]}[ \t\n\r]*{VALUE[0]}(?P<value>.*?){VALUE[1]}"
    return {
        "open_pattern": rf"\s*{OPEN}{_SPACE}{name}(?={_SPACE}(?:{pair})*+{CLOSE})",
        "content": "xml-inline",
        "content_args": {"tag_pattern": tags},
        "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
    }


def _call() -> str:
    """An object of exactly a name and arguments, in either order."""
    name = rf'"name"{_SPACE}:{_SPACE}(?&string)'
    arguments = rf'"arguments"{_SPACE}:{_SPACE}(?&object)'
    comma = rf"{_SPACE},{_SPACE}"
    return rf"\{{{_SPACE}(?:{name}{comma}{arguments}|{arguments}{comma}{name}){_SPACE}\}}"


def _json_grammar() -> str:
    """JSON as named patterns of the ``regex`` library, to be referred to; it matches nothing by itself.

    Possessive throughout: a reply that is no call is found out in time linear in it.
    """
    member = rf"(?&string){_SPACE}:{_SPACE}(?&value){_SPACE}"
    array = _listed(r"\[", rf"(?&value){_SPACE}", r"\]")
    value = rf"(?&string)|{_NUMBER}|true|false|null|(?&object)|{array}"
    parts = {"string": _STRING, "value": value, "object": _listed(r"\{", member, r"\}")}
    return "(?(DEFINE)" + "".join(f"(?P<{name}>{part})" for name, part in parts.items()) + ")"


def _listed(before: str, item: str, after: str) -> str:
    return rf"{before}{_SPACE}(?:{item}(?:,{_SPACE}{item})*+)?+{after}"
