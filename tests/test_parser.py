"""The tool-call parser: what it accepts, what it names, and that nothing makes it raise."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninegrid.chat.dialect import CLOSE, OPEN
from ninegrid.chat.parser import MAX_READ, ParsedReply, argument_span, parse_reply
from ninegrid.chat.strict_json import MAX_DEPTH, MAX_DIGITS
from ninegrid.tasks.protocol import ToolCall

GOOD = '<tool_call>{"name":"choose_square","arguments":{"square":5}}</tool_call>'

names = st.text(st.characters(codec="utf-8"), max_size=12)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | names
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
arguments = st.dictionaries(names, values, max_size=4)
prose = st.text(max_size=30).filter(lambda text: "<" not in text and ">" not in text)
spaces = st.text(" \t\n\r", max_size=3)


@st.composite
def written(draw: st.DrawFn, value: Any) -> str:
    """JSON text of ``value``, with white space and escapes wherever JSON allows them."""
    if isinstance(value, dict):
        members = [f"{draw(written(k))}{draw(spaces)}:{draw(written(v))}" for k, v in value.items()]
        text = "{" + ",".join(members) + draw(spaces) + "}"
    elif isinstance(value, list):
        text = "[" + ",".join(draw(written(item)) for item in value) + draw(spaces) + "]"
    elif isinstance(value, str):
        text = json.dumps(value, ensure_ascii=draw(st.booleans()))
        if value.isascii() and value.isalnum() and draw(st.booleans()):
            text = '"' + "".join(f"\\u{ord(c):04x}" for c in value) + '"'
    else:
        text = json.dumps(value)
    return draw(spaces) + text + draw(spaces)


@st.composite
def replies(draw: st.DrawFn) -> tuple[str, str, dict[str, Any]]:
    """A reply with one well-formed call in prose: (text, the call's name, its arguments)."""
    name, args = draw(names), draw(arguments)
    call = {"name": name, "arguments": args} if draw(st.booleans()) else {"arguments": args, "name": name}
    return draw(prose) + OPEN + draw(written(call)) + CLOSE + draw(prose), name, args


def same_json(left: Any, right: Any) -> bool:
    """Equal also in type: 1, 1.0 and True are different things here."""
    return json.dumps(left) == json.dumps(right)


def test_reads_name_arguments_and_span() -> None:
    # "Take " is 5 characters; the call itself is 72 long.
    parsed = parse_reply(f"Take {GOOD} now")
    assert parsed == ParsedReply((ToolCall("choose_square", {"square": 5}, (5, 77)),), (), 1)


@given(replies())
def test_every_spelling_of_a_call_is_read_back(reply: tuple[str, str, dict[str, Any]]) -> None:
    text, name, args = reply
    parsed = parse_reply(text)
    assert parsed.blocks == 1
    assert parsed.malformed == ()
    (call,) = parsed.calls
    assert call.name == name
    assert same_json(call.arguments, args)
    start, end = call.span
    assert text[start:end].startswith(OPEN)
    assert text[start:end].endswith(CLOSE)
    assert OPEN not in text[:start] + text[end:]


@given(replies())
def test_argument_span_holds_exactly_the_value(reply: tuple[str, str, dict[str, Any]]) -> None:
    text, _, args = reply
    (call,) = parse_reply(text).calls
    for key, value in args.items():
        span = argument_span(text, call, key)
        assert span is not None
        inside = text[slice(*span)]
        assert same_json(json.loads(inside), value)
        assert inside == inside.strip(" \t\n\r")


def test_argument_span_by_hand() -> None:
    text = 'é <tool_call>\n{ "arguments" : {"a":"}", "squ\\u0061re" :  12 } , "name":"square"}</tool_call>'
    (call,) = parse_reply(text).calls
    span = argument_span(text, call, "square")
    assert span == (text.index("12"), text.index("12") + 2)
    assert argument_span(text, call, "a") == (text.index('"}"'), text.index('"}"') + 3)


def test_argument_span_refuses_what_it_cannot_point_at() -> None:
    (call,) = parse_reply(GOOD).calls
    assert argument_span(GOOD, call, "name") is None
    assert argument_span("x" + GOOD, call, "square") is None
    assert argument_span(GOOD.replace("5", "6"), call, "square") is None
    assert argument_span("", call, "square") is None
    assert argument_span(GOOD, ToolCall("choose_square", {"square": 5}, (-1, 3)), "square") is None


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "not JSON"),
        ("5", "not a JSON object"),
        ("[]", "not a JSON object"),
        ('["name","arguments"]', "not a JSON object"),
        ("{}", "keys"),
        ('{"name":"f"}', "keys"),
        ('{"arguments":{}}', "keys"),
        ('{"name":"f","arguments":{},"id":1}', "keys"),
        ('{"name":"f","parameters":{}}', "keys"),
        ('{"Name":"f","arguments":{}}', "keys"),
        ('{"name":null,"arguments":{}}', "name is not"),
        ('{"name":["f"],"arguments":{}}', "name is not"),
        ('{"name":"f","arguments":[]}', "arguments is not"),
        ('{"name":"f","arguments":null}', "arguments is not"),
        ('{"name":"f","arguments":"{}"}', "arguments is not"),
        ('{"name":"f","arguments":{"a":NaN}}', "NaN is not JSON"),
        ('{"name":"f","arguments":{"a":Infinity}}', "Infinity is not JSON"),
        ('{"name":"f","arguments":{"a":-Infinity}}', "-Infinity is not JSON"),
        ('{"name":"f","arguments":{"a":1e999}}', "float"),
        ('{"name":"f","arguments":{"a":' + "7" * 5000 + "}}", "digits"),
        ('{"name":"f","arguments":{"a":-' + "7" * 5000 + "}}", "digits"),
        ('{"name":"f","arguments":{"a":1' + "0" * 5000 + "e5000}}", "float"),
        ('{"name":"f","arguments":{"a":1,"a":1}}', "twice"),
        ('{"name":"f","arguments":{"a":{"b":1,"b":2}}}', "twice"),
        ('{"name":"f","name":"f","arguments":{}}', "twice"),
        ('{"name":"f","arguments":{"a":1,"\\u0061":1}}', "twice"),
        ('{"name":"f","arguments":{"a":"\\ud800"}}', "surrogate"),
        ('{"name":"f","arguments":{"\\udfff":1}}', "surrogate"),
        ('{"name":"f\ud800","arguments":{}}', "surrogate"),
        ('{"name":"f","arguments":{"a":05}}', "not JSON"),
        ('{"name":"f","arguments":{"a":+5}}', "not JSON"),
        ('{"name":"f","arguments":{"a":٥}}', "not JSON"),
        ('{"name":"f","arguments":{"a":1٥}}', "not"),
        ('{"name":"f","arguments":{"a":５}}', "not JSON"),
        ('{"name":"f","arguments":{"a":5.}}', "not JSON"),
        ('{"name":"f","arguments":{"a":0x5}}', "not JSON"),
        ('{"name":"f","arguments":{"a":True}}', "not JSON"),
        ("{'name':'f','arguments':{}}", "not JSON"),
        ('{name:"f",arguments:{}}', "not JSON"),
        ('{"name":"f","arguments":{}},', "no </tool_call>"),
        ('{"name":"f","arguments":{}}}', "no </tool_call>"),
        ('{"name":"f","arguments":{}} done', "no </tool_call>"),
        ('{"name":"f","arguments":{},}', "not JSON"),
        ('{"name":"f\n","arguments":{}}', "not JSON"),
        ('\u00a0{"name":"f","arguments":{}}', "not JSON"),
        ("f(square=5)", "not JSON"),
    ],
)
def test_malformed_bodies_are_named(body: str, reason: str) -> None:
    parsed = parse_reply(f"{OPEN}{body}{CLOSE}")
    assert parsed.calls == ()
    assert parsed.blocks == 1
    assert reason in parsed.malformed[0]


