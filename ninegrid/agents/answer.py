"""A sampled reply as the response to a chat completion request, whole or as a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from ninegrid.agents.task import MODEL
from ninegrid.chat.dialect import THINKING
from ninegrid.chat.parser import ParsedReply
from ninegrid.tasks.protocol import Json
from ninegrid.tree.engine import Completion

PIECE = 16
"""Characters of text in one piece of a stream."""


def make_answer(
    identity: str, text: str, parsed: ParsedReply, completion: Completion, prompt_tokens: int, created: int
) -> Json:
    """The response that holds a reply.

    Its tool calls are told as such where each that the reply opens can be read; else they are text as they
    stand.  What the model thought stands apart from both.  So what a client sees is what judging sees.

    Args:
        identity: of the response; those of its calls begin with it.
        text: of the reply.
        parsed: what ``text`` holds.
        created: when, in seconds since 1970.
    """
    message = _message(identity, text, parsed)
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
    thought = message.get("reasoning_content", "")
    deltas: list[Json] = [{"role": "assistant", "content": None if calls and not content else ""}]
    deltas += [{"reasoning_content": thought[at : at + PIECE]} for at in range(0, len(thought), PIECE)]
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


def _message(identity: str, text: str, parsed: ParsedReply) -> Json:
    marked = (text[start:end] for start, end in parsed.thoughts)
    thought = "\n".join(t.removeprefix(THINKING[0]).removesuffix(THINKING[1]).strip() for t in marked).strip()
    reasoning = {"reasoning_content": thought} if thought else {}
    if not parsed.blocks or len(parsed.calls) != parsed.blocks:
        content = _without(text, parsed.thoughts) if parsed.thoughts else text
        return {"role": "assistant", "content": content, **reasoning}
    calls = [
        {
            "id": f"{identity}-{i}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments))},
        }
        for i, call in enumerate(parsed.calls)
    ]
    rest = _without(text, [*parsed.thoughts, *(call.span for call in parsed.calls)])
    return {"role": "assistant", "content": rest or None, **reasoning, "tool_calls": calls}


def _without(text: str, spans: Sequence[tuple[int, int]]) -> str:
    rest, end = "", 0
    for start, stop in sorted(spans):
        rest, end = rest + text[end:start], stop
    return (rest + text[end:]).strip()


def _event(answer: Json, choices: list[Any], **more: Any) -> str:
    same = {name: answer[name] for name in ("id", "created", "model")}
    chunk = {**same, "object": "chat.completion.chunk", "choices": choices, **more}
    return f"data: {json.dumps(chunk)}\n\n"
