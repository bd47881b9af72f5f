"""Which chat template is in use: the model's own where it truly speaks tools, else our Hermes-style one.

"Truly" is tried, not guessed from the template's source: a conversation with tool calls is rendered, and must
show every tool and hand a call back to the parser as it was.  What a task says is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal

import jinja2

from ninegrid.chat.parser import parse_reply
from ninegrid.chat.response import THINKING, response_template
from ninegrid.errors import NinegridError, SettingsError
from ninegrid.tasks.protocol import Json, ToolCall

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TemplateChoice = Literal["auto", "model", "hermes"]

CHATML = ("<|im_start|>", "<|im_end|>")
"""What hermes.jinja puts around turns; the tokenizer must have each as one token."""

TEMPLATE_FAULTS = (
    jinja2.TemplateError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    RecursionError,
)
"""What a template can raise on messages of a shape that it was not written for."""


@dataclass(frozen=True)
class ChatTemplate:
    """The template in use.

    Attributes:
        source: ``model`` (it came with the tokenizer) or ``hermes`` (it came from this package).
        text: Jinja source, with the settings' variables as defaults: it renders the same anywhere.
        turn_end: what it writes between a tool call and the next turn.
    """

    source: str
    text: str
    turn_end: str

    def render(
        self,
        tokenizer: PreTrainedTokenizerBase,
        messages: Sequence[Json],
        tools: Sequence[Json],
        *,
        prompt: bool = True,
    ) -> str:
        """All messages, and with ``prompt`` where the assistant's next turn begins."""
        return _render(tokenizer, self.text, messages, tools, prompt=prompt)

    def response_template(self, tokenizer: PreTrainedTokenizerBase) -> Json | None:
        """How servers can read replies under this template; None if it marks no turn's ends."""
        ask: list[Json] = [{"role": "system", "content": "!"}, {"role": "user", "content": "?"}]
        asked, awaits = (self.render(tokenizer, ask, (), prompt=prompt) for prompt in (False, True))
        # What opens a thought belongs to the reply, whoever writes it.
        start = awaits.removeprefix(asked).partition(THINKING[0])[0] if awaits.startswith(asked) else ""
        end = self.turn_end.strip() or tokenizer.eos_token
        return response_template(start, end, thinks=THINKING[0] in self.text) if start and end else None

    def call_text(self, tokenizer: PreTrainedTokenizerBase, call: ToolCall, tools: Sequence[Json]) -> str:
        """``call`` as the template writes it, from its opening marker to its closing one."""
        turn = _turns(tokenizer, self.text, call, tools)[1]
        start, end = parse_reply(turn).calls[0].span
        return turn[start:end]


def choose_template(
    tokenizer: PreTrainedTokenizerBase,
    choice: TemplateChoice,
    variables: Mapping[str, Any],
    tools: Sequence[Json],
) -> ChatTemplate:
    """Choose a template that speaks ``tools``.

    Args:
        tokenizer: where the model's own template comes from.
        choice: force one, or ``auto`` for the first that is fit.
        variables: JSON values by the name of a template variable.
        tools: in the OpenAI function format.

    Raises:
        NinegridError: no template that may be used is fit (each with its reason).
        SettingsError: the chosen one does not read one of ``variables``.
    """
    faults = []
    for source in SOURCES if choice == "auto" else (choice,):
        try:
            text = SOURCES[source](tokenizer, tools)
            whole = _with_defaults(text, variables)
            turn_end = _try_out(tokenizer, whole, tools)
        except _UnfitError as error:
            faults.append(f"{source}: {error}")
            continue
        _require_read(source, text, variables)
        return ChatTemplate(source, whole, turn_end)
    raise NinegridError(
        f"chat.template = {choice}, but no chat template fits; {'; '.join(faults)}",
        hint="set chat.template=auto, or choose a model whose template writes Hermes tool calls",
    )


