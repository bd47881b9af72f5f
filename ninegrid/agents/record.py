"""The one conversation of a run: what was asked and sampled, as token ids, never encoded twice.

A request goes on where the last one ended: its messages are those of that request, the reply as it was given,
and new ones.  The next prompt is the last prompt, the sampled ids and the ids of what is new.  A request that
tells the past otherwise is refused: its tokens would belong to no trajectory.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from ninegrid.agents.answer import said
from ninegrid.agents.refusal import Refusal
from ninegrid.agents.wire import Asked
from ninegrid.chat.format import ChatFormat
from ninegrid.chat.trial import TEMPLATE_FAULTS
from ninegrid.errors import NinegridError
from ninegrid.tasks.protocol import Json
from ninegrid.tree.engine import Completion

SHOWN = 120
"""Characters of a message that an error quotes."""


@dataclass(frozen=True)
class Exchange:
    """A request that was answered.

    Attributes:
        prompt: token ids before the reply.
        text: of the reply.
        answer: the response.
    """

    asked: Asked
    prompt: tuple[int, ...]
    completion: Completion
    text: str
    answer: Json


class Encoder:
    """Encodes conversations; equal ones once.

    Args:
        chat: how.
    """

    def __init__(self, chat: ChatFormat) -> None:
        self.chat = chat
        self._known: dict[str, tuple[int, ...]] = {}

    def first(self, asked: Asked) -> tuple[int, ...]:
        """The prompt of a conversation's first request."""
        key = json.dumps([asked.messages, asked.tools])
        if key not in self._known:
            self._known[key] = tuple(self.chat.encode_talk(asked.messages, asked.tools))
        return self._known[key]


class Record:
    """Takes down one conversation.

    Args:
        encoder: makes token ids of it.
        longest: tokens that the model can read, or None.
    """

    def __init__(self, encoder: Encoder, longest: int | None) -> None:
        self._encoder, self._longest = encoder, longest
        self.exchanges: list[Exchange] = []
        self._talk: list[Json] = []

    def repeated(self, asked: Asked) -> Json | None:
        """The response to the last request, if ``asked`` is the same again: a client that lost it retries."""
        last = self.exchanges[-1] if self.exchanges else None
        if (
            last is not None
            and _same(asked.messages, last.asked.messages)
            and asked.tools == last.asked.tools
        ):
            return last.answer
        return None

    def prompt(self, asked: Asked, limit: int) -> tuple[int, ...]:
        """Token ids of the prompt of ``asked``, a request that is not `repeated`.

        Raises:
            Refusal: it does not go on from what was said, cannot be written as a prompt, or is too long.
        """
        try:
            prompt = self._going_on(asked) if self.exchanges else self._beginning(asked)
        except (*TEMPLATE_FAULTS, NinegridError) as error:
            raise Refusal(
                f"the chat template cannot write this conversation: {str(error)[:200]}",
                param="messages",
                code="invalid_value",
            ) from error
        if self._longest is not None and len(prompt) + limit > self._longest:
            raise Refusal(
                f"the prompt has {len(prompt)} tokens and its reply up to {limit}; the model reads "
                f"{self._longest}",
                param="messages",
                code="context_length_exceeded",
            )
        return prompt

    def take(self, exchange: Exchange) -> None:
        """Take down what was answered."""
        new = (
            exchange.asked.messages[len(self.exchanges[-1].asked.messages) + 1 :] if self.exchanges else None
        )
        self._talk += exchange.asked.messages if new is None else new
        self._talk.append({"role": "assistant", "content": exchange.text})
        self.exchanges.append(exchange)

    def _beginning(self, asked: Asked) -> tuple[int, ...]:
        if asked.messages[-1]["role"] == "assistant":
            raise Refusal("the last message is the assistant's: nothing is asked", param="messages")
        return self._encoder.first(asked)

    def _going_on(self, asked: Asked) -> tuple[int, ...]:
        last = self.exchanges[-1]
        past = [*last.asked.messages, said(last.answer)]
        for at, told in enumerate(past):
            if at >= len(asked.messages) or not _same_message(
                asked.messages[at], told, reply=at == len(past) - 1
            ):
                raise _rewritten(at, told, asked.messages)
        new = asked.messages[len(past) :]
        if not new:
            raise Refusal("the last message is the policy's own reply: nothing is asked", param="messages")
        for at, message in enumerate(new, len(past)):
            if message["role"] == "assistant":
                raise _rewritten(at, None, asked.messages)
        if asked.tools != last.asked.tools:
            raise Refusal(
                "the tools differ from those of the requests before: they stand at the beginning of all",
                param="tools",
                code="conversation_rewritten",
            )
        sampled = last.completion.tokens
        between = self._encoder.chat.follow_up(self._talk[:-1], sampled, new, asked.tools)
        return (*last.prompt, *sampled, *between)


def _rewritten(at: int, told: Json | None, messages: Sequence[Json]) -> Refusal:
    got = "missing" if at >= len(messages) else json.dumps(messages[at])[:SHOWN]
    was = (
        "a message from the assistant that the policy did not write"
        if told is None
        else json.dumps(told)[:SHOWN]
    )
    return Refusal(
        f"messages[{at}] is {got}, and not what was said: {was}. A run is one conversation that grows; its "
        "past is what the policy is trained on",
        param=f"messages[{at}]",
        code="conversation_rewritten",
    )


def _same(some: Sequence[Json], others: Sequence[Json]) -> bool:
    return len(some) == len(others) and all(
        _same_message(one, other, reply=False) for one, other in zip(some, others, strict=True)
    )


def _same_message(message: Json, told: Json, *, reply: bool) -> bool:
    if message == told:
        return True
    # Many clients leave out what stood beside a call.
    return reply and not message["content"] and message == {**told, "content": ""} and "tool_calls" in told
