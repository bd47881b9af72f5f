"""How servers read replies, beside how the project's own parser reads them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.utils.chat_parsing import ResponseParser

from ninegrid.chat.dialect import Dialect
from ninegrid.chat.format import ChatFormat, ChatSettings
from ninegrid.chat.parser import parse_reply
from ninegrid.chat.response import response_template
from tests.small_tasks import Parrot
from tests.test_chat_format import with_template

PROMPT = "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n"
TEMPLATE = response_template("<|im_start|>assistant\n", "<|im_end|>")
CALL = '<tool_call>{"name":"choose_square","arguments":{"square":5}}</tool_call>'
PIECES = [
    "<tool_call>",
    "</tool_call>",
    "{",
    "}",
    '"name"',
    ":",
    '"arguments"',
    ",",
    '"a"',
    "-1.5e3",
    "01",
    "[",
    "]",
]
PIECES += [
    " ",
    "\n",
    "x",
    '"\\u00e9 <"',
    '"\\x"',
    "null",
    "NaN",
    '{"name":"a","arguments":{',
    "<|im_end|>",
    CALL,
    "<think>",
    "</think>",
]


def read(reply: str, width: int, template: Any = TEMPLATE) -> tuple[dict[str, Any], list[Any]]:
    """The message, and the calls that a stream in pieces of ``width`` characters brings."""
    parser, events = ResponseParser(template, prefix=PROMPT), []
    for start in range(0, len(reply), width):
        events += parser.feed(reply[start : start + width])
    message, last = parser.finalize()
    closed = [e for e in [*events, *last] if e["type"] == "region_close" and e["field"] == "tool_calls"]
    return message, [event["value"]["function"] for event in closed]


def ours(reply: str) -> list[Any]:
    return [{"name": call.name, "arguments": dict(call.arguments)} for call in parse_reply(reply).calls]


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join), st.integers(1, 9))
def test_any_reply_is_read_as_the_parser_reads_it(reply: str, width: int) -> None:
    message, streamed = read(reply, width)
    assert [call["function"] for call in message.get("tool_calls", [])] == streamed == ours(reply)
    assert read(reply, max(1, len(reply)))[0].get("tool_calls") == message.get("tool_calls")


@pytest.mark.parametrize(
    ("reply", "content"),
    [
        (CALL[:40], CALL[:40]),  # cut at the token limit
        ('<tool_call>{"name":"a"}</tool_call>', '<tool_call>{"name":"a"}</tool_call>'),
        (f"So: {CALL} Done.<|im_end|>", "So:\nDone."),
        (f"<tool_call>oops {CALL}", "<tool_call>oops"),
        ("No.<|im_end|>", "No."),
    ],
)
def test_what_is_no_call_is_text(reply: str, content: str) -> None:
    message, _ = read(reply, 3)
    assert message["content"] == content
    assert len(message.get("tool_calls", [])) == len(ours(reply))


@pytest.mark.parametrize(
    "reply",
    [
        '<tool_call>{"name":"a","arguments":{"x":1,"x":2}}</tool_call>',  # twice the same key: ours refuses
        '<tool_call>{"name":"a","arguments":{"x":1e999}}</tool_call>',  # no float: ours refuses
        '<tool_call>{"name":"a","arguments":{"x":"</tool_call>"}}</tool_call>',  # theirs refuses
    ],
)
def test_the_known_differences_raise_nothing(reply: str) -> None:
    message, _ = read(reply, 3)
    assert len(message.get("tool_calls", [])) == 1 - len(ours(reply))


def test_long_replies_that_are_no_calls_are_text() -> None:
    for reply in ('<tool_call>{"name":"a","arguments":{"x":' + "[" * 700, "<tool_call>" * 300):
        assert read(reply, 50)[0] == {"role": "assistant", "content": reply}


THINKER = (
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
    "{% for m in messages %}<turn>{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}</tool_call>'
    "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<turn>assistant:<think>\n{% endif %}"
)
"""A model's own template, with marks of its own, that begins each reply with a thought."""


