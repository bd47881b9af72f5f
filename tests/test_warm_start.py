"""What warm starts teach: the judge's choice of replies, their token ids, the record and the settings."""

import json
import random
from dataclasses import replace

import pytest

from ninegrid.chat.format import ChatFormat, ChatSettings
from ninegrid.chat.judging import judge_reply
from ninegrid.config import bind, unbind
from ninegrid.errors import DataError, NinegridError, SettingsError
from ninegrid.paths import PathSettings
from ninegrid.tasks.protocol import ToolCall
from ninegrid.warm_start.choices import best_choice, preference
from ninegrid.warm_start.lessons import drawn_examples, make_lessons
from ninegrid.warm_start.record import starting_model
from ninegrid.warm_start.settings import DpoRecipe, SftRecipe, WarmStartSettings
from tests.larger import Larger
from tests.small_tasks import Parrot

SFT = SftRecipe(method="sft", seed=1, examples=6, epochs=1, batch_size=3, learning_rate=1e-3)
DPO = DpoRecipe(method="dpo", seed=1, examples=6, epochs=1, batch_size=3, learning_rate=1e-3, beta=0.1)


def board(task, rows):
    return task.parse({"id": rows, "board": [list(rows[i : i + 3]) for i in (0, 3, 6)]})


def call_of(choice):
    return choice.turn["tool_calls"][0]["function"]["arguments"]


@pytest.fixture(scope="module")
def examples(tictactoe):
    return tictactoe.generate(12, 3)


@pytest.fixture(scope="module")
def chat(tokenizer, tictactoe):
    return ChatFormat(tokenizer, ChatSettings(worked_examples=1), tictactoe)


# What the judge would have taught.


def test_a_win_is_taught_where_there_is_one(tictactoe):
    example = board(tictactoe, "XX.OO....")
    assert {call_of(best_choice(tictactoe, example, random.Random(i)))["square"] for i in range(30)} == {3}


def test_equally_good_calls_are_drawn_by_seed(tictactoe):
    # On the empty board every move keeps the draw of perfect play.
    empty = board(tictactoe, "." * 9)
    drawn = [call_of(best_choice(tictactoe, empty, random.Random(i)))["square"] for i in range(60)]
    assert set(drawn) == set(range(1, 10))
    assert drawn == [call_of(best_choice(tictactoe, empty, random.Random(i)))["square"] for i in range(60)]


def test_the_rejected_reply_is_worse_and_each_worse_outcome_is_as_likely(tictactoe):
    # Of XX.OO.... square 3 wins, 6 blocks and keeps no forced win, 1, 2, 4, 5 are taken, 7 to 9 lose to 6.
    example = board(tictactoe, "XX.OO....")
    pairs = [preference(tictactoe, example, random.Random(i)) for i in range(600)]
    assert {chosen.outcome for chosen, _ in pairs} == {"win"}
    share = {o: sum(r.outcome == o for _, r in pairs) / 600 for o in ("no_tool_call", "occupied", "legal")}
    # A third each; the standard deviation of a share is sqrt(1/3 * 2/3 / 600) = 0.019.
    assert all(abs(value - 1 / 3) < 0.08 for value in share.values())
    assert sum(share.values()) == pytest.approx(1)
    occupied = {call_of(r)["square"] for _, r in pairs if r.outcome == "occupied"}
    assert occupied == {1, 2, 4, 5}


def test_where_every_call_is_best_the_rejected_reply_calls_no_tool(tictactoe):
    chosen, rejected = preference(tictactoe, board(tictactoe, "." * 9), random.Random(0))
    assert rejected.outcome == "no_tool_call"
    assert json.loads(rejected.turn["content"]) == call_of(chosen)


@pytest.mark.parametrize(
    ("task", "best", "worse"),
    [(Larger(), "larger", {"smaller", "no_tool_call"}), (Parrot(), "hit", {"miss", "no_tool_call"})],
    ids=["larger", "parrot"],
)
def test_any_task_that_names_calls_can_be_taught(task, best, worse):
    pairs = [preference(task, e, random.Random(i)) for i in range(20) for e in task.generate(3, 1)]
    assert {chosen.outcome for chosen, _ in pairs} == {best}
    assert {rejected.outcome for _, rejected in pairs} == worse


@pytest.mark.parametrize("calls", [[], [ToolCall("say", {"word": 3}), ToolCall("shout", {"word": "oak"})]])
def test_a_task_without_a_valid_call_is_refused(calls):
    class Mute(Parrot):
        def candidate_calls(self, example):
            return calls

    task = Mute()
    with pytest.raises(SettingsError, match="task parrot names no valid call for word1"):
        best_choice(task, task.generate(1, 1)[0], random.Random(0))


# Token ids.


def test_an_answer_continues_the_prompt_as_the_template_writes_it(chat, tictactoe):
    example = board(tictactoe, "XX.OO....")
    choice = best_choice(tictactoe, example, random.Random(0))
    ids = chat.answer(example, choice.turn)
    assert ids[-1] in chat.stop_ids
    assert not set(ids[:-1]) & chat.stop_ids
    text = '<tool_call>{"name":"choose_square","arguments":{"square":3}}</tool_call>'
    assert chat.decode(ids) == text
    # The worked example in the prompt is an answered prompt too.
    assert f"<|im_start|>assistant\n{text.replace('3', '9')}<|im_end|>\n" in chat.render(example)


