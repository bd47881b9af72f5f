"""Agent functions as rollouts: as the task asks by itself, many at once, and agents that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import openai
import psutil
import pytest
import torch

from ninegrid.agents import AgentExample
from ninegrid.agents.examples import second_chance, single_reply
from ninegrid.config import bind
from ninegrid.gspo.batch import RolloutBatch, make_batch
from ninegrid.gspo.checkpoint import Checkpoints
from ninegrid.gspo.optimizer import make_optimizer
from ninegrid.gspo.settings import TrainSettings
from ninegrid.gspo.trainer import Trainer
from ninegrid.gspo.update import Updater
from ninegrid.params import compose
from ninegrid.policy.loading import Policy
from ninegrid.policy.rollout import Rollout
from ninegrid.policy.sampler import Sampler
from ninegrid.reward import RewardTable
from ninegrid.tasks.protocol import Interactive, Judgement, Perturbable, Task, ToolCall
from ninegrid.tree.settings import DecodingSettings
from tests.agent_policy import (
    agent_task,
    agents_of,
    load_speaker,
    rollouts,
    sampler_of,
    twin,
    write_speaker,
)
from tests.conftest import ROOT, SMOKE, Project, made_once


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    folder = made_once(tmp_path_factory, "speaker", lambda folder: write_speaker(folder / "model"))
    return load_speaker(folder / "model")


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """Set at the end of a test: agents that hang go on then."""
    event = threading.Event()
    yield event
    event.set()


def settings(**changed: Any) -> TrainSettings:
    return replace(bind(TrainSettings, compose([])["train"], "train"), **changed)


def table(task: Task) -> RewardTable:
    return RewardTable({outcome: task.score[outcome] for outcome in task.outcomes})


def same(one: Rollout, other: Rollout) -> bool:
    return (
        (one.prompt, one.completion.tokens, one.turns, one.judgement, one.text)
        == (other.prompt, other.completion.tokens, other.turns, other.judgement, other.text)
        and (one.example, one.sample, one.greedy) == (other.example, other.sample, other.greedy)
        and np.array_equal(one.completion.logprobs, other.completion.logprobs)
        and np.array_equal(one.completion.entropies, other.completion.entropies)
    )


class TestAskingOnce:
    """An agent that asks once is the task's own way to ask."""

    @pytest.mark.parametrize(("path", "budget"), [("tree", 10**6), ("padded", 10**6), ("tree", 1050)])
    def test_rollouts_are_the_same(self, policy: Policy, tictactoe: Any, path: str, budget: int) -> None:
        # The small budget makes several batches of the boards.
        built_in = rollouts(sampler_of(policy, tictactoe, path=path, budget=budget), 6, 5, greedy=True)
        agents = rollouts(sampler_of(policy, agent_task(), path=path, budget=budget), 6, 5, greedy=True)
        assert all(
            same(one, other)
            for group, others in zip(built_in, agents, strict=True)
            for one, other in zip(group, others, strict=True)
        )
        assert len({rollout.judgement.outcome for group in agents for rollout in group}) > 3

    @pytest.mark.parametrize("algorithm", ["gspo", "gspo_token", "grpo"])
    def test_rewards_advantages_and_gradients_are_the_same(
        self, policy: Policy, tictactoe: Any, algorithm: str
    ) -> None:
        chosen = settings(algorithm=algorithm, entropy_bonus=0.0, entropy_target=0.0)
        results = [learned(twin(policy), task, chosen, 4, 8) for task in (tictactoe, agent_task())]
        check_same_learning(*results)

    @pytest.mark.slow
    def test_with_the_real_model(self, smollm2_dir: Path, load: Any, tictactoe: Any) -> None:
        chosen = settings(entropy_bonus=0.1)
        results = []
        for task in (tictactoe, agent_task()):
            policy = load(smollm2_dir, "smollm2_135m")
            results.append(learned(policy, task, chosen, 1, 5, DecodingSettings(1.0, 28)))
        check_same_learning(*results)


Learning = tuple[RolloutBatch, list[torch.Tensor]]


