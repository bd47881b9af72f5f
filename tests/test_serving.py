"""The trained policy served: a real server process, the real client, beside this project's own reading.

Some of what is held here is what ``transformers serve`` makes of a request, good or not: the documentation
says so, and has to change when that server does.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ninegrid.chat.format import ChatFormat, ChatSettings
from ninegrid.chat.parser import parse_reply
from ninegrid.config import bind
from ninegrid.policy.loading import Policy, load_policy, save_policy, write_serving_defaults
from ninegrid.policy.settings import ModelSettings
from ninegrid.tree.engine import Request
from ninegrid.tree.tree_engine import TreeEngine
from tests.byte_model import write_byte_model
from tests.conftest import Project, make_project
from tests.servers import free_port, is_served, running
from tests.talker import REPLIES

SQUARE = '<tool_call>{"name":"choose_square","arguments":{"square":%d}}</tool_call>'
SPOKEN = (
    *REPLIES,
    SQUARE[:45],
    SQUARE % 1 + SQUARE % 2,
    "So: " + SQUARE % 3,
    '<tool_call>{"name":"choose_square"}</tool_call>',
)
"""What the served model can say, each in one token: calls, text, a call that was cut, two calls, no call."""


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory, tictactoe: Any) -> ChatFormat:
    folder = write_byte_model(tmp_path_factory.mktemp("spoken") / "model", replies=SPOKEN)
    return ChatFormat(AutoTokenizer.from_pretrained(folder), ChatSettings(), tictactoe)


@pytest.fixture(scope="module")
def served(chat: ChatFormat, tmp_path_factory: pytest.TempPathFactory, talker_dir: Path) -> Project:
    """A project whose policy says those replies, saved as a training saves it."""
    project = make_project(tmp_path_factory.mktemp("served"), talker_dir)
    model = AutoModelForCausalLM.from_pretrained(Path(chat.tokenizer.name_or_path))
    policy = Policy(model, chat.tokenizer, torch.device("cpu"), torch.float32, "spoken")
    folder = project.root / "data" / "policy"
    save_policy(policy, folder, chat.saved_tokenizer())
    write_serving_defaults(folder, 1.0)
    return project


@pytest.fixture(scope="module")
def address(served: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "ninegrid.serving", "--port", str(port)]
    log = tmp_path_factory.mktemp("serving") / "log"
    # Started from elsewhere, as any command of this project may be.
    with running(command, log, lambda: is_served(f"http://127.0.0.1:{port}/health"), cwd=log.parent,
                 env=served.environment()):  # fmt: skip
        assert f"Serving data/policy at http://127.0.0.1:{port}/v1" in log.read_text()
        yield f"http://127.0.0.1:{port}/v1"


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=address, api_key="none", max_retries=0) as client:
        yield client


def ask(client: openai.OpenAI, chat: ChatFormat, board: int, **changed: Any) -> Any:
    example = chat.task.generate(1, board)[0]
    usual = {"model": "data/policy", "messages": chat.messages(example), "tools": list(chat.task.tools)}
    return client.chat.completions.create(**{**usual, "temperature": 0, **changed})


def calls(text: str) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, dict(call.arguments)) for call in parse_reply(text).calls]


def heard(tool_calls: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(call.function.name, json.loads(call.function.arguments)) for call in tool_calls or []]


def forced(chat: ChatFormat, reply: str) -> dict[str, Any]:
    """What makes the model say ``reply``: one token, which nothing else can beat."""
    return {"logit_bias": {chat.tokenizer.convert_tokens_to_ids(reply): 100.0}, "max_tokens": 1}


@pytest.mark.parametrize("reply", SPOKEN)
def test_the_parsed_calls_are_the_parsers(client: openai.OpenAI, chat: ChatFormat, reply: str) -> None:
    answer = ask(client, chat, 0, **forced(chat, reply))
    message = answer.choices[0].message
    assert heard(message.tool_calls) == calls(reply)
    assert answer.choices[0].finish_reason == ("tool_calls" if calls(reply) else "length")
    if not calls(reply):
        assert message.content == reply


@pytest.mark.parametrize("reply", SPOKEN)
def test_a_stream_brings_the_same(client: openai.OpenAI, chat: ChatFormat, reply: str) -> None:
    chunks = [chunk.choices[0] for chunk in ask(client, chat, 0, stream=True, **forced(chat, reply))]
    assert heard([call for chunk in chunks for call in chunk.delta.tool_calls or []]) == calls(reply)
    text = "".join(chunk.delta.content or "" for chunk in chunks)
    assert text.strip() == ("So:" if reply.startswith("So:") else "" if calls(reply) else reply)
    assert chunks[-1].finish_reason == ("tool_calls" if calls(reply) else "length")


def test_a_greedy_reply_is_the_engines(client: openai.OpenAI, chat: ChatFormat, served: Project) -> None:
    settings = bind(ModelSettings, {"name": "t", "source": {"kind": "local", "path": "x"}}, "model")
    engine = TreeEngine(load_policy(served.root / "data" / "policy", settings).model)
    for seed in range(4):
        prompt = chat.encode(chat.task.generate(1, seed)[0])
        asked = Request(prompt, None)
        completion = engine.sample([asked], stop=chat.stop_ids, max_new_tokens=8, temperature=1.0)[0]
        answer = ask(client, chat, seed, max_tokens=8)
        assert heard(answer.choices[0].message.tool_calls) == calls(chat.decode(completion.tokens))
        assert answer.usage.prompt_tokens == len(prompt)
        assert answer.usage.completion_tokens == len(completion.tokens)


def test_replies_are_sampled_unless_a_request_differs(client: openai.OpenAI, chat: ChatFormat) -> None:
    def said(**changed: Any) -> set[str]:
        answers = [ask(client, chat, 0, seed=seed, max_tokens=4, **changed) for seed in range(12)]
        return {
            str(heard(answer.choices[0].message.tool_calls) or answer.choices[0].message.content)
            for answer in answers
        }

    assert len(said(temperature=0)) == 1 < len(said(temperature=openai.omit))


@pytest.mark.parametrize("choice", ["none", "auto", "required", "named"])
def test_tool_choice_is_taken_and_does_nothing(client: openai.OpenAI, chat: ChatFormat, choice: str) -> None:
    named = {"type": "function", "function": {"name": "choose_square"}}
    for reply in (SPOKEN[0], "I would rather not."):
        answer = ask(
            client, chat, 0, tool_choice=named if choice == "named" else choice, **forced(chat, reply)
        )
        assert heard(answer.choices[0].message.tool_calls) == calls(reply)


def test_a_tool_result_can_follow(client: openai.OpenAI, chat: ChatFormat) -> None:
    example = chat.task.generate(1, 0)[0]
    first = ask(client, chat, 0, **forced(chat, SPOKEN[4])).choices[0].message
    result = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "taken"}
    talk = [*chat.messages(example), first.model_dump(exclude_none=True), result]
    answer = ask(client, chat, 0, messages=talk, **forced(chat, SPOKEN[0]))
    assert heard(answer.choices[0].message.tool_calls) == calls(SPOKEN[0])
    assert answer.usage.prompt_tokens > len(chat.encode(example))


WRONG = [
    ({"model": "gpt-4"}, openai.BadRequestError),
    ({"extra_body": {"colour": "red"}}, openai.UnprocessableEntityError),
    ({"messages": []}, openai.InternalServerError),
    ({"messages": [{"content": "no role"}]}, openai.InternalServerError),
    ({"temperature": "hot"}, openai.InternalServerError),
]


@pytest.mark.parametrize(("changed", "error"), WRONG)
def test_a_wrong_request_is_an_error_of_the_client(
    client: openai.OpenAI, chat: ChatFormat, changed: dict[str, Any], error: type[openai.APIStatusError]
) -> None:
    # After an error of its own the server closes the connection: one retry meets that.
    with pytest.raises(error):
        ask(client.with_options(max_retries=1), chat, 0, **changed)
    assert ask(client.with_options(max_retries=1), chat, 0, **forced(chat, SPOKEN[0])).choices


def test_bad_json_is_refused(address: str) -> None:
    answer = httpx.post(
        f"{address}/chat/completions", content=b"{", headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 422
    assert "JSON" in answer.text


def test_it_lists_the_policy_alone(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["data/policy"]


def test_a_request_in_the_tasks_own_words(client: openai.OpenAI, served: Project, chat: ChatFormat) -> None:
    body = json.loads(served.python("-m", "ninegrid.serving", "--request").stdout)
    assert body["messages"] == chat.messages(chat.task.generate(1, 0)[0])
    answer = client.chat.completions.create(**body)
    assert answer.usage is not None and 1 <= answer.usage.completion_tokens <= body["max_tokens"]


def test_without_a_policy_the_next_command_is_named(project: Project) -> None:
    ended = project.python("-m", "ninegrid.serving", "--port", str(free_port()), check=False)
    assert ended.returncode == 2
    assert "no policy to serve" in ended.stderr and "-> make repro" in ended.stderr


def test_a_port_in_use_is_told_before_anything_is_loaded(served: Project) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = served.python("-m", "ninegrid.serving", "--port", str(port), check=False)
    assert ended.returncode == 2
    assert f"port {port}" in ended.stderr and "make serve PORT=8000" in ended.stderr


def test_a_training_saves_what_a_server_needs(whole_loop: Project) -> None:
    policy = whole_loop.root / "data" / "policy"
    defaults = json.loads((policy / "generation_config.json").read_text())
    assert (defaults["do_sample"], defaults["temperature"], defaults["top_k"], defaults["top_p"]) == (
        True,
        1,
        0,
        1,
    )
    tokenizer = AutoTokenizer.from_pretrained(policy, local_files_only=True)
    assert tokenizer.response_template["fields"]["tool_calls"]["repeats"]
    assert defaults["eos_token_id"] == tokenizer.eos_token_id
