"""Reasoning models: thoughts are sampled and trained on, and are no part of the answer."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ninegrid.agents.answer import make_answer, said
from ninegrid.chat.dialect import HERMES, Dialect
from ninegrid.chat.format import ChatFormat, ChatSettings
from ninegrid.chat.forms import call_form
from ninegrid.chat.judging import judge_reply
from ninegrid.chat.parser import ParsedReply, parse_reply
from ninegrid.errors import CannotForceError, NinegridError
from ninegrid.evaluation.episodes import make_episode
from ninegrid.gspo.batch import make_batch
from ninegrid.gspo.settings import TrainSettings
from ninegrid.gspo.update import Updater
from ninegrid.policy.agent import Agent, make_agent
from ninegrid.policy.loading import Policy, load_policy, save_policy
from ninegrid.policy.settings import LocalSource, ModelSettings
from ninegrid.reward import RewardTable
from ninegrid.tasks.tictactoe import TicTacToeGame
from ninegrid.tree.engine import Completion
from ninegrid.tree.settings import DecodingSettings, EngineSettings
from tests.dialects import LING, QWEN, gemma, speaking
from tests.small_tasks import Parrot, function

CALL = '<tool_call>{"name":"say","arguments":{"word":"oak"}}</tool_call>'
WRONG = CALL.replace("oak", "elm")
TAGGED = "<tool_call>say\n<arg_key>word</arg_key>\n<arg_value>oak</arg_value>\n</tool_call>"
OPENED = Dialect(in_thought=True)


@pytest.mark.parametrize(
    ("reply", "dialect", "outcome"),
    [
        (f"<think>Hm.</think>{CALL}", HERMES, "hit"),
        (f"<think>\n{WRONG}\n</think>\n\n{CALL}", HERMES, "hit"),
        (f"{CALL}<think>{WRONG}</think>", HERMES, "hit"),
        (f"<think>a</think>b<think>{WRONG}</think>{CALL}", HERMES, "hit"),
        (f"<think>{CALL}</think>", HERMES, "no_tool_call"),
        (f"<think>{CALL}", HERMES, "no_tool_call"),
        (f"Hm.</think>{CALL}", HERMES, "hit"),
        (f"Hm.</think>{CALL}", OPENED, "hit"),
        (f"{WRONG}</think>{CALL}", OPENED, "hit"),
        (f"<think>{WRONG}</think>{CALL}", OPENED, "hit"),
        (CALL, OPENED, "no_tool_call"),
        ("", OPENED, "no_tool_call"),
        (f"</think>{CALL}{CALL}", OPENED, "multiple_calls"),
        (f"</think>{CALL[:-3]}", OPENED, "invalid_arguments"),
        (CALL.replace("oak", "<think>"), HERMES, "miss"),
    ],
)
def test_a_call_within_a_thought_is_no_call(reply: str, dialect: Dialect, outcome: str) -> None:
    task = Parrot()
    assert judge_reply(task, task.parse({"word": "oak"}), reply, dialect).outcome == outcome


@pytest.mark.parametrize(
    ("reply", "dialect", "why"),
    [
        ("Hm. <tool_call>", OPENED, "the reply ends within its thought"),
        ("Hm. <think> so", HERMES, "the reply ends within its thought"),
        ("Hm.</think>", OPENED, "the reply opens no <tool_call>"),
        ("<think>Hm.</think> No.", HERMES, "the reply opens no <tool_call>"),
    ],
)
def test_the_facts_say_whether_the_thought_came_to_an_end(reply: str, dialect: Dialect, why: str) -> None:
    task = Parrot()
    assert judge_reply(task, task.parse({"word": "oak"}), reply, dialect).facts == {"why": why}


def test_thoughts_are_told_with_their_markers() -> None:
    # <think>a</think> takes 7 + 1 + 8 = 16 characters, b one, and <think>c to the end 8.
    assert parse_reply("<think>a</think>b<think>c") == ParsedReply(
        thoughts=((0, 16), (17, 25)), cut_in_thought=True
    )
    assert parse_reply("a</think>b", OPENED) == ParsedReply(thoughts=((0, 9),))


@pytest.fixture(scope="module")
def ling(tokenizer: Any) -> ChatFormat:
    return ChatFormat(speaking(tokenizer, LING), ChatSettings(), Parrot())


def encode(chat: ChatFormat, text: str) -> list[int]:
    return list(chat.tokenizer(text, add_special_tokens=False)["input_ids"])


class TestDialects:
    def test_are_found_by_trying_the_template_out(self, ling: ChatFormat, tokenizer: Any) -> None:
        assert (ling.template.source, ling.dialect) == ("model", Dialect("xml", in_thought=True))
        off = ChatSettings(template_kwargs={"enable_thinking": False})
        quiet = ChatFormat(speaking(tokenizer, LING), off, Parrot())
        assert quiet.dialect == Dialect("xml")
        assert quiet.render(Parrot().generate(1, 0)[0]).endswith("<role>ASSISTANT</role>\n<think></think>")
        for settings in (ChatSettings(), off):
            assert ChatFormat(speaking(tokenizer, QWEN), settings, Parrot()).dialect == HERMES

    def test_a_template_that_quotes_texts_is_not_used(self, tokenizer: Any) -> None:
        quotes = LING.replace("value if value is string else value | tojson", "value | tojson")
        assert quotes != LING
        with pytest.raises(NinegridError, match=r"model: it does not write a call as .*nor with <arg_key>"):
            ChatFormat(speaking(tokenizer, quotes), ChatSettings(template="model"), Parrot())

    def test_the_end_of_a_turn_ends_replies(self, ling: ChatFormat) -> None:
        assert ling.tokenizer.convert_ids_to_tokens(list(ling.stop_ids)) == ["<|role_end|>"]

    @pytest.mark.parametrize("thought", ["", "Hm", "é <tool_call>say</tool_call> €"])
    @pytest.mark.parametrize("word", ["oak", "élan", "€", "5", ""])
    def test_the_token_that_decides_is_found_behind_a_thought(
        self, ling: ChatFormat, thought: str, word: str
    ) -> None:
        before = f"{thought}</think>\n<tool_call>say\n<arg_key>word</arg_key>\n<arg_value>"
        # Ids as a sampler may draw them: the value begins a token of its own.
        ids = [*encode(ling, before), *encode(ling, f"{word}</arg_value></tool_call><|role_end|>")]
        task = Parrot()
        judgement = judge_reply(task, task.parse({"word": word}), ling.decode(ids), ling.dialect)
        assert judgement.outcome == "hit"
        assert ling.decision_index(ids, judgement.call) == len(encode(ling, before))

    def test_worked_examples_read_as_they_were_meant(self, ling: ChatFormat) -> None:
        task = Parrot()
        for worked in task.worked_examples():
            ids = ling.answer(worked.example, ling.messages(worked.example)[2])
            judgement = judge_reply(task, worked.example, ling.decode(ids), ling.dialect)
            assert ling.decode(ids).startswith("</think>\n<tool_call>")
            assert judgement.outcome in ("hit", "miss")

    def test_servers_read_what_we_read(self, ling: ChatFormat, tmp_path: Path) -> None:
        ling.saved_tokenizer().save_pretrained(tmp_path)
        saved = type(ling.tokenizer).from_pretrained(tmp_path)
        prompt = ling.render(Parrot().generate(1, 0)[0])
        told = saved.parse_response(
            f"Hm. {TAGGED}</think>So:\n{TAGGED}<|role_end|>", prefix=prompt, tools=list(Parrot().tools)
        )
        assert told == {
            "role": "assistant",
            "reasoning_content": f"Hm. {TAGGED}",
            "content": "So:",
            "tool_calls": [{"type": "function", "function": {"name": "say", "arguments": {"word": "oak"}}}],
        }


class TestGemma:
    def test_system_and_tools_stand_in_the_first_user_turn(self, tokenizer: Any) -> None:
        task = Parrot()
        chat = ChatFormat(gemma(tokenizer), ChatSettings(worked_examples=1), task)
        assert (chat.template.source, chat.dialect) == ("hermes", HERMES)
        prompt = chat.render(task.generate(1, 0)[0])
        assert prompt.startswith('<bos><start_of_turn>user\nRepeat the word.\n\n<tools>\n{"name":"say"')
        assert prompt.endswith(
            "</tool_call>\n\nSay oak<end_of_turn>\n"
            f"<start_of_turn>model\n{CALL}<end_of_turn>\n"
            "<start_of_turn>user\nSay word0<end_of_turn>\n<start_of_turn>model\n"
        )
        assert chat.decode(encode(chat, f"{CALL}<end_of_turn>")) == CALL

    def test_other_beginnings_and_tool_results(self, tokenizer: Any) -> None:
        chat = ChatFormat(gemma(tokenizer), ChatSettings(), Parrot())
        talk = [{"role": "system", "content": "Be"}, {"role": "assistant", "content": "Hi"}]
        talk += [{"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}]
        assert chat.template.render(chat.tokenizer, talk, ()) == (
            "<bos><start_of_turn>user\nBe<end_of_turn>\n<start_of_turn>model\nHi<end_of_turn>\n"
            "<start_of_turn>user\n<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>"
            "<end_of_turn>\n<start_of_turn>model\n"
        )
        assert chat.template.render(chat.tokenizer, [{"role": "user", "content": "Hi"}], ()) == (
            "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"
        )

    def test_servers_read_it(self, tokenizer: Any) -> None:
        chat = ChatFormat(gemma(tokenizer), ChatSettings(), Parrot())
        prompt = chat.render(Parrot().generate(1, 0)[0])
        message = chat.saved_tokenizer().parse_response(f"{CALL}<end_of_turn>\n", prefix=prompt)
        assert message["tool_calls"][0]["function"] == {"name": "say", "arguments": {"word": "oak"}}


class TestFollowUp:
    GAME = TicTacToeGame()
    RESULT = {"role": "tool", "content": "next"}  # noqa: RUF012  # never changed

    def chat(self, tokenizer: Any, template: str, **variables: Any) -> ChatFormat:
        return ChatFormat(speaking(tokenizer, template), ChatSettings(template_kwargs=variables), self.GAME)

    @pytest.mark.parametrize("variables", [{}, {"enable_thinking": False}])
    @pytest.mark.parametrize("reply", ["Hm.</think>So", "<think>\nHm.\n</think>\n\nSo", "So"])
    @pytest.mark.parametrize(
        ("template", "between"),
        [
            (
                LING,
                "<|role_end|><role>OBSERVATION</role>\n<tool_response>\nnext\n</tool_response><|role_end|>",
            ),
            (QWEN, "<|im_end|>\n<|im_start|>user\n<tool_response>\nnext\n</tool_response><|im_end|>\n"),
        ],
        ids=["ling", "qwen"],
    )
    def test_is_what_lies_between_two_replies(
        self, tokenizer: Any, template: str, between: str, reply: str, variables: dict[str, Any]
    ) -> None:
        """Twice in a row, for a template may write the last turn otherwise than those before."""
        chat = self.chat(tokenizer, template, **variables)
        talk = chat.messages(self.GAME.generate(1, 0)[0])
        for _ in range(2):
            ids = encode(chat, reply)
            added = chat.tokenizer.decode(chat.follow_up(talk, ids, [self.RESULT]))
            result = between.format(result="<tool_response>\nnext\n</tool_response>")
            assert added == result + chat.template.manner.opening
            talk = [*talk, {"role": "assistant", "content": chat.decode(ids)}, self.RESULT]

    def test_a_thought_that_goes_once_the_user_asks_again_is_refused(self, tokenizer: Any) -> None:
        chat = self.chat(tokenizer, QWEN)
        talk, ids = chat.messages(self.GAME.generate(1, 0)[0]), encode(chat, "<think>\nHm.\n</think>\n\nSo")
        with pytest.raises(NinegridError, match="writes a reply otherwise once it is answered"):
            chat.follow_up(talk, ids, [{"role": "user", "content": "And now?"}])
        # An empty thought was said by nobody.
        added = chat.follow_up(talk, encode(chat, "So"), [{"role": "user", "content": "And now?"}])
        assert chat.tokenizer.decode(added).startswith("<|im_end|>\n<|im_start|>user\nAnd now?<|im_end|>")


class TestForced:
    def test_a_thought_that_the_prompt_opened_is_ended_first(self, ling: ChatFormat) -> None:
        forced = ling.forced_call()
        ids: list[int] = []
        rng = np.random.default_rng(0)
        while not ids or ids[-1] not in ling.stop_ids:
            allowed = np.flatnonzero(forced.allowed(ids))
            # Letters alone, lest a drawn word goes on for ever.
            ends = [i for i in allowed if "<" in ling.tokenizer.decode([i])]
            ids.append(int(rng.choice(ends if ends else allowed)))
            assert len(ids) < 100
        text = ling.decode(ids)
        assert text.startswith("</think>\n<tool_call>")
        assert len(ling.read(text).calls) == 1

    @pytest.mark.parametrize(
        ("template", "variables"),
        [(LING, {}), (LING, {"enable_thinking": False}), (QWEN, {})],
        ids=["ling", "ling off", "qwen"],
    )
    def test_only_the_square_is_open(
        self, tokenizer: Any, tictactoe: Any, template: str, variables: dict[str, Any]
    ) -> None:
        settings = ChatSettings(template_kwargs=variables)
        chat = ChatFormat(speaking(tokenizer, template), settings, tictactoe)
        forced, worked = chat.forced_call(), tictactoe.worked_examples()[0]
        ids = encode(chat, chat.write_call(worked.call))
        counts = [int(forced.allowed(ids[:n]).sum()) for n in range(len(ids))]
        assert sorted(counts)[-2:] == [1, 9]
        assert set(np.flatnonzero(forced.allowed(ids)).tolist()) == chat.stop_ids
        # It is the beginning of what the template writes when it answers.
        answer = chat.answer(worked.example, chat.messages(worked.example)[2])
        assert ids == answer[: len(ids)]

    @pytest.mark.parametrize(
        ("properties", "more", "texts"),
        [
            ({"word": {"enum": ["oak", "élan"]}}, {}, {"oak", "élan"}),
            ({"word": {"type": "boolean"}}, {"required": []}, {True, False, None}),
        ],
    )
    def test_values_are_those_of_the_schema(
        self, tokenizer: Any, properties: Any, more: Any, texts: set[Any]
    ) -> None:
        task = Parrot()
        task.tools = [function("say", properties, **more)]
        chat = ChatFormat(speaking(tokenizer, LING), ChatSettings(worked_examples=0), task)
        forced, made = chat.forced_call(), set()
        for seed in range(30):
            rng, ids = np.random.default_rng(seed), list[int]()
            while not ids or ids[-1] not in chat.stop_ids:
                ids.append(int(rng.choice(np.flatnonzero(forced.allowed(ids)))))
            (call,) = chat.read(chat.decode(ids)).calls
            made.add(call.arguments.get("word"))
        assert made == texts

    @pytest.mark.parametrize(
        ("tool", "message"),
        [
            (function("say", {"word": {"type": "string", "pattern": "a+"}}), "pattern of the argument"),
            (function("say", {}, required=["word"]), r"no schema: \['word'\]"),
        ],
    )
    def test_what_cannot_be_forced_names_the_tool(self, ling: ChatFormat, tool: Any, message: str) -> None:
        form = call_form(tool, ling.write_call, "xml")
        with pytest.raises(CannotForceError, match=rf"tool 'say' cannot be forced: .*{message}"):
            form.grammar("call")

    def test_the_length_of_a_text_is_the_schemas(self, ling: ChatFormat) -> None:
        tool = function("say", {"word": {"type": "string", "minLength": 1, "maxLength": 3}})
        assert "call_0_value: /[^<]{1,3}/" in call_form(tool, ling.write_call, "xml").grammar("call")


def test_agents_are_told_thoughts_apart() -> None:
    done = Completion((1, 2), np.zeros(2, np.float32), np.zeros(2, np.float32), "stop")
    text = f"Hm. {TAGGED}</think>\nSo:\n{TAGGED}"
    parsed = parse_reply(text, Dialect("xml", in_thought=True), Parrot().tools)
    answer = make_answer("a", text, parsed, done, 3, 0)
    message = answer["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("So:", f"Hm. {TAGGED}")
    assert [json.loads(c["function"]["arguments"]) for c in message["tool_calls"]] == [{"word": "oak"}]
    assert "reasoning_content" not in said(answer)
    cut = parse_reply("Hm.", Dialect("xml", in_thought=True), Parrot().tools)
    message = make_answer("a", "Hm.", cut, done, 3, 0)["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "", "reasoning_content": "Hm."}


# --- the whole way: sample, judge, update, save ------------------------------------------------------------


def thinker(tiny_dir: Path, template: str, folder: Path) -> Policy:
    """Random weights whose tokenizer speaks ``template``."""
    settings = ModelSettings(name="thinker", source=LocalSource("local", str(folder)), device="cpu")
    policy = load_policy(tiny_dir, settings)
    tokenizer = speaking(policy.tokenizer, template)
    policy.model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    save_policy(policy, folder, tokenizer)
    return load_policy(folder, settings)


def agent_of(policy: Policy, task: Any, *, forced: bool, tokens: int) -> Agent:
    settings: Any = SimpleNamespace(
        decoding=DecodingSettings(max_new_tokens=tokens), engine=EngineSettings(threads=1)
    )
    return make_agent(policy, task, settings, ChatSettings(worked_examples=1), forced=forced)


def test_a_reasoning_model_is_sampled_judged_trained_and_saved(
    tiny_dir: Path, tictactoe: Any, tmp_path: Path
) -> None:
    policy = thinker(tiny_dir, LING, tmp_path / "base")
    agent = agent_of(policy, tictactoe, forced=True, tokens=48)
    (groups,) = agent.sampler.groups(tictactoe.generate(2, 0), 8, ("t",))
    rollouts = [rollout for group in groups for rollout in group]
    assert all(r.text.startswith("</think>\n<tool_call>choose_square") for r in rollouts)
    assert {r.judgement.outcome for r in rollouts} <= {"occupied", "legal", "optimal", "win"}
    chat = agent.chat
    for r in rollouts:
        # The deciding token is the square's digit; the end of the thought before it is sampled like the rest.
        assert r.judgement.call is not None
        (at,) = r.decisions
        assert chat.tokenizer.decode([r.completion.tokens[at]]) == str(r.judgement.call.arguments["square"])
        assert r.n_sampled == len(r.completion.tokens) == int(r.sampled.sum())
    table = RewardTable(dict(tictactoe.score))
    episode = make_episode(rollouts[0], "sampled", tictactoe.score, table)
    assert episode.n_tokens == rollouts[0].n_sampled

    train = TrainSettings(n_boards=2, n_samples=8)
    batch = make_batch(groups, table, train)
    assert batch.informative.any()
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=1.0)
    before = {name: p.detach().clone() for name, p in policy.model.named_parameters()}
    updater = Updater(policy.model, agent.sampler.engine, optimizer, train, agent.sampler.decoding)
    stats = updater.update(batch)
    assert stats.grad_norms and min(stats.grad_norms) > 0
    assert any(not torch.equal(before[name], p) for name, p in policy.model.named_parameters())

    save_policy(policy, tmp_path / "policy", chat.saved_tokenizer())
    saved = load_policy(
        tmp_path / "policy", ModelSettings(name="p", source=LocalSource("local", "policy"), device="cpu")
    )
    again = ChatFormat(saved.tokenizer, chat.settings, tictactoe)
    assert (again.dialect, again.fingerprint()) == (chat.dialect, chat.fingerprint())
    for r in rollouts[:4]:
        told = saved.tokenizer.parse_response(
            r.text, prefix=saved.tokenizer.decode(list(r.prompt)), tools=list(tictactoe.tools)
        )
        ours = [{"name": c.name, "arguments": dict(c.arguments)} for c in again.read(r.text).calls]
        assert [call["function"] for call in told["tool_calls"]] == ours


def test_a_thought_is_sampled_and_its_tokens_are_the_policys(
    tiny_dir: Path, tictactoe: Any, tmp_path: Path
) -> None:
    """Unforced, random weights never end the thought that the prompt opens."""
    agent = agent_of(thinker(tiny_dir, LING, tmp_path / "base"), tictactoe, forced=False, tokens=6)
    (group,) = next(agent.sampler.groups(tictactoe.generate(1, 0), 4, ("t",)))
    for r in group:
        assert r.judgement.facts == {"why": "the reply ends within its thought"}
        assert (r.n_sampled, r.truncated) == (6, True)
        assert (r.completion.logprobs < 0).all()
