"""Which chat template is in use: the model's own where it truly speaks tools, else one of ours.

"Truly" is tried, not guessed from the template's source: see `ninegrid.chat.trial`.  What a task says is not
known here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal

from ninegrid.chat.dialect import THINKING, Dialect
from ninegrid.chat.parser import parse_reply
from ninegrid.chat.response import response_template
from ninegrid.chat.trial import Manner, UnfitError, render, try_out, turns
from ninegrid.errors import NinegridError, SettingsError
from ninegrid.tasks.protocol import Json, ToolCall

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TemplateChoice = Literal["auto", "model", "hermes"]

CHATML = ("<|im_start|>", "<|im_end|>")
GEMMA = ("<start_of_turn>", "<end_of_turn>")
HERMES_FILES = {CHATML: "hermes.jinja", GEMMA: "hermes_gemma.jinja"}
"""Our templates by what they put around turns; the tokenizer must have each as one token."""


@dataclass(frozen=True)
class ChatTemplate:
    """The template in use.

    Attributes:
        source: ``model`` (it came with the tokenizer) or ``hermes`` (it came from this package).
        text: Jinja source, with the settings' variables as defaults: it renders the same anywhere.
        manner: how it writes.
    """

    source: str
    text: str
    manner: Manner

    def render(
        self,
        tokenizer: PreTrainedTokenizerBase,
        messages: Sequence[Json],
        tools: Sequence[Json],
        *,
        prompt: bool = True,
    ) -> str:
        """All messages, and with ``prompt`` where the assistant's next turn begins."""
        return render(tokenizer, self.text, messages, tools, prompt=prompt)

    def response_template(self, tokenizer: PreTrainedTokenizerBase) -> Json | None:
        """How servers can read replies under this template; None if it marks no turn's ends."""
        # What opens a thought belongs to the reply, whoever writes it.
        start = self.manner.opening.partition(THINKING[0])[0]
        end = self.manner.turn_end.strip() or tokenizer.eos_token
        return response_template(start, end, self.manner.dialect.calls) if start and end else None

    def call_text(self, tokenizer: PreTrainedTokenizerBase, call: ToolCall, tools: Sequence[Json]) -> str:
        """``call`` as the template writes it, from its opening marker to its closing one.

        In a reply that makes no more than the call, `Manner.before_call` stands before it.
        """
        turn = turns(tokenizer, self.text, call, tools)[1]
        start, end = parse_reply(turn, Dialect(self.manner.dialect.calls), tools).calls[0].span
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
            manner = try_out(tokenizer, whole, tools)
        except UnfitError as error:
            faults.append(f"{source}: {error}")
            continue
        _require_read(source, text, variables)
        return ChatTemplate(source, whole, manner)
    raise NinegridError(
        f"chat.template = {choice}, but no chat template fits; {'; '.join(faults)}",
        hint="set chat.template=auto, or choose a model whose template writes tool calls in a known dialect",
    )


def _own_text(tokenizer: PreTrainedTokenizerBase, tools: Sequence[Json]) -> str:
    if not tokenizer.chat_template:
        raise UnfitError("the tokenizer has no chat template")
    try:
        return str(tokenizer.get_chat_template(tools=list(tools)))
    except ValueError as error:
        raise UnfitError("of the tokenizer's chat templates none is the default") from error


def _hermes_text(tokenizer: PreTrainedTokenizerBase, _: Sequence[Json]) -> str:
    for marks, name in HERMES_FILES.items():
        if all(len(tokenizer(mark, add_special_tokens=False)["input_ids"]) == 1 for mark in marks):
            return (files("ninegrid.chat") / name).read_text(encoding="utf-8")
    raise UnfitError(f"the tokenizer has no token {CHATML[0]} with {CHATML[1]}, nor {' with '.join(GEMMA)}")


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
