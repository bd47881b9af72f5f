"""The forced call: the template's way of writing, the schema's values, the tokenizer's tokens."""

import json

import numpy as np
import pytest
from transformers import AutoTokenizer

from ninegrid.chat.forced import ForcedCall
from ninegrid.chat.format import ChatFormat, ChatSettings
from ninegrid.chat.forms import PROBE, call_form
from ninegrid.chat.judging import judge_reply
from ninegrid.chat.parser import parse_reply
from ninegrid.errors import CannotForceError
from ninegrid.tasks.protocol import ToolCall
from tests.small_tasks import Parrot, function

CALL = '<tool_call>{"name":"choose_square","arguments":{"square":5}}</tool_call>'


def spaced(call):
    """As many models' own templates write a call."""
    return f"<tool_call>\n{json.dumps({'name': call.name, 'arguments': call.arguments})}\n</tool_call>"


def encode(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def walk(forced, stop_ids, seed, limit=200):
    """Token ids drawn evenly among the allowed ones, up to a stop token."""
    rng, ids = np.random.default_rng(seed), []
    while len(ids) < limit:
        ids.append(int(rng.choice(np.flatnonzero(forced.allowed(ids)))))
        if ids[-1] in stop_ids:
            return ids
    return ids


@pytest.fixture(scope="module")
def chat(tokenizer, tictactoe):
    return ChatFormat(tokenizer, ChatSettings(), tictactoe)


@pytest.fixture(scope="module")
def forced(chat):
    return chat.forced_call()


def test_nothing_is_open_but_the_square(chat, forced, tokenizer):
    ids = encode(tokenizer, CALL)
    open_at = []
    for position, token in enumerate(ids):
        allowed = np.flatnonzero(forced.allowed(ids[:position])).tolist()
        assert token in allowed
        if len(allowed) > 1:
            open_at.append((position, sorted(tokenizer.convert_ids_to_tokens(allowed))))
    assert open_at == [(ids.index(encode(tokenizer, "5")[0]), list("123456789"))]
    assert set(np.flatnonzero(forced.allowed(ids)).tolist()) == chat.stop_ids


def test_every_reply_is_a_valid_call_and_taken_squares_stay_possible(chat, forced, tictactoe):
    example = tictactoe.parse({"id": "b", "board": [["X", "X", "."], ["O", "O", "."], [".", ".", "."]]})
    replies = [chat.decode(walk(forced, chat.stop_ids, seed)) for seed in range(40)]
    outcomes = {judge_reply(tictactoe, example, reply).outcome for reply in replies}
    assert outcomes == {"occupied", "legal", "win"} | outcomes & {"optimal"}


def test_what_is_no_beginning_of_a_call_is_refused(forced, tokenizer):
    with pytest.raises(ValueError, match="no beginning of a call"):
        forced.allowed(encode(tokenizer, "I choose"))


def test_every_tool_can_be_called_within_its_own_schema(tokenizer):
    task = Parrot()
    task.tools = [
        function("say", {"word": {"type": "string", "enum": ["oak", "élan"]}}),
        function("count", {"times": {"type": "integer", "minimum": 1, "maximum": 9}}),
    ]
    chat = ChatFormat(tokenizer, ChatSettings(), task)
    forced = chat.forced_call()
    made = set()
    for seed in range(40):
        (call,) = parse_reply(chat.decode(walk(forced, chat.stop_ids, seed))).calls
        made.add((call.name, *call.arguments.values()))
    assert made >= {("say", "oak"), ("say", "élan")}
    assert made <= {("say", "oak"), ("say", "élan"), *(("count", n) for n in range(1, 10))}
    assert len({name for name, _ in made}) == 2


def test_a_tool_without_a_schema_takes_any_object(tokenizer):
    task = Parrot()
    task.tools = [{"type": "function", "function": {"name": "say", "description": "—"}}]
    chat = ChatFormat(tokenizer, ChatSettings(worked_examples=0), task)
    forced = chat.forced_call()
    start = encode(tokenizer, '<tool_call>{"name":"say","arguments":')
    text = {tokenizer.decode([i])[0] for i in np.flatnonzero(forced.allowed(start))}
    assert text == {"{"}


def test_the_format_is_the_templates(tokenizer, tictactoe):
    form = call_form(tictactoe.tools[0], spaced)
    assert form.before == '<tool_call>\n{"name": "choose_square", "arguments": '
    assert form.after == "}\n</tool_call>"
    assert (form.item_separator, form.key_separator) == (", ", ": ")
    forced = ForcedCall(tokenizer, [form], frozenset({2}))
    reply = tokenizer.decode(walk(forced, {2}, 0)[:-1])
    (call,) = parse_reply(reply).calls
    assert reply == spaced(call)


def test_a_template_with_its_own_spelling_is_refused(tictactoe):
    def write(call: ToolCall) -> str:
        return spaced(call).replace(": ", " : ")

    with pytest.raises(CannotForceError, match="unknown way"):
        call_form(tictactoe.tools[0], write)
    assert len(PROBE) > 1  # one argument would not show what stands between two


def test_a_schema_that_cannot_be_expressed_names_the_tool(tokenizer):
    task = Parrot()
    task.tools = [function("say", {"word": {"not": {"type": "string"}}})]
    chat = ChatFormat(tokenizer, ChatSettings(worked_examples=0), task)
    with pytest.raises(CannotForceError, match=r"tool 'say' cannot be forced.*not"):
        chat.forced_call()


def test_a_tokenizer_that_the_library_cannot_read_is_one_message(talker_dir, tictactoe):
    """The talker's vocabulary is whole replies; there is nothing in it to write a call with."""
    chat = ChatFormat(AutoTokenizer.from_pretrained(talker_dir), ChatSettings(), tictactoe)
    with pytest.raises(CannotForceError, match=r"cannot read the tokenizer.*\n.*alternatives\.names"):
        chat.forced_call()
