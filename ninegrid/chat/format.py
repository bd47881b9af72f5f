"""How an example becomes a prompt, and sampled token ids become a reply.

Training, evaluation, serving and play all speak through `ChatFormat`; a saved policy carries the same
template in its tokenizer.  Neither the model nor what a reply is worth is known here.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ninegrid.chat.dialect import THINKING, Dialect
from ninegrid.chat.parser import ParsedReply, argument_span, parse_reply
from ninegrid.chat.template import TemplateChoice, choose_template
from ninegrid.chat.trial import call_turn
from ninegrid.config import require
from ninegrid.errors import NinegridError, SettingsError
from ninegrid.tasks.protocol import Example, Json, Task, ToolCall, WorkedExample

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from ninegrid.chat.forced import ForcedCall

RESERVED = frozenset(
    {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "chat_template"}
)
"""Template variables that the library itself gives."""

_EMPTY_THOUGHT = re.compile(rf"{THINKING[0]}\s*{THINKING[1]}\s*")


@dataclass(frozen=True)
class ChatSettings:
    """Section ``chat``.

    Attributes:
        worked_examples: how many of the task's worked examples are shown as earlier turns.
        template: ``model`` and ``hermes`` force one; ``auto`` takes the model's own if it speaks tools.
        template_kwargs: variables for the template, such as ``{"enable_thinking": False}``.
    """

    worked_examples: int = 2
    template: TemplateChoice = "auto"
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require(self.worked_examples >= 0, "worked_examples", self.worked_examples, ">= 0")
        for name, value in self.template_kwargs.items():
            path = f"template_kwargs.{name}"
            require(name.isidentifier() and name not in RESERVED, path, value, "a variable of the template")
            require(_is_json(value), path, value, "JSON data")


class ChatFormat:
    """Prompts and replies of one task under one tokenizer.

    Args:
        tokenizer: left as it is; see `saved_tokenizer` for one that carries the template.
        settings: section ``chat``.
        task: says what the messages are and which tools there are.

    Attributes:
        template: the chat template in use.
        dialect: how replies are written.
        stop_ids: token ids that end a reply.

    Raises:
        SettingsError: more worked examples are asked for than the task has, or a template variable that the
            template does not read.
        NinegridError: no permitted template can show the task's tools.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, settings: ChatSettings, task: Task) -> None:
        self.tokenizer = tokenizer
        self.settings = settings
        self.task = task
        self.template = choose_template(tokenizer, settings.template, settings.template_kwargs, task.tools)
        self.dialect: Dialect = self.template.manner.dialect
        self.stop_ids = _stop_ids(tokenizer, self.template.manner.turn_end)
        self._offered = {tool["function"]["name"] for tool in task.tools}
        self._shown = _first_examples(task, settings.worked_examples)

    def messages(self, example: Example) -> list[Json]:
        """The conversation that asks about ``example``, in the OpenAI format."""
        system = self.task.system()
        turns: list[Json] = [{"role": "system", "content": system}] if system else []
        for shown in self._shown:
            turns += [self._question(shown.example), call_turn(shown.call)]
            for later in shown.after:
                result = {"role": "tool", "content": self.task.user(later.example)}
                turns += [result, call_turn(later.call)]
        return [*turns, self._question(example)]

    def render(self, example: Example) -> str:
        """The prompt as text.

        Raises:
            NinegridError: it does not show one of the tools.
        """
        text = self.template.render(self.tokenizer, self.messages(example), self.task.tools)
        for tool in self.task.tools:
            if tool["function"]["name"] not in text:
                raise NinegridError(
                    f"the prompt of {example.id} does not show the tool {tool['function']['name']}",
                    hint="set chat.template=hermes",
                )
        return text

    def encode(self, example: Example) -> list[int]:
        """The prompt as token ids; what special tokens there are, the template wrote."""
        return _encode(self.tokenizer, self.render(example))

    def answer(self, example: Example, turn: Json) -> list[int]:
        """The assistant's ``turn`` as the token ids that follow `encode`, its stop token included.

        Raises:
            NinegridError: the template writes an answered prompt otherwise than one that awaits its answer.
        """
        prompt, tools = self.render(example), self.task.tools
        talk = [*self.messages(example), turn]
        whole = self.template.render(self.tokenizer, talk, tools, prompt=False)
        if not whole.startswith(prompt):
            raise NinegridError(
                f"the chat template writes the prompt of {example.id} otherwise once it is answered",
                hint="set chat.template=hermes",
            )
        ids = _encode(self.tokenizer, whole[len(prompt) :])
        stop = next((i for i, token in enumerate(ids) if token in self.stop_ids), None)
        return [*ids, min(self.stop_ids)] if stop is None else ids[: stop + 1]

    def encode_talk(self, talk: Sequence[Json], tools: Sequence[Json]) -> list[int]:
        """Any conversation with any tools as the prompt for the assistant's next turn."""
        return _encode(self.tokenizer, self.template.render(self.tokenizer, talk, tools))

    def follow_up(
        self,
        talk: Sequence[Json],
        reply: Sequence[int],
        answers: Sequence[Json],
        tools: Sequence[Json] | None = None,
    ) -> list[int]:
        """The token ids between a sampled reply and the place where the assistant's next turn begins.

        What was sampled is never encoded again: the next prompt is the last one, ``reply`` and these ids.

        Args:
            talk: the messages that the reply answered.
            reply: its ids as sampled, with or without a stop token.
            answers: the messages that came back, such as ``{"role": "tool", "content": ...}``.
            tools: those that the conversation shows; None for the task's.

        Raises:
            NinegridError: the template writes earlier turns otherwise once later ones follow.
        """
        turn = {"role": "assistant", "content": self.decode(reply)}
        shown = self.task.tools if tools is None else tools
        before = self.template.render(self.tokenizer, [*talk, turn], shown, prompt=False)
        whole = self.template.render(self.tokenizer, [*talk, turn, *answers], shown)
        if not whole.startswith(before):
            earlier = self.template.render(self.tokenizer, talk, shown, prompt=False)
            before = _without_empty_thought(before, earlier)
        if not whole.startswith(before):
            raise NinegridError(
                "the chat template writes a reply otherwise once it is answered, so what was sampled cannot "
                "stay as it is",
                hint="set chat.template=hermes",
            )
        ids = _encode(self.tokenizer, self.template.manner.turn_end + whole[len(before) :])
        stopped = bool(reply) and reply[-1] in self.stop_ids
        return ids[1:] if stopped and ids[0] in self.stop_ids else ids

    def read(self, text: str, tools: Sequence[Json] | None = None) -> ParsedReply:
        """The thoughts and calls of a reply, as `decode` gives it, to a prompt that shows ``tools``."""
        return parse_reply(text, self.dialect, self.task.tools if tools is None else tools)

    def decode(self, ids: Sequence[int]) -> str:
        """The reply text of sampled ``ids``: all but a final stop token, other special tokens included."""
        body = ids[:-1] if ids and ids[-1] in self.stop_ids else ids
        return str(
            self.tokenizer.decode(list(body), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        )

    def decision_index(self, ids: Sequence[int], call: ToolCall | None) -> int | None:
        """Index of the token in ``ids`` that decides: the first that holds a part of the decision's value.

        None if the task names no decision, or ``call`` is no call of an offered tool with that argument.
        """
        key = self.task.decision
        if key is None or call is None or call.name not in self._offered:
            return None
        text = self.decode(ids)
        span = argument_span(text, call, key, self.dialect, self.task.tools)
        return None if span is None else self.token_after(ids, text[: span[0]])

    def write_call(self, call: ToolCall) -> str:
        """The shortest reply that makes ``call``, as the template writes it and without a stop token.

        Where the prompt has opened a thought, it begins by ending that.
        """
        text = self.template.call_text(self.tokenizer, call, self.task.tools)
        return self.template.manner.before_call + text

    def forced_call(self) -> ForcedCall:
        """The constraint under which a reply is one call of an offered tool, as the template writes it.

        Raises:
            CannotForceError: the grammar library cannot express a tool's schema, or read the tokenizer.
        """
        from ninegrid.chat.forced import ForcedCall  # few need the grammar library behind it
        from ninegrid.chat.forms import call_form

        forms = [call_form(tool, self.write_call, self.dialect.calls) for tool in self.task.tools]
        return ForcedCall(self.tokenizer, forms, self.stop_ids)

    def saved_tokenizer(self) -> PreTrainedTokenizerBase:
        """A copy of the tokenizer whose own chat template is the one in use, and which can read replies."""
        tokenizer = copy.deepcopy(self.tokenizer)
        tokenizer.chat_template = self.template.text
        # A model that brings its own template may bring the way to read it, too.
        if self.template.source == "hermes" or not getattr(tokenizer, "response_template", None):
            readable = self.template.response_template(self.tokenizer)
            if readable is not None:
                tokenizer.response_template = readable
        return tokenizer

    def fingerprint(self) -> dict[str, str]:
        """SHA-256 of all that shapes a prompt: template, tools, and one rendered prompt.

        It does not tell where the template came from: a saved policy brings as its own what a base model
        was given.
        """
        return {
            "template_sha256": _sha256(self.template.text),
            "tools_sha256": _sha256(json.dumps(list(self.task.tools))),
            "prompt_sha256": _sha256(self.render(self.task.generate(1, seed=0)[0])),
        }

    def _question(self, example: Example) -> Json:
        return {"role": "user", "content": self.task.user(example)}

    def token_after(self, ids: Sequence[int], text: str) -> int:
        """Index of the first token that holds something behind ``text``, a beginning of the reply.

        ``text`` must end with an ASCII character, which lies within one token.  So whatever prefix of
        ``ids`` begins with ``text`` and goes on holds a part of what follows, however characters are split.
        """
        low, high = 1, len(ids)
        while low < high:
            middle = (low + high) // 2
            said = self.decode(ids[:middle])
            if len(said) > len(text) and said.startswith(text):
                high = middle
            else:
                low = middle + 1
        return low - 1


def _first_examples(task: Task, count: int) -> Sequence[WorkedExample]:
    offered = task.worked_examples()
    if count > len(offered):
        raise SettingsError(
            f"chat.worked_examples = {count}, but task {task.name} offers {len(offered)}",
            hint=f"set chat.worked_examples={len(offered)} or fewer",
        )
    return offered[:count]


def _without_empty_thought(rendered: str, earlier: str) -> str:
    """``rendered`` without the empty thought that a template put into the turn behind ``earlier``.

    Some write one into the last turn alone.  Nobody has said it, so no reply changes when it goes.
    """
    if not rendered.startswith(earlier):
        return rendered
    return earlier + _EMPTY_THOUGHT.sub("", rendered[len(earlier) :], count=1)


def _stop_ids(tokenizer: PreTrainedTokenizerBase, turn_end: str) -> frozenset[int]:
    """The tokenizer's end token and the special token by which the template ends a turn."""
    special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    ends = [i for i in _encode(tokenizer, turn_end) if i in special][:1]
    stop = frozenset(ends) | ({tokenizer.eos_token_id} - {None})
    if not stop:
        raise NinegridError(
            f"a reply would never stop: the chat template ends a turn with {turn_end!r}, no special token, "
            "and the tokenizer has no end token"
        )
    return stop


def _encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True