def learned(
    policy: Policy, task: Task, chosen: TrainSettings, boards: int, samples: int, *decoding: DecodingSettings
) -> Learning:
    """A batch of rollouts, and the gradients of its update."""
    sampler = sampler_of(policy, task, *decoding)
    batch = make_batch(rollouts(sampler, boards, samples), table(task), chosen)
    parameters = [p for p in policy.model.parameters() if p.requires_grad]
    optimizer = make_optimizer(parameters, chosen)
    Updater(policy.model, sampler.engine, optimizer, chosen, sampler.decoding).update(batch)
    return batch, [p.grad for p in parameters if p.grad is not None]


def check_same_learning(one: Learning, other: Learning) -> None:
    (batch, gradients), (others, other_gradients) = one, other
    assert np.ptp(batch.rewards) > 0
    assert np.array_equal(batch.rewards, others.rewards)
    assert np.array_equal(batch.advantages, others.advantages)
    assert any(gradient.any() for gradient in gradients)
    assert all(torch.equal(g, o) for g, o in zip(gradients, other_gradients, strict=True))


class Remembering:
    """Keeps the rollouts that a sampler draws."""

    def __init__(self, sampler: Sampler) -> None:
        self.kept: list[Rollout] = []
        draw = sampler.groups

        def groups(*arguments: Any, **more: Any) -> Iterator[list[list[Rollout]]]:
            for batch in draw(*arguments, **more):
                self.kept += [rollout for group in batch for rollout in group]
                yield batch

        sampler.groups = groups  # type: ignore[method-assign]


