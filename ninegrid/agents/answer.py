"""A sampled reply as the response to a chat completion request, whole or as a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ninegrid.agents.task import MODEL
from ninegrid.chat.parser import parse_reply
from ninegrid.tasks.protocol import Json
from ninegrid.tree.engine import Completion

PIECE = 16
"""Characters of text in one piece of a stream."""


def make_answer(identity: str, text: str, completion: Completion, prompt_tokens: int, created: int) -> Json:
    """The response that holds a reply.

    Its tool calls are told as such where each that the reply opens can be read; else the reply is text as it
    stands.  So what a client sees is what judging sees.

    Args:
        identity: of the response; those of its calls begin with it.
        text: of the reply.
        created: when, in seconds since 1970.
    """
    message = _message(identity, text)
    cut = "length" if completion.finish == "length" else "stop"
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": "tool_calls" if "tool_calls" in message else cut,
        "logprobs": None,
    }
    tokens = len(completion.tokens)
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": tokens}
    return {
        "id": identity,
        "object": "chat.completion",
        "created": created,
        "model": MODEL,
        "choices": [choice],
        "usage": {**usage, "total_tokens": prompt_tokens + tokens},
    }


def stream_of(answer: Json, *, usage: bool) -> Iterator[str]:
    """The same response as server-sent events."""
    choice = answer["choices"][0]
    message = choice["message"]
    content, calls = message["content"] or "", message.get("tool_calls", [])
    deltas: list[Json] = [{"role": "assistant", "content": None if calls and not content else ""}]
    deltas += [{"content": content[at : at + PIECE]} for at in range(0, len(content), PIECE)]
    deltas += [{"tool_calls": [{"index": i, **call}]} for i, call in enumerate(calls)]
    for delta in deltas:
        yield _event(answer, [{"index": 0, "delta": delta, "finish_reason": None}])
    yield _event(answer, [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}])
    if usage:
        yield _event(answer, [], usage=answer["usage"])
    yield "data: [DONE]\n\n"


def said(answer: Json) -> Json:
    """The reply of a response, in the form of `ninegrid.agents.wire.Asked.messages`."""
    message = answer["choices"][0]["message"]
    calls = [
        {"type": "function", "function": {"name": name, "arguments": json.loads(arguments)}}
        for name, arguments in (
            (call["function"]["name"], call["function"]["arguments"])
            for call in message.get("tool_calls", [])
        )
    ]
    plain: Json = {"role": "assistant", "content": message["content"] or ""}
    return {**plain, **({"tool_calls": calls} if calls else {})}


def _message(identity: str, text: str) -> Json:
    parsed = parse_reply(text)
    if not parsed.blocks or len(parsed.calls) != parsed.blocks:
        return {"role": "assistant", "content": text}
    calls = [
        {
            "id": f"{identity}-{i}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments))},
        }
        for i, call in enumerate(parsed.calls)
    ]
    rest, end = "", 0
    for call in parsed.calls:
        rest, end = rest + text[end : call.span[0]], call.span[1]
    return {"role": "assistant", "content": (rest + text[end:]).strip() or None, "tool_calls": calls}


def _event(answer: Json, choices: list[Any], **more: Any) -> str:
    same = {name: answer[name] for name in ("id", "created", "model")}
    chunk = {**same, "object": "chat.completion.chunk", "choices": choices, **more}
    return f"data: {json.dumps(chunk)}\n\n"