def call_turn(call: ToolCall) -> Json:
    """The assistant turn that makes ``call``."""
    function = {"name": call.name, "arguments": dict(call.arguments)}
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}


class _UnfitError(Exception):
    """Why a template cannot be used."""


def _own_text(tokenizer: PreTrainedTokenizerBase, tools: Sequence[Json]) -> str:
    if not tokenizer.chat_template:
        raise _UnfitError("the tokenizer has no chat template")
    try:
        return str(tokenizer.get_chat_template(tools=list(tools)))
    except ValueError as error:
        raise _UnfitError("of the tokenizer's chat templates none is the default") from error


def _hermes_text(tokenizer: PreTrainedTokenizerBase, _: Sequence[Json]) -> str:
    for mark in CHATML:
        if len(tokenizer(mark, add_special_tokens=False)["input_ids"]) != 1:
            raise _UnfitError(f"the tokenizer has no token {mark}")
    return (files("ninegrid.chat") / "hermes.jinja").read_text(encoding="utf-8")


SOURCES = {"model": _own_text, "hermes": _hermes_text}


def _with_defaults(text: str, variables: Mapping[str, Any]) -> str:
    """The template with ``variables`` as defaults; one that begins with just these stays as it is."""
    # A Python literal of JSON data is a Jinja literal too.
    lines = [f"{{%- set {name} = {name} | default({value!r}) %}}\n" for name, value in variables.items()]
    head = "".join(lines)
    return text if text.startswith(head) else head + text


def _require_read(source: str, text: str, variables: Mapping[str, Any]) -> None:
    for name in variables:
        if not re.search(rf"\b{re.escape(name)}\b", text):
            raise SettingsError(
                f"chat.template_kwargs.{name} would do nothing: the {source} template does not read it",
                hint=f"remove it, or choose the template that does: chat.template={_other(source)}",
            )


def _other(source: str) -> str:
    return next(name for name in SOURCES if name != source)


def _try_out(tokenizer: PreTrainedTokenizerBase, text: str, tools: Sequence[Json]) -> str:
    """What the template writes after a call; refuses a template that does not speak ``tools``."""
    ends = []
    for name in (tool["function"]["name"] for tool in tools):
        try:
            shown, turn = _turns(tokenizer, text, ToolCall(name, {"probe": 5}), tools)
        except TEMPLATE_FAULTS as error:
            raise _UnfitError(f"it fails on a tool call ({type(error).__name__}: {error})") from error
        if name not in shown:
            raise _UnfitError(f"it does not show the tool {name}")
        ends.append(_after_call(turn, name))
    return ends[0]


def _turns(
    tokenizer: PreTrainedTokenizerBase, text: str, call: ToolCall, tools: Sequence[Json]
) -> tuple[str, str]:
    """What the template shows before any call, and the turn that makes ``call`` after an earlier one."""
    ask, made = {"role": "user", "content": "?"}, call_turn(call)
    talk = [{"role": "system", "content": "!"}, ask, made, ask, made]
    shown, before, after = (_render(tokenizer, text, talk[:n], tools, prompt=False) for n in (2, 4, 5))
    return shown, after.removeprefix(before)


def _after_call(turn: str, name: str) -> str:
    """The text behind the one call that ``turn`` must hold."""
    parsed = parse_reply(turn)
    calls = [(call.name, call.arguments) for call in parsed.calls]
    if parsed.blocks != 1 or calls != [(name, {"probe": 5})]:
        raise _UnfitError(f"it does not write a call as <tool_call>JSON</tool_call> but {turn[-200:]!r}")
    return turn[parsed.calls[0].span[1] :]


def _render(
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    messages: Sequence[Json],
    tools: Sequence[Json],
    *,
    prompt: bool,
) -> str:
    return str(
        tokenizer.apply_chat_template(
            list(messages),
            tools=list(tools),
            chat_template=text,
            add_generation_prompt=prompt,
            tokenize=False,
        )
    )