class TestMany:
    """64 agents at once, while a training runs."""

    def test_nothing_is_lost_or_mixed_up(self, policy: Policy, tmp_path: Path) -> None:
        heard: dict[str, list[str]] = defaultdict(list)
        numbers = iter(range(1000))

        async def marked(client: Any, example: AgentExample) -> None:
            mark = f"<mark {next(numbers)}>"
            messages = [
                *example.messages[:-1],
                {"role": "user", "content": f"{mark} {example.messages[-1]['content']}"},
            ]
            for turn in range(3):
                response = await client.chat.completions.create(
                    model="policy", messages=messages, tools=example.tools
                )
                message = response.choices[0].message
                heard[mark].append((message.content or "") + calls_of(message))
                await asyncio.sleep(0.003 * (next(numbers) % 5))
                messages += [
                    message.model_dump(exclude_none=True),
                    {"role": "user", "content": f"{mark} turn {turn}"},
                ]

        mine = twin(policy)
        sampler = agents_of(mine, marked)
        remembering = Remembering(sampler)
        chosen = settings(steps=2, n_boards=8, n_samples=8, checkpoint_every=0, learning_rate=1e-3)
        trainer = Trainer(mine, sampler, table(sampler.task), chosen, Checkpoints(tmp_path, "digest"))
        before = twin(mine)
        rows = trainer.run(sampler.task.generate(32, 1), lambda row, costs: None)
        assert rows[0]["train/updates"] == 1
        assert max(float(row["train/logprob_diff"] or 0) for row in rows) < 1e-4

        assert len(remembering.kept) == 128
        chat, seen = sampler.chat, set()
        for rollout in remembering.kept:
            whole = chat.decode(rollout.prompt + rollout.completion.tokens)
            marks = {f"<mark{part.partition('>')[0]}>" for part in whole.split("<mark")[1:]}
            (mark,) = marks
            seen.add(mark)
            assert whole.count(mark) == 3  # the first question, and after two of its three replies
            replies = [chat.decode(rollout.completion.tokens[t.start : t.stop]) for t in rollout.turns]
            assert [letters(reply) for reply in replies] == [letters(reply) for reply in heard[mark]]
        assert len(seen) == 128
        first = remembering.kept[:64]
        check_rescored(sampler_of(before, sampler.task), first)

    def test_what_was_not_sampled_is_masked(self, policy: Policy) -> None:
        sampler = agents_of(policy, second_chance)
        groups = rollouts(sampler, 6, 6)
        kept = [rollout for group in groups for rollout in group]
        assert {len(rollout.turns) for rollout in kept} == {1, 2}
        for rollout in kept:
            between = ~rollout.sampled
            assert not rollout.completion.logprobs[between].any()
            assert (rollout.completion.logprobs[rollout.sampled] < 0).all()
            if len(rollout.turns) == 2:
                inserted = sampler.chat.decode(np.array(rollout.completion.tokens)[between].tolist())
                assert "error: " in inserted and "call again" in inserted
                judged = rollout.judgement
                last = sampler.chat.decode(rollout.completion.tokens[rollout.turns[1].start :])
                assert judged.call is None or str(judged.call.arguments["square"]) in last
        check_rescored(sampler, kept)

    def test_nothing_is_left_behind(self, policy: Policy) -> None:
        sampler = agents_of(policy)
        rollouts(sampler, 2, 2)
        process = psutil.Process()
        threads, files = threading.active_count(), process.num_fds()
        for _ in range(12):
            rollouts(sampler, 2, 4)
        settle(lambda: threading.active_count() <= threads and process.num_fds() <= files)

    def test_a_stopped_trainer_leaves_nothing(self, policy: Policy) -> None:
        sampler = agents_of(policy)
        rollouts(sampler, 1, 1)
        threads = threading.active_count()

        def interrupted(*_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

        sampler.engine.sample = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            rollouts(sampler, 2, 4)
        settle(lambda: threading.active_count() <= threads)


def calls_of(message: Any) -> str:
    """Tool calls as a reply writes them."""
    return "".join(
        f'<tool_call>{{"name": "{call.function.name}", "arguments": {call.function.arguments}}}</tool_call>'
        for call in message.tool_calls or []
    )


def letters(text: str) -> list[str]:
    """What a text is made of: a client gets the text of a reply apart from its calls."""
    return sorted("".join(text.split()))


def check_rescored(sampler: Sampler, kept: list[Rollout]) -> None:
    """Recorded log-probs are those of scoring the recorded tokens."""
    scored = sampler.engine.logprobs(
        [r.prompt for r in kept], [r.completion.tokens for r in kept], sampler.decoding.temperature
    ).detach()
    for rollout, row in zip(kept, scored.numpy(), strict=True):
        difference = row[: len(rollout.completion.tokens)] - rollout.completion.logprobs
        assert np.abs(difference[rollout.sampled]).max() < 1e-4


def settle(done: Callable[[], bool]) -> None:
    """Wait until it is so."""
    for _ in range(200):
        if done():
            return
        time.sleep(0.05)
    pytest.fail(f"never so; threads: {[thread.name for thread in threading.enumerate()]}")


async def raising(client: Any, example: AgentExample) -> None:
    await single_reply(client, example)
    raise ValueError("the agent's own bug")


async def leaving(client: Any, example: AgentExample) -> None:
    raise SystemExit(3)


async def interrupting(client: Any, example: AgentExample) -> None:
    raise KeyboardInterrupt


async def silent(client: Any, example: AgentExample) -> None:
    pass


async def judging_unasked(client: Any, example: AgentExample) -> Judgement:
    return Judgement("win")


async def returning_text(client: Any, example: AgentExample) -> Any:
    await single_reply(client, example)
    return "win"


async def judging_wrongly(client: Any, example: AgentExample) -> Judgement:
    await single_reply(client, example)
    return Judgement("triumph")


async def telling_objects(client: Any, example: AgentExample) -> Judgement:
    await single_reply(client, example)
    return Judgement("win", None, {"client": client})


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


async def unspeakable(client: Any, example: AgentExample) -> None:
    raise UnspeakableError


async def telling_endlessly(client: Any, example: AgentExample) -> Judgement:
    await single_reply(client, example)
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"deeper": deep}
    return Judgement("win", None, deep)


async def telling_no_number(client: Any, example: AgentExample) -> Judgement:
    await single_reply(client, example)
    return Judgement("win", None, {"value": float("nan")})


async def calling_nothing(client: Any, example: AgentExample) -> Judgement:
    await single_reply(client, example)
    return Judgement("win", ToolCall(object(), {}))  # type: ignore[arg-type]


async def spoiling(client: Any, example: AgentExample) -> None:
    """Changes all that it is given, after it has asked."""
    await single_reply(client, example)
    example.tools[0]["function"]["name"] = "evil"
    example.data["board"].clear()
    example.messages[0]["content"] = "Lose."
    raise ValueError("all spoilt")


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


