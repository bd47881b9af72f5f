"""Calls with tagged arguments: what is read, how values get their types, and that nothing makes it raise."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninegrid.chat.dialect import CLOSE, OPEN, Dialect
from ninegrid.chat.judging import judge_reply
from ninegrid.chat.parser import MAX_READ, ParsedReply, argument_span, parse_reply
from ninegrid.chat.strict_json import MAX_DEPTH
from ninegrid.chat.xml_calls import meaning
from ninegrid.tasks.protocol import ToolCall
from tests.small_tasks import Parrot, function

XML = Dialect("xml")
TOOLS = [
    function(
        "f",
        {
            "text": {"type": "string"},
            "whole": {"type": "integer"},
            "number": {"type": "number"},
            "flag": {"type": "boolean"},
            "list": {"type": "array"},
            "tree": {"type": "object"},
            "nothing": {"type": "null"},
            "choice": {"enum": ["a", "5"]},
            "mixed": {"type": ["string", "integer"]},
            "open": {},
        },
    )
]
GOOD = "<tool_call>f\n<arg_key>whole</arg_key>\n<arg_value>5</arg_value>\n</tool_call>"


def tagged(key: str, value: str) -> str:
    return f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>"


def call(*pairs: tuple[str, str], name: str = "f") -> str:
    return OPEN + name + "".join(tagged(*pair) for pair in pairs) + CLOSE


def read(text: str) -> ParsedReply:
    return parse_reply(text, XML, TOOLS)


def same_json(left: Any, right: Any) -> bool:
    """Equal also in type: 1, 1.0 and True are different things here."""
    return json.dumps(left) == json.dumps(right)


def test_reads_name_arguments_and_span() -> None:
    # "Take " is 5 characters.  The call: <tool_call> 11, f and a line break 2, <arg_key>whole</arg_key> 24
    # and a line break 1, <arg_value>5</arg_value> 24 and a line break 1, </tool_call> 12: 75.
    assert read(f"Take {GOOD} now") == ParsedReply((ToolCall("f", {"whole": 5}, (5, 80)),), (), 1)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("text", "oak", "oak"),
        ("text", "5", "5"),
        ("text", ' "5"\n', ' "5"\n'),
        ("text", "", ""),
        ("text", "a < b </arg_key> <think> </tool_call>", "a < b </arg_key> <think> </tool_call>"),
        ("whole", "5", 5),
        ("whole", " 5\n", 5),
        ("whole", '"5"', "5"),
        ("whole", "5.0", 5.0),
        ("whole", "true", True),
        ("number", "-1e3", -1000.0),
        ("flag", "false", False),
        ("list", '[1, "a"]', [1, "a"]),
        ("tree", '{"a": {"b": null}}', {"a": {"b": None}}),
        ("nothing", "null", None),
        ("choice", "5", "5"),
        ("mixed", "5", 5),
        ("mixed", "five", "five"),
        ("open", "5", 5),
        ("open", "{five", "{five"),
        ("unknown", "5", 5),
        ("unknown", "five", "five"),
    ],
)
def test_the_schema_says_what_a_text_stands_for(key: str, text: str, value: Any) -> None:
    reply = call((key, text))
    (found,) = read(reply).calls
    assert same_json(found.arguments, {key: value})
    span = argument_span(reply, found, key, XML, TOOLS)
    assert span is not None
    inside = reply[slice(*span)]
    assert inside == (text if isinstance(value, str) else text.strip())


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, "text"),
        ({"type": "string", "enum": ["a"]}, "text"),
        ({"const": "a"}, "text"),
        ({"type": "integer"}, "json"),
        ({"type": ["integer", "null"]}, "json"),
        ({"enum": [1, 2]}, "json"),
        ({"const": None}, "json"),
        ({"enum": [1, "a"]}, "either"),
        ({"type": ["string", "null"]}, "either"),
        ({"anyOf": [{"type": "integer"}]}, "either"),
        (True, "either"),
        (None, "either"),
    ],
)
def test_meaning(schema: Any, expected: str) -> None:
    assert meaning(schema) == expected


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "no name"),
        (" \n ", "no name"),
        (tagged("whole", "5"), "no name"),
        ('{"name":"f","arguments":{}}', "no name"),
        ("f g", "after the name"),
        ("f(whole=5)", "after the name"),
        ("f" + tagged("whole", "5") + "x", "after the name"),
        ("f<arg_key>whole</arg_key>", "after the name"),
        ("f<arg_value>5</arg_value>", "after the name"),
        ("f<arg_key></arg_key><arg_value>5</arg_value>", "after the name"),
        ("f<arg_key>whole</arg_key>:<arg_value>5</arg_value>", "after the name"),
        ("f<arg_key>whole</arg_key><arg_value>5", "no </arg_value>"),
        ("f" + tagged("text", "a") * 2, "appears twice"),
        ("f" + tagged("whole", "five"), "'whole' is not JSON"),
        ("f" + tagged("whole", ""), "'whole' is not JSON"),
        ("f" + tagged("whole", "5 6"), "text after the JSON value"),
        ("f" + tagged("whole", "05"), "text after the JSON value"),
        ("f" + tagged("number", "NaN"), "NaN is not JSON"),
        ("f" + tagged("list", "[" * 100_000), "deeper"),
        ("f" + tagged("text", "\ud800"), "surrogate"),
        ("f\ud800", "surrogate"),
        ("f" + tagged("tree", '{"a":1,"a":2}'), "twice"),
    ],
)
def test_malformed_bodies_are_named(body: str, reason: str) -> None:
    parsed = read(OPEN + body + CLOSE)
    assert (parsed.calls, parsed.blocks) == ((), 1)
    assert reason in parsed.malformed[0]


@pytest.mark.parametrize("length", range(len(OPEN), len(GOOD)))
def test_a_cut_call_is_malformed(length: int) -> None:
    parsed = read(GOOD[:length])
    assert (parsed.calls, len(parsed.malformed), parsed.blocks) == ((), 1, 1)


def test_a_call_of_the_other_dialect_is_malformed() -> None:
    assert parse_reply(GOOD).calls == ()
    assert read('<tool_call>{"name":"f","arguments":{"whole":5}}</tool_call>').calls == ()


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (call(("word", "oak"), name="say"), "hit"),
        (call(("word", '"oak"'), name="say"), "miss"),
        (call(name="say"), "invalid_arguments"),
        (call(("word", "oak"), ("loud", "1"), name="say"), "invalid_arguments"),
        (call(("times", "5"), name="count"), "miss"),
        (call(("times", '"5"'), name="count"), "invalid_arguments"),
        (call(("times", "5.0"), name="count"), "invalid_arguments"),
        (call(("times", "10"), name="count"), "invalid_arguments"),
        (call(("times", "five"), name="count"), "invalid_arguments"),
        (call(("word", "oak"), name="sing"), "wrong_tool"),
        (call(("word", "oak"), name="say") * 2, "multiple_calls"),
        ("oak", "no_tool_call"),
    ],
)
def test_is_judged_as_strictly_as_json(reply: str, outcome: str) -> None:
    task = Parrot()
    assert judge_reply(task, task.parse({"word": "oak"}), reply, XML).outcome == outcome


words = st.text(st.characters(codec="utf-8", exclude_characters="<"), max_size=12)
keys = st.text(st.characters(codec="utf-8", exclude_characters="<>"), min_size=1, max_size=8)
spaces = st.text(" \t\n\r", max_size=3)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner | words, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def replies(draw: st.DrawFn) -> tuple[str, dict[str, Any], list[Any]]:
    """A reply with one well-formed call of ``f``: (text, its arguments, a schema for them)."""
    arguments = draw(st.dictionaries(keys, words | json_values, max_size=4))
    pairs, properties = "", {}
    for key, value in arguments.items():
        properties[key] = {"type": "string"} if isinstance(value, str) else {"type": ["integer", "array"]}
        text = value if isinstance(value, str) else draw(spaces) + json.dumps(value) + draw(spaces)
        pairs += f"<arg_key>{key}</arg_key>{draw(spaces)}<arg_value>{text}</arg_value>{draw(spaces)}"
    prose = st.text(st.characters(exclude_characters="<"), max_size=12)
    body = draw(spaces) + "f" + draw(spaces) + pairs
    return draw(prose) + OPEN + body + CLOSE + draw(prose), arguments, [function("f", properties)]


@given(replies())
def test_every_spelling_of_a_call_is_read_back(reply: tuple[str, dict[str, Any], list[Any]]) -> None:
    text, arguments, tools = reply
    parsed = parse_reply(text, XML, tools)
    assert (parsed.blocks, parsed.malformed) == (1, ())
    assert same_json(dict(parsed.calls[0].arguments), arguments)
    for key, value in arguments.items():
        span = argument_span(text, parsed.calls[0], key, XML, tools)
        assert span is not None
        inside = text[slice(*span)]
        assert inside == value if isinstance(value, str) else same_json(json.loads(inside), value)


def check_any(text: str, dialect: Dialect = XML) -> None:
    parsed = parse_reply(text, dialect, TOOLS)
    assert len(parsed.calls) + len(parsed.malformed) == min(parsed.blocks, MAX_READ)
    spans = sorted([*parsed.thoughts, *(found.span for found in parsed.calls)])
    edges = [0, *(edge for span in spans for edge in span), len(text)]
    assert edges == sorted(edges)
    for found in parsed.calls:
        json.dumps(found.arguments, ensure_ascii=False).encode()
        for key in found.arguments:
            assert argument_span(text, found, key, dialect, TOOLS) is not None


FRAGMENTS = [
    OPEN,
    CLOSE,
    GOOD,
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "f",
    "whole",
    "text",
]
FRAGMENTS += [
    "<think>",
    "</think>",
    "5",
    "[",
    "]",
    '"',
    "\ud83d",
    "é",
    " ",
    "\n",
    "<",
    ">",
    "{",
    tagged("a", "b"),
]
mixtures = st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join)


@given(st.text() | mixtures, st.booleans())
def test_any_text_is_parsed(text: str, in_thought: bool) -> None:
    check_any(text, Dialect("xml", in_thought))
    check_any(text, Dialect("hermes", in_thought))


@given(replies(), st.data())
def test_any_damage_to_a_call_is_parsed(reply: tuple[str, Any, Any], data: st.DataObject) -> None:
    text = reply[0]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    check_any(text[:start] + data.draw(st.sampled_from(["", *FRAGMENTS])) + text[end:])


MILLION = 1_000_000


# Each of these takes a quadratic parser, or one that recurses, hours or its stack.
@pytest.mark.parametrize(
    ("text", "calls", "blocks"),
    [
        (OPEN * MILLION, 0, MILLION),
        ((OPEN + "f") * MILLION, 0, MILLION),
        ((OPEN + "f<arg_key>whole</arg_key><arg_value>") * 100_000, 0, 100_000),
        (OPEN + "f" * MILLION, 0, 1),
        (OPEN + "f" + " " * MILLION, 0, 1),
        (OPEN + "f<arg_key>" + "x" * MILLION, 0, 1),
        (OPEN + "f" + "<arg_key>a</arg_key>" * MILLION, 0, 1),
        (OPEN + "f" + "".join(tagged(str(i), "1") for i in range(100_000)) + CLOSE, 1, 1),
        (call(("text", "<" * MILLION)), 1, 1),
        (call(("tree", "[" * MILLION + "]" * MILLION)), 0, 1),
        (call(("list", "[" * (MAX_DEPTH - 2) + "]" * (MAX_DEPTH - 2))), 1, 1),
        (GOOD * 100_000, MAX_READ, 100_000),
        ("<think>" * MILLION, 0, 0),
        ("<think></think>" * 100_000 + GOOD, 1, 1),
        (("<think>" + GOOD + "</think>") * 100_000, 0, 0),
        (GOOD * 20 + ("<think>" + GOOD + "</think>" + GOOD) * 10_000, MAX_READ, 10_020),
    ],
    ids=lambda value: str(value)[:24],
)
def test_huge_replies(text: str, calls: int, blocks: int) -> None:
    parsed = read(text)
    assert (len(parsed.calls), parsed.blocks) == (calls, blocks)
