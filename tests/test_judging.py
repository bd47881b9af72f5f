"""From reply to outcome: what the schema decides, what the task decides, and that replies never raise."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from referencing.exceptions import Unresolvable

from ninegrid.chat.judging import WHY_LENGTH, judge_reply, validators
from ninegrid.errors import NinegridError
from ninegrid.tasks.protocol import CallOutcome, Example, Judgement, ToolCall
from tests.small_tasks import Parrot, function

CALL_OUTCOMES = {str(outcome) for outcome in CallOutcome}
# X completes the first row on 3; 4 and 5 are O's.
BOARD = {"id": "b", "board": [["X", "X", "."], ["O", "O", "."], [".", ".", "."]]}


def called(name: str, arguments: str) -> str:
    return f'<tool_call>{{"name":"{name}","arguments":{arguments}}}</tool_call>'


def square(literal: str) -> str:
    return called("choose_square", f'{{"square":{literal}}}')


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        ("", "no_tool_call"),
        ("3", "no_tool_call"),
        ("Squares 1 2 3 4 5 6 7 8 9: I choose 3.", "no_tool_call"),
        ('{"name":"choose_square","arguments":{"square":3}}', "no_tool_call"),
        (square("3") + square("3"), "multiple_calls"),
        (square("3") + "<tool_call>", "multiple_calls"),
        ("<tool_call>" + square("3"), "multiple_calls"),
        (square(square("3")), "multiple_calls"),
        (called("place", '{"square":3}') + square("3"), "multiple_calls"),
        (called("place", '{"square":3}'), "wrong_tool"),
        (called("Choose_square", '{"square":3}'), "wrong_tool"),
        (called("choose_square ", '{"square":3}'), "wrong_tool"),
        (called("", "{}"), "wrong_tool"),
        (square("3")[:-1], "invalid_arguments"),
        (called("choose_square", "{}"), "invalid_arguments"),
        (called("choose_square", "3"), "invalid_arguments"),
        (called("choose_square", '"{}"'), "invalid_arguments"),
        (called("choose_square", '{"square":3,"why":"wins"}'), "invalid_arguments"),
        (called("choose_square", '{"Square":3}'), "invalid_arguments"),
        *((square(bad), "invalid_arguments") for bad in ("0", "10", "-3", "5.0", "3.0", "3e0", "3.5", "1e1")),
        *((square(bad), "invalid_arguments") for bad in ("true", "null", '"3"', "[3]", "{}", '"\u0663"')),
        *((square(bad), "invalid_arguments") for bad in ("\u0663", "\uff13", "03", "NaN", "9" * 5000)),
        (square("3"), "win"),
        ("I take the third. " + square(" 3 ") + "\nDone.", "win"),
        (square("4"), "occupied"),
        (square("1"), "occupied"),
        (square("6"), "legal"),
        (square("7"), "legal"),
    ],
)
def test_tictactoe_outcomes(tictactoe: Any, reply: str, outcome: str) -> None:
    judgement = judge_reply(tictactoe, tictactoe.parse(BOARD), reply)
    assert judgement.outcome == outcome
    assert ("why" in judgement.facts) == (outcome in CALL_OUTCOMES)


@pytest.mark.parametrize(
    ("reply", "outcome", "call"),
    [
        (called("say", '{"word":"oak"}'), "hit", ToolCall("say", {"word": "oak"})),
        (called("say", '{"word":"elm"}'), "miss", ToolCall("say", {"word": "elm"})),
        (called("count", '{"times":9}'), "miss", ToolCall("count", {"times": 9})),
        (called("count", '{"word":"oak"}'), "invalid_arguments", ToolCall("count", {"word": "oak"})),
        (called("sing", "{}"), "wrong_tool", ToolCall("sing", {})),
        (called("say", '{"word":oak}'), "invalid_arguments", None),
        (called("say", '{"word":"oak"}') * 2, "multiple_calls", None),
        ("oak", "no_tool_call", None),
    ],
)
def test_the_call_is_kept_where_there_is_one(reply: str, outcome: str, call: ToolCall | None) -> None:
    task = Parrot()
    judgement = judge_reply(task, task.parse({"word": "oak"}), reply)
    whole = None if call is None else replace(call, span=(0, len(reply)))
    assert (judgement.outcome, judgement.call) == (outcome, whole)


def test_why_names_the_fault_and_stays_short() -> None:
    task = Parrot()
    example = task.parse({"word": "oak"})

    def why(reply: str) -> str:
        return str(judge_reply(task, example, reply).facts["why"])

    assert why(called("count", '{"times":true}')) == "$.times: True is not of type 'integer'"
    assert why(called("count", '{"times":0}')) == "$.times: 0 is less than the minimum of 1"
    assert why(called("sing", "{}")) == "no tool 'sing' was offered"
    assert why("<tool_call>" * 3) == "3 tool calls opened, one asked for"
    assert "NaN" in why(called("count", '{"times":NaN}'))
    assert len(why(called("count", '{"times":"' + "x" * 1_000_000 + '"}'))) == WHY_LENGTH
    assert len(why(called("x" * 1_000_000, "{}"))) == WHY_LENGTH


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-20, 20)
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(json_values)
def test_only_whole_numbers_from_1_to_9_are_squares(tictactoe: Any, value: Any) -> None:
    judgement = judge_reply(tictactoe, tictactoe.parse(BOARD), square(json.dumps(value)))
    valid = type(value) is int and 1 <= value <= 9
    assert (judgement.outcome not in CALL_OUTCOMES) == valid
    assert valid or judgement.outcome == "invalid_arguments"


@given(
    st.text(max_size=40),
    st.text(max_size=40),
    st.sampled_from(["", "3", "0", "true", '"3"', "}", "<tool_call>"]),
)
def test_no_reply_raises(tictactoe: Any, before: str, after: str, value: str) -> None:
    for reply in (
        before + after,
        before + square(value) + after,
        square(value + before),
        before + square(after),
    ):
        judgement = judge_reply(tictactoe, tictactoe.parse(BOARD), reply)
        assert judgement.outcome in tictactoe.outcomes
        json.dumps({"call": judgement.call and judgement.call.arguments, **judgement.facts}).encode()


@pytest.mark.parametrize(
    "reply",
    [
        "<tool_call>" * 1_000_000,
        square("[" * 100_000),
        square('"' + "3" * 1_000_000 + '"'),
        square('"\ud800"'),
        "\ud800",
    ],
    ids=["markers", "nesting", "string", "escaped surrogate", "surrogate"],
)
def test_monstrous_replies_are_judged(tictactoe: Any, reply: str) -> None:
    assert judge_reply(tictactoe, tictactoe.parse(BOARD), reply).outcome in CALL_OUTCOMES


def test_arguments_of_a_recursive_schema_are_judged_however_deep() -> None:
    task = Parrot()
    tree = {"type": "array", "items": {"$ref": "#/$defs/tree"}}
    task.tools = [function("say", {"word": tree}, **{"$defs": {"tree": tree}})]
    example = task.parse({"word": "oak"})
    for depth, outcome in ((1, "miss"), (30, "miss"), (31, "invalid_arguments"), (1000, "invalid_arguments")):
        reply = called("say", '{"word":' + "[" * depth + "]" * depth + "}")
        assert judge_reply(task, example, reply).outcome == outcome


class Buggy(Parrot):
    """A task whose judge fails in one way or another."""

    def judge(self, example: Example, call: ToolCall) -> Judgement:
        return Judgement({"a": "splendid"}[call.arguments["word"]])


def test_a_bug_in_the_tasks_judge_is_not_an_outcome() -> None:
    task = Buggy()
    example = task.parse({"word": "oak"})
    with pytest.raises(KeyError, match="oak"):
        judge_reply(task, example, called("say", '{"word":"oak"}'))
    with pytest.raises(ValueError, match=r"parrot judged 'splendid'.*not among its outcomes"):
        judge_reply(task, example, called("say", '{"word":"a"}'))


def test_schemas_are_compiled_once_and_again_when_they_change() -> None:
    task = Parrot()
    assert validators(task) is validators(Parrot())
    example = task.parse({"word": "oak"})
    reply = called("count", '{"times":9}')
    assert judge_reply(task, example, reply).outcome == "miss"
    task.tools = [function("count", {"times": {"type": "integer", "maximum": 8}})]
    assert judge_reply(task, example, reply).outcome == "invalid_arguments"


def test_a_tool_without_parameters_takes_any_object() -> None:
    task = Parrot()
    task.tools = [{"type": "function", "function": {"name": "say"}}]
    example = task.parse({"word": "oak"})
    assert judge_reply(task, example, called("say", '{"word":"oak","loud":true}')).outcome == "hit"


def test_a_schema_that_is_none_is_the_tasks_fault() -> None:
    task = Parrot()
    task.tools = [function("say", {"word": {"type": "word"}})]
    with pytest.raises(NinegridError, match=r"tool 'say'.*properties\.word.*'word' is not valid"):
        judge_reply(task, task.parse({"word": "oak"}), called("say", '{"word":"oak"}'))


def test_a_schema_elsewhere_is_never_fetched(tmp_path: Path) -> None:
    elsewhere = tmp_path / "word.json"
    elsewhere.write_text('{"type": "string"}')
    task = Parrot()
    task.tools = [function("say", {"word": {"$ref": elsewhere.as_uri()}})]
    with pytest.raises(Unresolvable):
        judge_reply(task, task.parse({"word": "oak"}), called("say", '{"word":"oak"}'))