def hermes_with(tokenizer, tictactoe, old, new):
    changed = ChatFormat(tokenizer, ChatSettings(worked_examples=1), tictactoe).saved_tokenizer()
    assert old in changed.chat_template
    changed.chat_template = changed.chat_template.replace(old, new)
    return ChatFormat(changed, ChatSettings(worked_examples=1, template="model"), tictactoe)


def test_a_template_that_rewrites_the_prompt_once_it_is_answered_is_refused(tokenizer, tictactoe):
    changed = hermes_with(tokenizer, tictactoe, "assistant\\n' if add", "assistant\\nWell: ' if add")
    example = board(tictactoe, "XX.OO....")
    turn = best_choice(tictactoe, example, random.Random(0)).turn
    with pytest.raises(NinegridError, match=r"otherwise once it is answered"):
        changed.answer(example, turn)


def test_an_answer_ends_with_a_stop_token_though_the_template_writes_none(tokenizer, tictactoe):
    changed = hermes_with(tokenizer, tictactoe, "{{- '<|im_end|>\\n' -}}", "{{- '\\n' -}}")
    example = board(tictactoe, "XX.OO....")
    ids = changed.answer(example, best_choice(tictactoe, example, random.Random(0)).turn)
    assert ids[-1] == tokenizer.eos_token_id
    assert changed.decode(ids).endswith("</tool_call>\n")


def test_lessons_are_the_prompts_of_evaluation_with_replies_that_read_as_judged(chat, tictactoe, examples):
    lessons = make_lessons(chat, examples, replace(DPO, examples=None))
    assert {lesson.example.id for lesson in lessons} == {example.id for example in examples}
    for lesson in lessons:
        assert list(lesson.prompt) == chat.encode(lesson.example)
        for reply in (lesson.chosen, lesson.rejected):
            assert judge_reply(tictactoe, lesson.example, chat.decode(reply.ids)).outcome == reply.outcome
        assert lesson.line()["rejected"] == {
            "reply": lesson.rejected.text,
            "outcome": lesson.rejected.outcome,
        }


def test_fewer_examples_are_a_part_of_more_and_another_seed_draws_others(examples):
    few, more, other = (
        [e.id for e in drawn_examples(examples, replace(SFT, **changes))]
        for changes in ({"examples": 3}, {"examples": 6}, {"examples": 6, "seed": 2})
    )
    assert more[:3] == few
    assert len(set(more)) == 6
    assert set(other) != set(more)
    with pytest.raises(SettingsError, match=r"warm_start\.examples = 13, but there are 12 training boards"):
        drawn_examples(examples, replace(SFT, examples=13))


# The record and the settings.


def test_without_a_readable_record_no_training_begins(tmp_path):
    paths = PathSettings(warm_start=str(tmp_path))
    with pytest.raises(DataError, match=r"record\.json does not exist") as caught:
        starting_model(paths)
    assert "dvc repro warm_start" in str(caught.value)
    (tmp_path / "record.json").write_text('{"method": "ppo"}')
    with pytest.raises(DataError, match="method = 'ppo', expected one of none, sft, dpo"):
        starting_model(paths)
    (tmp_path / "record.json").write_text('{"method": "none"}')
    assert starting_model(paths).folder == paths.folder("model")


@pytest.mark.parametrize("recipe", [SFT, DPO], ids=["sft", "dpo"])
def test_settings_bind_by_method(recipe):
    raw = unbind(WarmStartSettings(recipe))
    assert bind(WarmStartSettings, raw, "warm_start") == WarmStartSettings(recipe)
    for key, value in (
        ("examples", 0),
        ("epochs", 0),
        ("batch_size", 0),
        ("learning_rate", 0.0),
        ("seed", -1),
    ):
        with pytest.raises(SettingsError, match=rf"warm_start\.{key} = "):
            bind(WarmStartSettings, {**raw, key: value}, "warm_start")


def test_settings_of_another_method_are_refused():
    with pytest.raises(SettingsError, match=r"warm_start\.method = 'rlhf', allowed: none, sft, dpo"):
        bind(WarmStartSettings, {"method": "rlhf"}, "warm_start")
    with pytest.raises(SettingsError, match=r"unknown setting warm_start\.beta"):
        bind(WarmStartSettings, {**unbind(WarmStartSettings(SFT)), "beta": 0.1}, "warm_start")
    with pytest.raises(SettingsError, match=r"warm_start\.beta = 0\.0, allowed: > 0"):
        bind(WarmStartSettings, {**unbind(WarmStartSettings(DPO)), "beta": 0.0}, "warm_start")
    with pytest.raises(SettingsError, match=r"unknown setting warm_start\.seed"):
        bind(WarmStartSettings, {"method": "none", "seed": 1}, "warm_start")