def test_a_models_own_template_gets_one_that_fits(tokenizer: Any) -> None:
    chat = ChatFormat(with_template(tokenizer, THINKER), ChatSettings(), Parrot())
    assert chat.template.source == "model"
    saved = chat.saved_tokenizer()
    prompt = chat.render(Parrot().generate(1, 0)[0])
    assert saved.parse_response(f"Hm.</think>{CALL}<|im_end|>", prefix=prompt) == {
        "role": "assistant",
        "reasoning_content": "Hm.",
        "tool_calls": [{"type": "function", "function": ours(CALL)[0]}],
    }


def test_a_models_own_way_to_read_replies_is_kept(tokenizer: Any) -> None:
    changed = with_template(tokenizer, THINKER)
    changed.response_template = {"start_anchor": "x", "fields": {"content": {}}}
    assert ChatFormat(changed, ChatSettings(), Parrot()).saved_tokenizer().response_template == {
        "start_anchor": "x",
        "fields": {"content": {}},
    }
    forced = ChatFormat(changed, ChatSettings(template="hermes"), Parrot()).saved_tokenizer()
    assert forced.response_template == TEMPLATE


XML = response_template("<|im_start|>assistant\n", "<|im_end|>", "xml")
XML_PIECES = ["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"]
XML_PIECES += [
    "say",
    "word",
    "oak",
    "5",
    "<",
    " ",
    "\n",
    "(",
    "<think>",
    "</think>",
    "<arg_key>word</arg_key>",
]
XML_PIECES += ["<tool_call>say<arg_key>word</arg_key>\n<arg_value> oak</arg_value></tool_call>"]


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(XML_PIECES), max_size=14).map("".join), st.integers(1, 9), st.booleans())
def test_any_reply_with_tagged_calls_is_read_as_the_parser_reads_it(
    reply: str, width: int, in_thought: bool
) -> None:
    """Apart from a key that appears twice, and an end of a call within a value."""
    tools = Parrot().tools
    found = parse_reply(reply, Dialect("xml", in_thought), tools)
    if any("twice" in reason for reason in found.malformed):
        return
    spans = [reply[slice(*call.span)] for call in found.calls]
    if any(span.count("</tool_call>") > 1 for span in spans):
        return
    prompt = PROMPT + ("<think>" if in_thought else "")
    messages = []
    for step in (width, max(1, len(reply))):
        parser = ResponseParser(XML, prefix=prompt, tools=list(tools))
        for start in range(0, len(reply), step):
            parser.feed(reply[start : start + step])
        messages.append(parser.finalize()[0])
    assert messages[0] == messages[1]
    told = [call["function"] for call in messages[0].get("tool_calls", [])]
    assert told == [{"name": call.name, "arguments": dict(call.arguments)} for call in found.calls]
    thoughts = [("" if in_thought else "<think>"), *["<think>"] * len(found.thoughts)]
    insides = [
        reply[slice(*span)].removeprefix(opened).removesuffix("</think>").strip()
        for opened, span in zip(thoughts, found.thoughts, strict=False)
    ]
    assert messages[0].get("reasoning_content", "").split() == "\n".join(insides).split()


def test_the_server_casts_tagged_values_more_kindly() -> None:
    """By the tool's schema, but 5.0 is a whole number to it; ours counts that as invalid."""
    reply = "<tool_call>count<arg_key>times</arg_key><arg_value>5.0</arg_value></tool_call>"
    parser = ResponseParser(XML, prefix=PROMPT, tools=list(Parrot().tools))
    parser.feed(reply)
    assert parser.finalize()[0]["tool_calls"][0]["function"]["arguments"] == {"times": 5}
    assert parse_reply(reply, Dialect("xml"), Parrot().tools).calls[0].arguments == {"times": 5.0}


def test_a_thought_that_is_cut_ends_with_the_reply() -> None:
    message, _ = read("<think>Hm. <tool_call><|im_end|>", 3)
    assert message == {"role": "assistant", "reasoning_content": "Hm. <tool_call>"}