@pytest.mark.parametrize("length", range(len(OPEN), len(GOOD)))
def test_a_cut_call_is_malformed(length: int) -> None:
    parsed = parse_reply(GOOD[:length])
    assert (parsed.calls, len(parsed.malformed), parsed.blocks) == ((), 1, 1)


@pytest.mark.parametrize("length", range(len(OPEN)))
def test_a_cut_marker_is_no_call(length: int) -> None:
    assert parse_reply(GOOD[:length]) == ParsedReply()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I take square 5.",
        "1 2 3 4 5 6 7 8 9",
        '{"name":"choose_square","arguments":{"square":5}}',
        '{"name":"choose_square","arguments":{"square":5}}</tool_call>',
        GOOD.replace("tool_call", "TOOL_CALL"),
        GOOD.replace("tool_call", "tool call"),
        GOOD.replace("tool_call", "function_call"),
        GOOD.replace(OPEN, "< tool_call>"),
        "&lt;tool_call&gt;",
    ],
)
def test_without_the_marker_there_is_no_block(text: str) -> None:
    assert parse_reply(text) == ParsedReply()


@pytest.mark.parametrize(
    ("text", "calls", "malformed"),
    [
        (GOOD + GOOD, 2, 0),
        (GOOD + "\nor\n" + GOOD, 2, 0),
        (GOOD + OPEN, 1, 1),
        (OPEN + GOOD, 1, 1),
        (OPEN + GOOD + CLOSE, 1, 1),
        (OPEN + OPEN, 0, 2),
        (GOOD.replace(CLOSE, GOOD), 1, 1),
        (GOOD.replace('{"square":5}', GOOD), 1, 1),
        (f"{OPEN}[{GOOD},{GOOD}]{CLOSE}", 2, 1),
    ],
)
def test_several_and_nested_blocks_are_all_counted(text: str, calls: int, malformed: int) -> None:
    parsed = parse_reply(text)
    assert (len(parsed.calls), len(parsed.malformed), parsed.blocks) == (calls, malformed, calls + malformed)


