"""Episodes as MLflow traces: which ones, what is in them, and that none is lost or doubled."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from mlflow.entities import Trace as StoredTrace

from ninegrid.evaluation.episodes import Episode
from ninegrid.tasks.protocol import Example
from ninegrid.tracking import TrackingSettings, mirror_episodes, track
from ninegrid.tracking.episodes import select
from ninegrid.tracking.replay import replay
from ninegrid.tracking.requests import as_json, from_json
from ninegrid.tracking.traces import Step, Trace, Traces
from tests.test_tracking import client_of, only_run, runs_in, told

NO_CALL = "I would rather not."
BOARD = {"id": "b", "board": [["X", ".", "O"], [".", ".", "."], [".", ".", "."]]}


def episode(outcome: str, number: int = 0, decoding: str = "sampled", **rest: Any) -> Episode:
    fields: dict[str, Any] = {
        "example": {**BOARD, "id": f"b{number}"},
        "group": "g",
        "decoding": decoding,
        "sample": 0,
        "reply": NO_CALL,
        "n_tokens": 6,
        "finish": "stop",
        "outcome": outcome,
        "truncated": False,
        "call": None,
        "facts": {},
        "score": -1.0,
        "reward": -0.5,
        **rest,
    }
    return Episode(**fields)


class Chat:
    """What of a chat format a trace shows; a token for each character."""

    def __init__(self, task: Any) -> None:
        self.task = task

    def messages(self, example: Example) -> list[dict[str, Any]]:
        call = {"type": "function", "function": {"name": "choose_square", "arguments": {"square": 9}}}
        return [
            {"role": "system", "content": "Play."},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "user", "content": self.task.user(example)},
        ]

    def render(self, example: Example) -> str:
        return "\n".join(message["content"] for message in self.messages(example))

    def encode(self, example: Example) -> list[int]:
        return [ord(character) for character in self.render(example)]


@pytest.fixture
def chat(tictactoe: Any) -> Any:
    return Chat(tictactoe)


def mirrored(
    chat: Any, episodes: list[Episode], state: Path, *, traces: int = 24, before: tuple[Episode, ...] = ()
) -> list[StoredTrace]:
    """The traces of ``episodes`` in the store, as MLflow lists them."""
    examples = [chat.task.parse(e.example) for e in episodes]
    with track(TrackingSettings(traces=traces), "retest", {}, state=state) as run:
        mirror_episodes(run, "retest", chat, examples, episodes, before)
    return traces_in(state)


def traces_in(state: Path) -> list[StoredTrace]:
    (run,) = runs_in(state)
    return list(client_of(state).search_traces(locations=[run.info.experiment_id], run_id=run.info.run_id))


def test_the_worst_come_first_and_outcomes_take_turns() -> None:
    told = ["win", "win", "legal", "occupied", "win", "legal", "win"]
    episodes = [episode(outcome, i) for i, outcome in enumerate(told)]
    greedy = [episode("win", i, "greedy") for i in range(3)]
    outcomes = ["occupied", "legal", "win"]
    # First turn: occupied 3, legal 2, win 0; second: legal 5, win 1; the third has win 4 and then 6.
    chosen = select([*episodes, *greedy], outcomes, 5)
    assert [(e.decoding, e.example["id"]) for e in chosen if e.outcome != "win"] == [
        ("sampled", "b3"),
        ("sampled", "b2"),
        ("sampled", "b5"),
    ]
    assert [(e.decoding, e.example["id"]) for e in chosen if e.outcome == "win"] == [
        ("sampled", "b0"),
        ("sampled", "b1"),
        ("greedy", "b0"),
        ("greedy", "b1"),
        ("greedy", "b2"),
    ]
    assert len(select([*episodes, *greedy], outcomes, 100)) == 10
    assert select(episodes, outcomes, 0) == []


def test_a_trace_tells_the_whole_episode(chat: Any, state: Path) -> None:
    call = {"name": "choose_square", "arguments": {"square": 1}}
    facts = {"square": 1, "best": [5]}
    occupied = episode("occupied", 1, "greedy", reply="<tool_call>…", call=call, facts=facts, sample=2)
    none = episode("no_tool_call", 2, facts={"why": "the reply opens no <tool_call>"}, finish="length")
    win = episode("win", 3, call=call, score=1.0, reward=2.0, truncated=True)
    before = (episode("legal", 1, "greedy", sample=2),)
    listed = mirrored(chat, [win, occupied, none], state, before=before)
    assert [t.info.tags["outcome"] for t in listed] == ["no_tool_call", "occupied", "win"]
    assert [t.info.state for t in listed] == ["ERROR", "ERROR", "OK"]
    assert [t.info.response_preview for t in listed] == [
        "no_tool_call: I would rather not.",
        "occupied: choose_square(square=1)",
        "win: choose_square(square=1)",
    ]

    trace = listed[1]
    question = chat.task.user(chat.task.parse(occupied.example))
    assert trace.info.request_preview == " | ".join(question.splitlines())
    tags = {name: value for name, value in trace.info.tags.items() if not name.startswith("mlflow.")}
    assert tags == {
        "evaluation": "retest", "decoding": "greedy", "board": "b1", "sample": "2", "truncated": "false",
        "outcome": "occupied", "outcome_before": "legal", "legal": "false", "optimal": "false",
        "score": "-1.0", "reward": "-0.5",
    }  # fmt: skip
    assert trace.info.trace_metadata["mlflow.sourceRun"] == only_run(state).info.run_id
    tokens = len("Play.\n\n" + question)
    assert trace.info.token_usage == {
        "input_tokens": tokens, "output_tokens": 6, "total_tokens": tokens + 6,
    }  # fmt: skip

    board, prompt, reply, tool, judgement = trace.data.spans
    assert [s.name for s in (board, prompt, reply, tool, judgement)] == [
        "board", "prompt", "reply", "tool call", "judgement",
    ]  # fmt: skip
    assert {s.parent_id for s in (prompt, reply, tool, judgement)} == {board.span_id}
    assert prompt.outputs == f"```\nPlay.\n\n{question}\n```"
    assert prompt.attributes["tokens"] == tokens
    assert reply.inputs["messages"][2] == {"role": "user", "content": question}
    # The OpenAI API has arguments as text.
    assert reply.inputs["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"square": 9}'
    (choice,) = reply.outputs["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("<tool_call>…", "stop")
    assert (tool.outputs, tool.status.status_code) == (call, "OK")
    assert judgement.outputs == {
        "outcome": "occupied", "score": -1.0, "reward": -0.5, "legal": False, "optimal": False,
        "facts": facts,
    }  # fmt: skip
    assert (judgement.status.status_code, judgement.status.description) == ("ERROR", "occupied, not legal")

    tool = listed[0].data.spans[3]
    assert (tool.outputs, tool.status.description) == (None, "the reply opens no <tool_call>")
    assert listed[0].data.spans[2].outputs["choices"][0]["finish_reason"] == "length"


def test_traces_can_be_found_by_what_came_of_them(chat: Any, state: Path) -> None:
    mirrored(chat, [episode("win", 1), episode("legal", 2), episode("win", 3)], state)
    found = client_of(state).search_traces(
        locations=[only_run(state).info.experiment_id], filter_string="tag.outcome = 'win'"
    )
    assert sorted(trace.info.tags["board"] for trace in found) == ["b1", "b3"]


def test_the_setting_says_how_many_and_none_costs_nothing(chat: Any, state: Path) -> None:
    episodes = [episode("win", i) for i in range(4)] + [episode("win", i, "greedy") for i in range(4)]
    assert len(mirrored(chat, episodes, state, traces=3)) == 6
    with track(TrackingSettings(traces=0), "retest", {}, state=state) as run:
        mirror_episodes(run, "retest", None, [], episodes)  # type: ignore[arg-type]  # not looked at


def test_whatever_a_model_may_write_is_kept(
    chat: Any, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # JSON can name half of a surrogate pair, which no UTF-8 can hold.
    call = {"name": "choose_square", "arguments": {"square": json.loads('"\\ud800"')}}
    odd = episode("invalid_arguments", 1, reply="```\x00\n\u2028é", call=call)
    empty = episode("no_tool_call", 2, reply=" ")
    listed = mirrored(chat, [odd, empty], state)
    assert [t.info.response_preview for t in listed] == [
        "no_tool_call: (empty)",
        "invalid_arguments: choose_square(square=\\ud800)",
    ]
    spans = listed[1].data.spans
    assert (spans[3].inputs, spans[3].outputs["arguments"]) == ("```\x00\n\u2028é", {"square": "?"})
    assert capsys.readouterr().err == ""


def a_trace(key: str, n_steps: int = 2) -> Trace:
    steps = [Step(f"step {i}", "TASK", {"i": i}, None, None, {}) for i in range(n_steps)]
    return Trace(key, key, 1_700_000_000_000, "asked", "answered", {"outcome": "win"}, steps)


def test_traces_wait_for_a_store_that_is_down_and_come_once(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ninegrid.tracking.store._SQLITE_TIMEOUT_S", 0.1)
    other = sqlite3.connect(state / "mlflow.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr("ninegrid.tracking.run.FEW", 2)
    traces = [a_trace(f"t{i}") for i in range(3)]
    with track(TrackingSettings(artifacts=False), "s", {}, state=state) as run:
        run.traces(traces)
    assert "traces (2)" in capsys.readouterr().err  # of two and of one
    other.rollback()
    other.close()
    replay(TrackingSettings(), state)
    stored = traces_in(state)
    assert sorted(t.info.tags["mlflow.traceName"] for t in stored) == sorted(t.name for t in traces)
    # The answer to a request can be lost on its way, and the request be sent again.
    client, run_id = client_of(state), only_run(state).info.run_id
    Traces(traces[1:]).send(client, run_id)
    assert sorted(t.info.trace_id for t in traces_in(state)) == sorted(t.info.trace_id for t in stored)
    assert {len(t.data.spans) for t in traces_in(state)} == {2}


def test_a_request_survives_its_file() -> None:
    request = Traces([a_trace("one"), a_trace("two", 1)])
    assert from_json(json.loads(json.dumps(as_json(request)))) == request


def test_a_store_that_keeps_no_spans_gets_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    settings = TrackingSettings(uri=str(tmp_path / "files"))
    with track(settings, "s", {}, state=tmp_path) as run:
        run.traces([a_trace("one")])
        run.traces([a_trace("two")])
        run.metrics({"m": 1})
    client = MlflowClient(str(tmp_path / "files"))
    experiment = client.get_experiment_by_name("ninegrid")
    assert experiment is not None
    (stored,) = client.search_runs([experiment.experiment_id])
    assert (stored.info.status, told(stored)) == ("FINISHED", {"m": 1.0})
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: s: MLflow refused traces (MlflowException: this store keeps no spans")
