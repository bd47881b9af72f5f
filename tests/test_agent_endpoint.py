"""The address at which agent functions reach the policy: what it answers, and how it refuses."""

from __future__ import annotations

import asyncio
import json
import random
import socket
from collections.abc import Callable
from typing import Any

import httpx2
import numpy as np
import openai
import psutil
import pytest

from ninegrid.agents import AgentExample
from ninegrid.agents.endpoint import LARGEST
from ninegrid.agents.examples import single_reply
from ninegrid.policy.loading import Policy
from ninegrid.policy.rollout import Rollout
from tests.agent_policy import agents_of, load_speaker, rollouts, write_speaker
from tests.conftest import made_once


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    folder = made_once(tmp_path_factory, "speaker", lambda folder: write_speaker(folder / "model"))
    return load_speaker(folder / "model")


Ask = Callable[..., Any]


def in_a_run(policy: Policy, agent: Callable[[Any, AgentExample, Ask], Any], **limits: Any) -> Rollout:
    """The one rollout of an agent that is also given a way to ask with some things changed."""

    async def run(client: Any, example: AgentExample) -> Any:
        async def ask(**changed: Any) -> Any:
            usual = {"model": "policy", "messages": example.messages, "tools": example.tools}
            return await client.chat.completions.create(**{**usual, **changed})

        return await agent(client, example, ask)

    ((rollout,),) = rollouts(agents_of(policy, run, **limits), 1, 1)
    return rollout


def fine(rollout: Rollout) -> Rollout:
    """The rollout, if its agent met nothing that it did not expect."""
    assert rollout.judgement.outcome not in ("agent_error", "agent_timeout"), rollout.judgement.facts
    return rollout


ANSWER = {"role": "user", "content": "Go on"}

REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"temperature": 0.2}, "off_policy", "temperature"),
    ({"temperature": 0}, "off_policy", "temperature"),
    ({"top_p": 0.9}, "off_policy", "top_p"),
    ({"n": 2}, "off_policy", "n"),
    ({"seed": 7}, "off_policy", "seed"),
    ({"stop": ["x"]}, "off_policy", "stop"),
    ({"logit_bias": {"5": 1}}, "off_policy", "logit_bias"),
    ({"presence_penalty": 0.5}, "off_policy", "presence_penalty"),
    ({"tool_choice": "required"}, "off_policy", "tool_choice"),
    ({"tool_choice": "none"}, "off_policy", "tool_choice"),
    (
        {"tool_choice": {"type": "function", "function": {"name": "choose_square"}}},
        "off_policy",
        "tool_choice",
    ),
    ({"parallel_tool_calls": False}, "off_policy", "parallel_tool_calls"),
    ({"response_format": {"type": "json_object"}}, "off_policy", "response_format"),
    ({"logprobs": True}, "off_policy", "logprobs"),
    ({"extra_body": {"colour": "red"}}, "unknown_parameter", "colour"),
    ({"max_tokens": 0}, "invalid_value", "max_tokens"),
    ({"messages": []}, "invalid_value", "messages"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "invalid_value", "messages.0.role"),
    ({"messages": [{"content": "x"}]}, "invalid_value", "messages.0.role"),
    ({"messages": "hello"}, "invalid_value", "messages"),
    ({"tools": [{"type": "function"}]}, "invalid_value", "tools.0.function"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        "invalid_value",
        "messages.0.content.str",
    ),
    ({"messages": [{"role": "user", "content": "long " * 3000}]}, "context_length_exceeded", "messages"),
]


