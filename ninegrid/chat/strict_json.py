"""JSON as tool calls may hold it: strictly, without what other readers would have to guess at.

No key twice, no NaN, no number that a float cannot hold, no half of a surrogate pair, no deep nesting.
Not here: what a call is (`ninegrid.chat.hermes_calls`, `ninegrid.chat.xml_calls`).
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

MAX_DEPTH = 32
"""Deepest nesting of a call.  Whoever walks, compares or writes the arguments recurses this far at most."""
MAX_DIGITS = 300
"""Longest whole number.  It still converts to a float, which JSON-schema checks may do."""

_SPACE = re.compile(r"[ \t\n\r]*")


class CallError(ValueError):
    """A block that is JSON, or nearly, but no call."""


def read_value(text: str) -> Any:
    """The JSON value that is all of ``text``, white space around it apart.

    Raises:
        ValueError, RecursionError: it is no such value; see `reason`.
    """
    value, end = DECODER.raw_decode(text, skip_space(text, 0))
    if skip_space(text, end) != len(text):
        raise CallError("text after the JSON value")
    return value


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
            raise CallError(f"nested deeper than {deepest} levels")
        if isinstance(value, dict):
            for key in value:
                _check_text(key)
        children = value.values() if isinstance(value, dict) else value
        pending.extend((child, depth + 1) for child in children)


def skip_space(text: str, position: int) -> int:
    """Where JSON's white space at ``position`` ends."""
    match = _SPACE.match(text, position)
    assert match is not None  # the pattern matches the empty string
    return match.end()


def reason(error: ValueError | RecursionError) -> str:
    """What is wrong with a block, in a few words."""
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON at character {error.pos}: {error.msg}"
    if isinstance(error, RecursionError):
        return f"nested deeper than {MAX_DEPTH} levels"
    return str(error)


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CallError("a string holds a lone surrogate") from error


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise CallError("a key appears twice in one object")
    return members


def _whole_number(digits: str) -> int:
    # The interpreter's own JSON scanner takes other scripts' digits where its C version is absent.
    if len(digits) > MAX_DIGITS or not digits.isascii():
        raise CallError(f"not a whole number of at most {MAX_DIGITS} ASCII digits")
    return int(digits)


def _real_number(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number) or not digits.isascii():
        raise CallError("a number that a float cannot hold")
    return number


def _no_constant(literal: str) -> Any:
    raise CallError(f"{literal} is not JSON")


DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_keys,
    parse_int=_whole_number,
    parse_float=_real_number,
    parse_constant=_no_constant,
)
