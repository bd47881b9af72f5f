"""Trying a chat template out: what it writes tells how it speaks; its source is not looked at.

A conversation with tool calls is rendered.  It must show every tool and hand a call back to the parser as it
was, in one of the dialects.  Which template is tried is `ninegrid.chat.template`'s to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jinja2

from ninegrid.chat.dialect import THINKING, CallStyle, Dialect
from ninegrid.chat.parser import parse_reply
from ninegrid.tasks.protocol import Json, ToolCall

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PROBE = {"probe": 5, "said": "5"}
"""Arguments that a template must hand back as they are: a number, and a text that could be taken for one."""
PROBE_SCHEMA = {"properties": {"probe": {"type": "integer"}, "said": {"type": "string"}}}

CALL_STYLES: tuple[CallStyle, ...] = ("hermes", "xml")

TEMPLATE_FAULTS = (
    jinja2.TemplateError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    RecursionError,
)
"""What a template can raise on messages of a shape that it was not written for."""


class UnfitError(Exception):
    """Why a template cannot be used."""


@dataclass(frozen=True)
class Manner:
    """How a template that is fit writes.

    Attributes:
        turn_end: what stands between a tool call and the next turn.
        opening: what stands where the assistant's turn begins; "" if that cannot be told.
        dialect: how replies are written.
        before_call: what stands between the opening and a call: the end of a thought that was opened, or an
            empty thought, or white space, or nothing.
    """

    turn_end: str
    opening: str
    dialect: Dialect
    before_call: str


def try_out(tokenizer: PreTrainedTokenizerBase, text: str, tools: Sequence[Json]) -> Manner:
    """How the template ``text`` writes.

    Raises:
        UnfitError: it does not speak ``tools``.
    """
    found: list[Manner] = []
    try:
        opening = _opening(tokenizer, text, tools)
        for name in (tool["function"]["name"] for tool in tools):
            shown, turn = turns(tokenizer, text, ToolCall(name, PROBE), tools)
            if name not in shown:
                raise UnfitError(f"it does not show the tool {name}")
            found.append(_manner(turn, name, opening))
    except TEMPLATE_FAULTS as error:
        raise UnfitError(f"it fails on a tool call ({type(error).__name__}: {error})") from error
    return found[0]


def call_turn(call: ToolCall) -> Json:
    """The assistant turn that makes ``call``."""
    function = {"name": call.name, "arguments": dict(call.arguments)}
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}


def turns(
    tokenizer: PreTrainedTokenizerBase, text: str, call: ToolCall, tools: Sequence[Json]
) -> tuple[str, str]:
    """What the template shows before any call, and the turn that makes ``call`` after an earlier one."""
    ask, made = {"role": "user", "content": "?"}, call_turn(call)
    talk = [{"role": "system", "content": "!"}, ask, made, ask, made]
    shown, before, after = (render(tokenizer, text, talk[:n], tools, prompt=False) for n in (2, 4, 5))
    return shown, after.removeprefix(before)


def render(
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    messages: Sequence[Json],
    tools: Sequence[Json],
    *,
    prompt: bool,
) -> str:
    """``messages`` under the template ``text``, and with ``prompt`` where the assistant's turn begins."""
    return str(
        tokenizer.apply_chat_template(
            list(messages),
            tools=list(tools),
            chat_template=text,
            add_generation_prompt=prompt,
            tokenize=False,
        )
    )


def _manner(turn: str, name: str, opening: str) -> Manner:
    """Read off ``turn``, which must hold one call of ``name``."""
    tool = {"function": {"name": name, "parameters": PROBE_SCHEMA}}
    in_thought = opening.rfind(THINKING[0]) > opening.rfind(THINKING[1])
    for style in CALL_STYLES:
        parsed = parse_reply(turn, Dialect(style), [tool])
        if parsed.blocks == 1 and [(c.name, c.arguments) for c in parsed.calls] == [(name, PROBE)]:
            start, end = parsed.calls[0].span
            before = turn[len(opening) : start] if turn.startswith(opening) else ""
            if in_thought and THINKING[1] not in before:
                before = f"{THINKING[1]}\n\n"
            return Manner(turn[end:], opening, Dialect(style, in_thought), before)
    raise UnfitError(
        f"it does not write a call as <tool_call>JSON</tool_call>, nor with <arg_key>, but {turn[-200:]!r}"
    )


def _opening(tokenizer: PreTrainedTokenizerBase, text: str, tools: Sequence[Json]) -> str:
    ask: list[Json] = [{"role": "system", "content": "!"}, {"role": "user", "content": "?"}]
    asked, awaits = (render(tokenizer, text, ask, tools, prompt=prompt) for prompt in (False, True))
    return awaits.removeprefix(asked) if awaits.startswith(asked) else ""