class TestRefusals:
    def test_what_would_not_be_trained_on(self, policy: Policy) -> None:
        async def agent(client: Any, example: AgentExample, ask: Ask) -> None:
            for changed, code, param in REFUSED:
                with pytest.raises(openai.BadRequestError) as caught:
                    await ask(**changed)
                assert (caught.value.code, caught.value.param) == (code, param), changed
                assert caught.value.type == "invalid_request_error"
            await ask(temperature=1.0, top_p=1, n=1, tool_choice="auto", user="me", max_tokens=10**6)

        assert len(fine(in_a_run(policy, agent)).turns) == 1

    def test_another_model_route_or_method(self, policy: Policy) -> None:
        async def agent(client: Any, example: AgentExample, ask: Ask) -> None:
            with pytest.raises(openai.NotFoundError, match="the policy is called 'policy'") as caught:
                await ask(model="gpt-4")
            assert caught.value.code == "model_not_found"
            with pytest.raises(openai.NotFoundError, match="there are POST /v1/chat/completions"):
                await client.completions.create(model="policy", prompt="x")
            with pytest.raises(openai.APIStatusError, match="Method Not Allowed") as other:
                await client.get("/chat/completions", cast_to=httpx2.Response)
            assert other.value.status_code == 405
            assert [model.id async for model in client.models.list()] == ["policy"]
            await ask()

        fine(in_a_run(policy, agent))

    def test_who_has_no_key(self, policy: Policy) -> None:
        keys: list[str] = []

        async def agent(client: Any, example: AgentExample, ask: Ask) -> None:
            keys.append(client.api_key)
            for key in ("wrong", "sk-", f"{client.api_key}x", "é"):
                answer = await raw(client, b"{}", {"Authorization": f"Bearer {key}".encode()})
                assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
            port = client.base_url.port
            # All of 127.0.0.0/8 is this machine; the server is to be at one address of it only.
            assert client.base_url.host == "127.0.0.1"
            for host in ("127.0.0.2", "::1"):
                with pytest.raises(OSError, match=r"refused|not available|not supported|unreachable"):
                    socket.create_connection((host, port), timeout=5)
            await ask()

        for _ in range(2):
            fine(in_a_run(policy, agent))
        assert len(set(keys)) == 2 and min(map(len, keys)) > 30

    def test_bodies_that_are_none(self, policy: Policy) -> None:
        async def agent(client: Any, example: AgentExample, ask: Ask) -> None:
            deep = b'{"messages":' + b"[" * 100_000
            nan = b'{"model":"policy","messages":[{"role":"user","content":"x"}],"temperature":NaN}'
            for body in (b"", b"{", b"[]", b"null", b"\xff\xfe", deep, nan):
                answer = await raw(client, body)
                assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")
            answer = await raw(client, b" " * (LARGEST + 1))
            assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
            await ask()

        fine(in_a_run(policy, agent))

    def test_text_that_utf8_cannot_hold(self, policy: Policy) -> None:
        async def agent(client: Any, example: AgentExample, ask: Ask) -> None:
            body = b'{"model":"policy","messages":[{"role":"user","content":"\\ud800"}]}'
            answer = await raw(client, body)
            assert answer.status_code == 400
            assert "lone surrogate" in answer.json()["error"]["message"]
            await ask()

        fine(in_a_run(policy, agent))


async def raw(client: Any, body: bytes, headers: dict[str, Any] | None = None) -> httpx2.Response:
    """Post ``body`` as it is."""
    key = {"Authorization": f"Bearer {client.api_key}"}
    async with httpx2.AsyncClient(trust_env=False) as http:
        return await http.post(
            f"{client.base_url}chat/completions", content=body, headers={**key, **(headers or {})}
        )