def test_markers_inside_a_string_are_text() -> None:
    inner = {"say": f"{GOOD} {OPEN} {CLOSE}"}
    text = OPEN + json.dumps({"name": "f", "arguments": inner}) + CLOSE
    assert parse_reply(text) == ParsedReply((ToolCall("f", inner, (0, len(text))),), (), 1)


def test_the_limits_are_where_they_are_said_to_be() -> None:
    def call(value: str) -> str:
        return f'{OPEN}{{"name":"f","arguments":{{"a":{value}}}}}{CLOSE}'

    # The call's object is level 1, its arguments level 2, so MAX_DEPTH - 2 lists fit inside.
    fits, over = MAX_DEPTH - 2, MAX_DEPTH - 1
    assert len(parse_reply(call("[" * fits + "]" * fits)).calls) == 1
    assert "deeper" in parse_reply(call("[" * over + "]" * over)).malformed[0]
    assert len(parse_reply(call("7" * MAX_DIGITS)).calls) == 1
    assert "digits" in parse_reply(call("7" * (MAX_DIGITS + 1))).malformed[0]
    many = parse_reply(GOOD * (MAX_READ + 3))
    assert (len(many.calls), many.blocks) == (MAX_READ, MAX_READ + 3)


MILLION = 1_000_000
HEAD = '{"name":"f","arguments":{"a":'


# Each of these takes a quadratic parser, or one that recurses, hours or its stack.
@pytest.mark.parametrize(
    ("text", "calls", "blocks"),
    [
        (OPEN * MILLION, 0, MILLION),
        (CLOSE * MILLION, 0, 0),
        ((OPEN + "{") * MILLION, 0, MILLION),
        ((OPEN + '{"') * MILLION, 0, MILLION),
        ((OPEN + '{"a":"') * MILLION, 0, MILLION),
        ((OPEN + '["",') * MILLION, 0, MILLION),
        ((OPEN + "\n") * MILLION, 0, MILLION),
        (GOOD * 100_000, MAX_READ, 100_000),
        ("<" * MILLION, 0, 0),
        (OPEN + " " * MILLION, 0, 1),
        (OPEN + "[" * MILLION, 0, 1),
        (OPEN + '{"a":' * MILLION, 0, 1),
        (OPEN + "[" * MILLION + "]" * MILLION + CLOSE, 0, 1),
        (OPEN + HEAD + "1" * MILLION + "}}" + CLOSE, 0, 1),
        (OPEN + HEAD + "0." + "1" * MILLION + "}}" + CLOSE, 1, 1),
        (OPEN + HEAD + '"' + "x" * MILLION + '"}}' + CLOSE, 1, 1),
        (OPEN + HEAD + '"' + "\\u00e9" * MILLION, 0, 1),
        (OPEN + HEAD + "[" + "1," * MILLION + "1]}}" + CLOSE, 1, 1),
        (OPEN + HEAD + '"\ud800' + OPEN * MILLION, 0, MILLION + 1),
    ],
    ids=lambda value: str(value)[:24],
)
def test_huge_replies(text: str, calls: int, blocks: int) -> None:
    parsed = parse_reply(text)
    assert (len(parsed.calls), parsed.blocks) == (calls, blocks)


def check_any(text: str) -> None:
    parsed = parse_reply(text)
    read = len(parsed.calls) + len(parsed.malformed)
    assert read == min(parsed.blocks, MAX_READ)
    assert (parsed.blocks == 0) == (OPEN not in text)
    assert parsed.blocks <= text.count(OPEN)
    ends = [0, *(end for call in parsed.calls for end in call.span), len(text)]
    assert ends == sorted(ends)
    for call in parsed.calls:
        json.dumps(call.arguments, ensure_ascii=False).encode()
        for key, value in call.arguments.items():
            span = argument_span(text, call, key)
            assert span is not None
            assert same_json(json.loads(text[slice(*span)]), value)


@given(st.text())
def test_any_text_is_parsed(text: str) -> None:
    check_any(text)


FRAGMENTS = [
    *(
        OPEN,
        CLOSE,
        GOOD,
        "{",
        "}",
        "[",
        "]",
        '"',
        ":",
        ",",
        "\\",
        "\\u0061",
        "\ud83d",
        "\udc4d",
        "é",
        " ",
        "\n",
    ),
    *('"name"', '"arguments"', '{"name":"f","arguments":', "{}", "5", "0", "10", "5.0", "-", "1e9", "true"),
    *("null", "NaN", "Infinity", "9" * 400, "<tool_call", "tool_call>", "1 2 3 4 5 6 7 8 9", "choose_square"),
]


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join))
def test_any_mixture_of_fragments_is_parsed(text: str) -> None:
    check_any(text)


@given(replies(), st.data())
def test_any_damage_to_a_call_is_parsed(reply: tuple[str, str, dict[str, Any]], data: st.DataObject) -> None:
    text = reply[0]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    check_any(text[:start] + data.draw(st.sampled_from(["", *FRAGMENTS])) + text[end:])
