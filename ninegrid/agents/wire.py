"""From the body of a chat completion request to what is asked; nothing of models or tokens.

Refused is what would make the policy's reply another than the one that is trained on: other decoding, a
forced or forbidden call, several choices.  Messages are brought into one form, so that the same conversation
is the same however a client writes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ninegrid.agents.refusal import Refusal
from ninegrid.agents.task import MODEL
from ninegrid.chat.strict_json import check_tree
from ninegrid.tasks.protocol import Json

DEEPEST = 64
"""Levels to which a request's JSON may be nested."""

FIXED: Mapping[str, tuple[Any, ...]] = {
    "top_p": (1,),
    "n": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "seed": (),
    "stop": ([],),
    "tool_choice": ("auto",),
    "parallel_tool_calls": (True,),
    "response_format": ({"type": "text"},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "modalities": (["text"],),
    "store": (False,),
    "functions": (),
    "function_call": (),
    "audio": (),
    "prediction": (),
    "reasoning_effort": (),
    "verbosity": (),
    "web_search_options": (),
}
"""What a request may say of these, if it says anything: what is the case anyway."""

IGNORED = frozenset({"user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key"})
"""What changes nothing about a reply."""


@dataclass(frozen=True)
class Asked:
    """What a request asks for.

    Attributes:
        messages: the conversation, each message in the form that chat templates read.
        tools: those shown to the policy.
        limit: tokens that the reply may have, if the request says so.
        stream: the reply is wanted as a stream.
        usage: a stream is to end with what it took.
    """

    messages: tuple[Json, ...]
    tools: tuple[Json, ...]
    limit: int | None
    stream: bool
    usage: bool


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class _Text(_Strict):
    type: Literal["text"]
    text: str


class _Function(_Strict):
    name: str
    arguments: str | dict[str, Any]


class _Call(_Strict):
    type: Literal["function"] = "function"
    function: _Function


class _Message(_Strict):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[_Text] | None = None
    tool_calls: list[_Call] | None = None


class _Offered(_Strict):
    name: str = Field(min_length=1)
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _Tool(_Strict):
    type: Literal["function"]
    function: _Offered


class _StreamOptions(_Strict):
    include_usage: bool | None = None


class _Request(_Strict):
    model: str
    messages: list[_Message] = Field(min_length=1)
    tools: list[_Tool] | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    temperature: float | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None


def read_request(body: bytes, temperature: float) -> Asked:
    """Read the body of a request.

    Args:
        temperature: at which the policy is sampled.

    Raises:
        Refusal: it is no request, or asks for what would not be trained on.
    """
    raw = _object(body)
    try:
        request = _Request.model_validate(raw)
    except ValidationError as error:
        raise _invalid(error) from None
    if request.model != MODEL:
        raise Refusal(
            f"the model {request.model[:80]!r} does not exist; the policy is called {MODEL!r}",
            status=404,
            param="model",
            code="model_not_found",
        )
    _check_decoding(request, temperature)
    limits = [n for n in (request.max_tokens, request.max_completion_tokens) if n is not None]
    usage = request.stream_options is not None and bool(request.stream_options.include_usage)
    return Asked(
        tuple(map(_plain, request.messages)),
        tuple(raw.get("tools") or ()),
        min(limits, default=None),
        bool(request.stream),
        usage,
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        raw = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Refusal(f"the body is not JSON: {str(error)[:200]}", code="invalid_json") from None
    if not isinstance(raw, dict):
        raise Refusal("the body is not a JSON object", code="invalid_json")
    _check_tree(raw, "the body")
    return raw


def _check_tree(value: dict[str, Any], what: str) -> None:
    """Refuse what later steps, which walk and compare it, could not get to the end of."""
    try:
        check_tree(value, DEEPEST)
    except ValueError as error:
        raise Refusal(f"{what}: {error}", code="invalid_value") from None


def _no_constant(literal: str) -> Any:
    raise ValueError(f"{literal} is no JSON number")


def _invalid(error: ValidationError) -> Refusal:
    first = error.errors(include_url=False, include_input=False)[0]
    path = ".".join(map(str, first["loc"]))
    return Refusal(f"{path}: {first['msg'][:200]}", param=path, code="invalid_value")


def _check_decoding(request: _Request, temperature: float) -> None:
    if request.temperature not in (None, temperature):
        raise _off_policy("temperature", request.temperature, f"at {temperature:g}")
    for name, value in (request.model_extra or {}).items():
        if name in IGNORED or value is None:
            continue
        if name not in FIXED:
            raise Refusal(f"unknown parameter {name[:80]}", param=name[:80], code="unknown_parameter")
        # Compared as JSON: true is not 1.
        if not any(json.dumps(value) in (json.dumps(same), json.dumps(same) + ".0") for same in FIXED[name]):
            raise _off_policy(name, value, "without it")


def _off_policy(name: str, value: object, how: str) -> Refusal:
    return Refusal(
        f"{name} = {str(value)[:80]}: what is trained on is sampled {how}; leave {name} out",
        param=name,
        code="off_policy",
    )


def _plain(message: _Message) -> Json:
    """A message in the form that chat templates read."""
    role = "system" if message.role == "developer" else message.role
    parts = message.content if isinstance(message.content, list) else []
    text = message.content if isinstance(message.content, str) else "".join(part.text for part in parts)
    calls = [_plain_call(call) for call in message.tool_calls or []]
    return {"role": role, "content": text, **({"tool_calls": calls} if calls else {})}


def _plain_call(call: _Call) -> Json:
    arguments: Any = call.function.arguments
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            arguments = None
        if not isinstance(arguments, dict):
            raise Refusal(
                f"the arguments of a call of {call.function.name[:80]} are not a JSON object",
                param="messages",
                code="invalid_value",
            )
    _check_tree(arguments, f"the arguments of a call of {call.function.name[:80]}")
    return {"type": "function", "function": {"name": call.function.name, "arguments": arguments}}