class TestOneConversation:
    def test_the_past_cannot_be_told_otherwise(self, policy: Policy) -> None:
        async def agent(client: Any, example: AgentExample, ask: Ask) -> None:
            first = (await ask()).choices[0].message.model_dump(exclude_none=True)
            talk = [*example.messages, first]
            told = [
                ([*example.messages[:-1], {"role": "user", "content": "Other"}, first, ANSWER], 5),
                ([*example.messages, {"role": "assistant", "content": "I win"}, ANSWER], 6),
                ([*talk, {"role": "assistant", "content": "and I win"}, ANSWER], 7),
                (example.messages[:3], 3),
                ([{"role": "user", "content": "Anew"}], 0),
            ]
            for messages, at in told:
                with pytest.raises(openai.BadRequestError, match=r"one conversation that grows") as caught:
                    await ask(messages=messages)
                assert caught.value.param == f"messages[{at}]"
                assert caught.value.code == "conversation_rewritten"
            with pytest.raises(openai.BadRequestError, match="nothing is asked"):
                await ask(messages=talk)
            with pytest.raises(openai.BadRequestError) as tools:
                await ask(messages=[*talk, ANSWER], tools=[])
            assert tools.value.param == "tools"
            await ask(messages=[*talk, ANSWER])

        assert len(fine(in_a_run(policy, agent)).turns) == 2

    def test_the_same_request_again_gets_the_same_reply(self, policy: Policy) -> None:
        async def agent(client: Any, example: AgentExample, ask: Ask) -> None:
            one, other = await asyncio.gather(ask(), ask())  # as if a client had lost the first
            again = await ask()
            assert one.choices[0].message == other.choices[0].message == again.choices[0].message
            talk = [*example.messages, one.choices[0].message.model_dump(exclude_none=True), ANSWER]
            second = await ask(messages=talk)
            assert (await ask(messages=talk)).id == second.id

        assert len(fine(in_a_run(policy, agent)).turns) == 2

    def test_a_lost_connection_loses_nothing(self, policy: Policy) -> None:
        async def agent(client: Any, example: AgentExample, ask: Ask) -> None:
            body = {"model": "policy", "messages": example.messages, "tools": example.tools}
            with socket.create_connection(("127.0.0.1", client.base_url.port)) as lost:
                lost.sendall(request_bytes(client.api_key, json.dumps(body).encode()))
            await asyncio.sleep(0.5)
            await ask()

        assert len(fine(in_a_run(policy, agent)).turns) == 1

    def test_two_conversations_at_once_are_refused(self, policy: Policy) -> None:
        async def agent(client: Any, example: AgentExample, ask: Ask) -> None:
            asked = ask(), ask(messages=[{"role": "user", "content": "Other"}])
            results = await asyncio.gather(*asked, return_exceptions=True)
            (error,) = [result for result in results if isinstance(result, Exception)]
            # Which one came first is open; the other is refused either way.
            assert error.code in ("in_progress", "conversation_rewritten")  # type: ignore[attr-defined]

        assert len(fine(in_a_run(policy, agent)).turns) == 1

    def test_as_many_replies_as_the_settings_say(self, policy: Policy) -> None:
        async def agent(client: Any, example: AgentExample, ask: Ask) -> None:
            messages = list(example.messages)
            for _ in range(2):
                message = (await ask(messages=messages)).choices[0].message
                messages += [message.model_dump(exclude_none=True), ANSWER]
            with pytest.raises(openai.BadRequestError, match=r"task\.max_requests") as caught:
                await ask(messages=messages)
            assert caught.value.code == "max_requests"

        assert len(fine(in_a_run(policy, agent, max_requests=2)).turns) == 2

    def test_a_reply_may_be_made_shorter(self, policy: Policy) -> None:
        async def agent(client: Any, example: AgentExample, ask: Ask) -> None:
            response = await ask(max_completion_tokens=1)
            assert response.usage.completion_tokens == 1
            assert response.usage.prompt_tokens == rollout_prompt(example)

        def rollout_prompt(example: AgentExample) -> int:
            return len(sampler.chat.encode(example))

        sampler = agents_of(policy)
        rollout = fine(in_a_run(policy, agent))
        assert len(rollout.completion.tokens) == 1
        assert rollout.truncated

    def test_clients_may_leave_out_text_beside_a_call(self, policy: Policy) -> None:
        async def agent(client: Any, example: AgentExample, ask: Ask) -> None:
            message = (await ask()).choices[0].message.model_dump(exclude_none=True)
            if "tool_calls" in message:
                message["content"] = None
            await ask(messages=[*example.messages, message, ANSWER])

        assert len(fine(in_a_run(policy, agent)).turns) == 2

    def test_developers_parts_and_other_tools(self, policy: Policy) -> None:
        look = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}

        async def agent(client: Any, example: AgentExample, ask: Ask) -> None:
            system, *rest = example.messages
            parts = [{"type": "text", "text": system["content"]}]
            messages = [{"role": "developer", "content": parts}, *rest]
            await ask(messages=messages, tools=[*example.tools, look])

        sampler = agents_of(policy)
        rollout = fine(in_a_run(policy, agent))
        text = sampler.chat.decode(rollout.prompt)
        assert text.startswith(f"<|im_start|>system\n{sampler.task.system()}")
        assert '{"name":"look","parameters":{"type":"object"}}' in text


