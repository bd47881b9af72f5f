"""How servers read replies: the ``response_template`` that a saved tokenizer carries.

``tokenizer.parse_response`` and ``transformers serve`` follow it.  They raise where a region that they have
opened does not hold JSON, so here a call is opened only where all of it is readable; anything else, a call
that was cut at the token limit included, is text.  What a call means is `ninegrid.chat.parser`'s to say: this
pattern reads the same calls, apart from what it cannot tell (docs/how-it-works.md names them).
"""

from __future__ import annotations

import re

from ninegrid.chat.parser import CLOSE, MAX_DIGITS, OPEN
from ninegrid.tasks.protocol import Json

THINKING = ("<think>", "</think>")
"""Around what a reasoning model thinks, in every template that this project has met."""

_SPACE = r"[ \t\n\r]*+"
_STRING = rf'"(?:[^"\\<\x00-\x1f]++|<(?!{CLOSE[1:]})|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{{4}}))*+"'
_NUMBER = rf"-?+(?:0|[1-9][0-9]{{0,{MAX_DIGITS - 2}}}+)(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+"


def response_template(start: str, end: str, *, thinks: bool) -> Json:
    """The template for replies that begin after ``start`` and end with ``end``.

    Args:
        start: what the chat template writes before a reply.
        end: what ends a reply.
        thinks: the chat template knows `THINKING`.
    """
    thought = {"reasoning_content": {"open": THINKING[0], "close": THINKING[1], "content": "text"}}
    return {
        "version": 1,
        "defaults": {"role": "assistant"},
        "start_anchor": start,
        "fields": {
            **(thought if thinks else {}),
            "tool_calls": {
                "open_pattern": rf"{_json_grammar()}\s*{OPEN}(?={_SPACE}{_call()}{_SPACE}{CLOSE})",
                "close": CLOSE,
                "content": "json",
                "repeats": True,
                "transform": {"type": "function", "function": "{content}"},
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