async def nesting_tools(client: Any, example: AgentExample) -> None:
    tool = {"type": "function", "function": {"name": "deep", "parameters": nested(600)}}
    await client.chat.completions.create(model="policy", messages=example.messages, tools=[tool])


async def nesting_arguments(client: Any, example: AgentExample) -> None:
    call = {"name": "deep", "arguments": json.dumps(nested(900))}
    said = {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": call}]}
    messages = [example.messages[0], said, {"role": "user", "content": "?"}]
    await client.chat.completions.create(model="policy", messages=messages)


async def forking(client: Any, example: AgentExample) -> None:
    await single_reply(client, example)
    messages = [*example.messages[:-1], {"role": "user", "content": "Something else"}]
    await client.chat.completions.create(model="policy", messages=messages, tools=example.tools)


async def breaking_its_loop(client: Any, example: AgentExample) -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(1)


ERRORS = {
    raising: "ValueError: the agent's own bug",
    leaving: "SystemExit: 3",
    interrupting: "KeyboardInterrupt",
    silent: "without a request that the policy answered",
    judging_unasked: "without a request that the policy answered",
    returning_text: "it returned str, expected None or a Judgement",
    judging_wrongly: "it judged 'triumph', which is not among",
    telling_objects: "its judgement cannot be written down",
    unspeakable: "UnspeakableError",
    telling_endlessly: "its judgement cannot be written down",
    telling_no_number: "its judgement cannot be written down",
    calling_nothing: "its judgement cannot be written down: the name of its call is no text",
    spoiling: "ValueError: all spoilt",
    nesting_tools: "the body: nested deeper than 64 levels",
    nesting_arguments: "the arguments of a call of deep: nested deeper than 64 levels",
    forking: r"messages[5] is",
    breaking_its_loop: "CancelledError",
}


def mixture(functions: list[Any]) -> Any:
    """An agent that behaves on the first boards as ``functions`` do, and well on the others."""

    async def run(client: Any, example: AgentExample) -> Any:
        number = int(example.id.rpartition("-")[2])
        function = functions[number] if number < len(functions) else single_reply
        return await function(client, example)

    return run


class TestMisbehaviour:
    def test_an_error_costs_its_own_sample(
        self, policy: Policy, tictactoe: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        functions = list(ERRORS)
        groups = rollouts(agents_of(policy, mixture(functions)), len(functions) + 2, 2)
        for function, group in zip(functions, groups, strict=False):
            for rollout in group:
                assert rollout.judgement.outcome == "agent_error", function.__name__
                assert ERRORS[function] in rollout.judgement.facts["why"]
                json.dumps(dict(rollout.judgement.facts), allow_nan=False)
                assert tictactoe.parse(rollout.example.line()) == rollout.example
        plain = rollouts(sampler_of(policy, tictactoe), len(functions) + 2, 2)
        for group, others in zip(groups[-2:], plain[-2:], strict=True):
            for one, other in zip(group, others, strict=True):
                assert one.completion.tokens == other.completion.tokens
                assert one.judgement == other.judgement
                assert np.allclose(one.completion.logprobs, other.completion.logprobs, atol=1e-5)
        assert capsys.readouterr().err.count("agent_error on") == 1

    def test_whoever_takes_too_long_is_not_waited_for(
        self, policy: Policy, released: threading.Event
    ) -> None:
        async def awaiting(client: Any, example: AgentExample) -> None:
            await single_reply(client, example)
            await asyncio.sleep(1000)

        async def sleeping(client: Any, example: AgentExample) -> None:
            released.wait(300)  # as time.sleep or a slow program would

        async def busy(client: Any, example: AgentExample) -> None:
            await single_reply(client, example)
            while not released.is_set():
                pass

        async def patient(client: Any, example: AgentExample) -> None:
            await asyncio.sleep(1.5)  # while the late ones are still waited for
            await single_reply(client, example)

        functions = [awaiting, sleeping, busy, patient]
        sampler = agents_of(policy, mixture(functions), timeout=3.0, gather=0.2)
        groups = rollouts(sampler, 5, 1)
        outcomes = [group[0].judgement.outcome for group in groups]
        assert outcomes[:3] == ["agent_timeout"] * 3
        assert not set(outcomes[3:]) & {"agent_timeout", "agent_error"}
        assert [len(group[0].turns) for group in groups] == [1, 0, 1, 1, 1]
        assert "3 s of its own" in groups[0][0].judgement.facts["why"]

    def test_one_that_only_repeats_itself_holds_nobody_up(self, policy: Policy) -> None:
        """It asks again and again what is refused, until another agent has got an answer."""
        answered = threading.Event()

        async def nagging(client: Any, example: AgentExample) -> None:
            while not answered.is_set():
                with contextlib.suppress(openai.BadRequestError):
                    await client.chat.completions.create(model="policy", messages=example.messages, n=7)
            await single_reply(client, example)

        async def asking(client: Any, example: AgentExample) -> None:
            await single_reply(client, example)
            answered.set()

        groups = rollouts(agents_of(policy, mixture([nagging, asking]), timeout=20.0, gather=0.2), 2, 1)
        assert not {g[0].judgement.outcome for g in groups} & {"agent_timeout", "agent_error"}

    def test_a_run_that_ends_without_its_answer_gets_none(self, policy: Policy) -> None:
        async def leaving_at_once(client: Any, example: AgentExample) -> None:
            request = asyncio.create_task(single_reply(client, example))
            await asyncio.sleep(0.5)  # the request waits, for the other agent is busy
            request.cancel()

        async def busy(client: Any, example: AgentExample) -> None:
            await asyncio.sleep(2.0)
            await single_reply(client, example)

        groups = rollouts(agents_of(policy, mixture([leaving_at_once, busy]), gather=60.0), 2, 1)
        assert "without a request" in groups[0][0].judgement.facts["why"]
        assert groups[0][0].turns == () and len(groups[1][0].turns) == 1

    def test_blocking_calls_of_an_agent_do_not_outlive_the_process(self, policy: Policy) -> None:
        async def calling(client: Any, example: AgentExample) -> None:
            await single_reply(client, example)
            thread = await asyncio.to_thread(threading.current_thread)
            loop = asyncio.get_running_loop()
            raise ValueError(f"daemon {thread.daemon}, {await loop.run_in_executor(None, pow, 2, 5)}")

        ((rollout,),) = rollouts(agents_of(policy, calling), 1, 1)
        assert rollout.judgement.facts["why"] == "ValueError: daemon True, 32"

    def test_waiting_for_the_policy_is_not_the_agents_time(
        self, policy: Policy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sampler = agents_of(policy, second_chance, timeout=1.5)
        engine, sample = sampler.engine, sampler.engine.sample

        def slow(*arguments: Any, **more: Any) -> Any:
            time.sleep(2.0)
            return sample(*arguments, **more)

        monkeypatch.setattr(engine, "sample", slow)
        outcomes = {group[0].judgement.outcome for group in rollouts(sampler, 4, 1)}
        assert "agent_timeout" not in outcomes

    def test_a_late_run_is_refused(self, policy: Policy) -> None:
        codes: list[str | None] = []

        async def late(client: Any, example: AgentExample) -> None:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(1000)
            try:
                await single_reply(client, example)
            except openai.BadRequestError as error:
                codes.append(error.code)

        async def slow(client: Any, example: AgentExample) -> None:
            await asyncio.sleep(1.0)
            await single_reply(client, example)  # answered once the late one is given up
            await asyncio.sleep(1.0)

        groups = rollouts(agents_of(policy, mixture([late, slow]), timeout=3.0, gather=60.0), 2, 1)
        assert [len(group[0].turns) for group in groups] == [0, 1]
        assert groups[0][0].judgement.outcome == "agent_timeout"
        assert codes == ["run_over"]

    def test_nobody_learns_from_nothing(self, policy: Policy, tmp_path: Path) -> None:
        chosen = settings(steps=1, n_boards=2, n_samples=4, checkpoint_every=0)

        async def sometimes(client: Any, example: AgentExample) -> None:
            if next(calls) % 2:
                await single_reply(client, example)

        for function, some in ((silent, False), (sometimes, True)):
            calls = iter(range(100))
            mine = twin(policy)
            sampler = agents_of(mine, function)
            trainer = Trainer(
                mine, sampler, table(sampler.task), chosen, Checkpoints(tmp_path / str(some), "d")
            )
            (row,) = trainer.run(sampler.task.generate(4, 0), lambda row, costs: None)
            assert (row["rollout/entropy"] is not None) == some
            assert row["rollout/outcome/agent_error"] == (0.5 if some else 1.0)


@pytest.mark.parametrize("number", [0, 1])
def test_the_documentations_agents_run(policy: Policy, number: int) -> None:
    text = (ROOT / "docs" / "agents.md").read_text()
    blocks = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "run_agent" in block]
    found: dict[str, Any] = {}
    exec(blocks[number], found)
    kept = [r for group in rollouts(agents_of(policy, found["run_agent"]), 6, 3) for r in group]
    assert not {r.judgement.outcome for r in kept} & {"agent_error", "agent_timeout"}
    assert max(len(r.turns) for r in kept) == number + 1


class TestSettings:
    @pytest.mark.parametrize(
        ("limits", "message"),
        [
            ({"agent": "nowhere.run"}, "cannot import nowhere"),
            ({"agent": "run"}, "expected package.module.function"),
            ({"agent": "tests.test_agents.nobody"}, "tests.test_agents has no nobody"),
            ({"agent": "tests.test_agents.settle"}, "no `async def` function"),
            ({"agent": "tests.test_agents.no_example"}, "cannot be called with a client and an example"),
            ({"timeout": 0.0}, "task.timeout = 0.0"),
            ({"max_requests": 0}, "task.max_requests = 0"),
            ({"gather": -1.0}, "task.gather = -1.0"),
            ({"task": {"_target_": "ninegrid.tasks.tictactoe.TicTacToeGame"}}, "several"),
            ({"task": {"_target_": "nowhere.Task"}}, "the task that the agent plays: .*nowhere"),
        ],
    )
    def test_what_cannot_be_is_refused(self, limits: dict[str, Any], message: str) -> None:
        from ninegrid.errors import SettingsError

        with pytest.raises(SettingsError, match=message):
            agent_task(**limits)

    def test_it_is_the_task_that_it_wraps(self, tictactoe: Any) -> None:
        task = agent_task()
        assert isinstance(task, Task) and not isinstance(task, Interactive)
        assert set(task.outcomes) == {*tictactoe.outcomes, "agent_error", "agent_timeout"}
        assert {task.score["agent_error"], task.score["agent_timeout"]} == {min(tictactoe.score.values())}
        assert task.generate(3, 1) == tictactoe.generate(3, 1)
        (example,) = task.generate(1, 1)
        assert task.user(example) == tictactoe.user(example)
        assert isinstance(task, Perturbable)
        found = task.perturbations()
        assert found.keys() == tictactoe.perturbations().keys()
        flipped = (
            found["squares_reversed"].task if "squares_reversed" in found else next(iter(found.values())).task
        )
        assert type(flipped) is type(task) and flipped.agent == task.agent  # type: ignore[attr-defined]


async def no_example(client: Any) -> None:
    pass


@pytest.mark.slow
def test_the_whole_loop_is_the_built_in_one(project: Project, whole_loop: Project) -> None:
    project.params(*SMOKE, "task=agent", "reward=agent", "task.gather=60")  # however busy the machine is
    project.dvc("repro")

    def read(root: Path, name: str) -> Any:
        return json.loads((root / "data" / name).read_text())

    training, built_in = (read(p.root, "train/metrics.json") for p in (project, whole_loop))
    assert training == built_in and training["weights_sha256"]
    for name in ("baseline", "retest"):
        ours, theirs = (read(p.root, f"{name}/metrics.json") for p in (project, whole_loop))
        for decoding in ("sampled", "greedy"):
            for failure in ("agent_error", "agent_timeout"):
                assert ours[decoding]["outcomes"].pop(failure)["rate"] == 0
            assert ours[decoding] == theirs[decoding]
        assert read(project.root, f"{name}/conditions.json")["agent"].endswith("single_reply")