def test_a_stream_is_the_same_reply(policy: Policy) -> None:
    streamed: dict[str, list[Any]] = {}

    async def streaming(client: Any, example: AgentExample) -> None:
        chunks = await client.chat.completions.create(
            model="policy",
            messages=example.messages,
            tools=example.tools,
            stream=True,
            stream_options={"include_usage": True},
        )
        streamed[example.id] = [chunk async for chunk in chunks]

    whole: dict[str, Any] = {}

    async def plain(client: Any, example: AgentExample) -> None:
        whole[example.id] = await client.chat.completions.create(
            model="policy", messages=example.messages, tools=example.tools
        )

    one, other = (rollouts(agents_of(policy, function), 24, 1) for function in (streaming, plain))
    for mine, theirs in zip(one, other, strict=True):
        assert mine[0].completion.tokens == theirs[0].completion.tokens
        assert np.array_equal(mine[0].completion.logprobs, theirs[0].completion.logprobs)
    for name, response in whole.items():
        *chunks, last = streamed[name]
        choice = response.choices[0]
        deltas = [chunk.choices[0].delta for chunk in chunks]
        assert "".join(delta.content or "" for delta in deltas) == (choice.message.content or "")
        calls = [call.function for delta in deltas for call in delta.tool_calls or []]
        expected = [call.function for call in choice.message.tool_calls or []]
        assert [(c.name, c.arguments) for c in calls] == [(c.name, c.arguments) for c in expected]
        assert chunks[-1].choices[0].finish_reason == choice.finish_reason
        assert last.usage.total_tokens == response.usage.total_tokens
    reasons = {response.choices[0].finish_reason for response in whole.values()}
    assert {"tool_calls", "stop"} <= reasons


def request_bytes(key: str, body: bytes, length: int | None = None) -> bytes:
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {key}\r\nContent-Length: {len(body) if length is None else length}\r\n\r\n"
    )
    return head.encode() + body


def noise(rng: random.Random, usual: dict[str, Any]) -> tuple[str, bytes]:
    """A kind of bad request, and its body."""
    kind = rng.choice(["json", "tool", "huge", "rewritten", "field", "shape", "key", "dropped"])
    if kind == "json":
        return kind, rng.randbytes(rng.randrange(200))
    changed: dict[str, Any] = {
        "tool": {
            "tools": [{"type": rng.choice(["function", "oracle"]), "function": rng.choice([{}, 5, None])}]
        },
        "huge": {"messages": [{"role": "user", "content": "x" * rng.choice([200_000, LARGEST])}]},
        "rewritten": {"messages": [{"role": "user", "content": str(rng.random())}]},
        "field": {rng.choice(["n", "seed", "top_p", "logprobs", "colour"]): rng.choice([3, "x", [1]])},
        "shape": {"messages": rng.choice([None, {}, "hi", [3], [{"role": "user", "content": 5}], [None]])},
    }.get(kind, {})
    return kind, json.dumps({**usual, **changed}).encode()


@pytest.mark.parametrize("count", [2000])
def test_nothing_breaks_it(policy: Policy, count: int) -> None:
    grown: list[float] = []

    async def fuzzing(client: Any, example: AgentExample) -> None:
        usual = {"model": "policy", "messages": list(example.messages), "tools": list(example.tools)}
        await single_reply(client, example)
        rng, process = random.Random(0), psutil.Process()
        warm = 0
        async with httpx2.AsyncClient(trust_env=False) as http:
            for number in range(count):
                if number == count // 4:
                    warm = process.memory_info().rss
                kind, body = noise(rng, usual)
                if kind == "dropped":
                    with socket.create_connection(("127.0.0.1", client.base_url.port)) as half:
                        half.sendall(request_bytes(client.api_key, body, length=len(body) + 100))
                    continue
                key = "sk-wrong" if kind == "key" else client.api_key
                answer = await http.post(
                    f"{client.base_url}chat/completions",
                    content=body,
                    headers={"Authorization": f"Bearer {key}"},
                )
                error = answer.json()["error"]
                assert 400 <= answer.status_code < 500, (kind, body[:200], answer.text)
                assert set(error) == {"message", "type", "param", "code"}
                assert error["message"] and error["type"] == "invalid_request_error"
        grown.append((process.memory_info().rss - warm) / 2**20)
        message = (await client.chat.completions.create(**usual)).choices[0].message
        talk = [*usual["messages"], message.model_dump(exclude_none=True), ANSWER]
        await client.chat.completions.create(model="policy", messages=talk, tools=usual["tools"])

    ((rollout,),) = rollouts(agents_of(policy, fuzzing, timeout=600.0), 1, 1)
    assert len(fine(rollout).turns) == 2
    assert grown[0] < 8, f"{grown[0]:.1f} MiB more after {count} requests"
