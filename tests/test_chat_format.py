"""Prompts and replies: the Hermes template, the choice of one, token ids, and what a saved policy carries."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from ninegrid.chat.format import ChatFormat, ChatSettings
from ninegrid.chat.judging import judge_reply
from ninegrid.chat.parser import argument_span, parse_reply
from ninegrid.chat.template import CHATML
from ninegrid.config import bind
from ninegrid.errors import NinegridError, SettingsError
from ninegrid.policy.sampler import Sampler
from ninegrid.tasks.protocol import Example, Judgement, ToolCall
from ninegrid.tree.choice import choose_engine
from ninegrid.tree.settings import DecodingSettings, EngineSettings
from tests.small_tasks import Parrot

PROMPT = """\
<|im_start|>system
Repeat the word.

<tools>
{"name":"say","description":"—","parameters":{"type":"object","properties":{"word":{"type":"string"}},\
"required":["word"],"additionalProperties":false}}
{"name":"count","description":"—","parameters":{"type":"object","properties":{"times":{"type":"integer",\
"minimum":1,"maximum":9}},"required":["times"],"additionalProperties":false}}
</tools>
Answer with one tool call:
<tool_call>{"name":NAME,"arguments":{...}}</tool_call><|im_end|>
<|im_start|>user
Say oak<|im_end|>
<|im_start|>assistant
<tool_call>{"name":"say","arguments":{"word":"oak"}}</tool_call><|im_end|>
<|im_start|>user
Say élan<|im_end|>
<|im_start|>assistant
<tool_call>{"name":"say","arguments":{"word":"élan"}}</tool_call><|im_end|>
<|im_start|>user
Say word0<|im_end|>
<|im_start|>assistant
"""

# Templates as other models bring them, in this file's own words.
SPEAKS_TOOLS = """\
{{ bos_token }}{% for tool in tools or [] %}TOOL {{ tool | tojson }}
{% endfor %}
{% for message in messages %}
<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls or [] %}
<tool_call>
{{ call.function | tojson }}
</tool_call>{% endfor %}
<|im_end|>
{% endfor %}
{% if add_generation_prompt %}<|im_start|>assistant
{% if terse is defined and terse %}(terse){% endif %}{% endif %}"""
OTHER_DIALECT = SPEAKS_TOOLS.replace("<tool_call>", "[CALL]").replace("</tool_call>", "[/CALL]")
HIDES_TOOLS = SPEAKS_TOOLS.replace("tool | tojson", "'hidden'")
NO_CALLS = "{% for message in messages %}{{ message.role + message.content }}{% endfor %}{{ tools }}"
RAISES = "{% if messages | length > 2 %}{{ raise_exception('one turn only') }}{% endif %}{{ tools }}"


# SmolLM2's vocabulary lacks some of the 256 bytes: six control characters, and where U+40000 and on begin.
ENCODABLE = st.characters(codec="utf-8", max_codepoint=0x3FFFF, exclude_categories=["Cc"])


@pytest.fixture(scope="module")
def chat(tokenizer: Any) -> ChatFormat:
    """The small task under the real tokenizer, for tests that need many replies."""
    return ChatFormat(tokenizer, ChatSettings(), Parrot())


@pytest.fixture
def speaking(tokenizer: Any) -> Any:
    """The real tokenizer with a template of its own that speaks tools."""
    return with_template(tokenizer, SPEAKS_TOOLS)


def with_template(tokenizer: Any, template: Any) -> Any:
    changed = copy.deepcopy(tokenizer)
    changed.chat_template = template
    return changed


def hermes(tokenizer: Any, messages: list[Any], tools: Any = None, prompt: bool = False) -> str:
    """Any conversation under our template."""
    template = ChatFormat(tokenizer, ChatSettings(template="hermes"), Parrot()).template.text
    return str(
        tokenizer.apply_chat_template(
            messages, tools=tools, chat_template=template, add_generation_prompt=prompt, tokenize=False
        )
    )


def call(name: str, arguments: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


class TestHermesTemplate:
    def test_whole_prompt(self, tokenizer: Any) -> None:
        task = Parrot()
        assert ChatFormat(tokenizer, ChatSettings(), task).render(task.generate(1, 0)[0]) == PROMPT

    def test_a_call_is_24_tokens_and_a_stop(self, tokenizer: Any) -> None:
        text = hermes(
            tokenizer, [{"role": "assistant", "tool_calls": [call("choose_square", {"square": 5})]}]
        )
        turn = text.removeprefix("<|im_start|>assistant\n").removesuffix("\n")
        assert turn == '<tool_call>{"name":"choose_square","arguments":{"square":5}}</tool_call><|im_end|>'
        # < tool _ call > {" name ":" choose _ square "," arguments ": {" square ": 5 }} </ tool _ call >
        assert len(tokenizer(turn)["input_ids"]) == 24 + 1

    @pytest.mark.parametrize("arguments", [{"a": "é", "b": [1, None]}, '{"a":"é","b":[1,null]}'])
    def test_arguments_as_object_or_as_text(self, tokenizer: Any, arguments: Any) -> None:
        text = hermes(
            tokenizer, [{"role": "assistant", "content": None, "tool_calls": [call("f", arguments)]}]
        )
        assert text == (
            '<|im_start|>assistant\n<tool_call>{"name":"f","arguments":{"a":"é","b":[1,null]}}</tool_call><|im_end|>\n'
        )

    @pytest.mark.parametrize("arguments", [{}, "", "{}", None])
    def test_no_arguments_are_an_empty_object(self, tokenizer: Any, arguments: Any) -> None:
        text = hermes(tokenizer, [{"role": "assistant", "tool_calls": [call("f", arguments)]}])
        assert parse_reply(text).calls[0].arguments == {}

    def test_content_before_several_calls(self, tokenizer: Any) -> None:
        calls = [call("f", {"x": 1}), {"name": "g", "arguments": {}}]
        text = hermes(tokenizer, [{"role": "assistant", "content": "Now.", "tool_calls": calls}])
        assert text == (
            '<|im_start|>assistant\nNow.\n<tool_call>{"name":"f","arguments":{"x":1}}</tool_call>\n'
            '<tool_call>{"name":"g","arguments":{}}</tool_call><|im_end|>\n'
        )

    def test_tool_results_are_user_turns_joined_while_they_follow_each_other(self, tokenizer: Any) -> None:
        messages = [
            {"role": "user", "content": "Go"},
            {"role": "tool", "content": "1"},
            {"role": "tool", "name": "f", "content": "2"},
            {"role": "assistant", "content": "Well"},
            {"role": "tool", "content": [{"type": "text", "text": "3"}]},
        ]
        assert hermes(tokenizer, messages, prompt=True) == (
            "<|im_start|>user\nGo<|im_end|>\n"
            "<|im_start|>user\n<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\nWell<|im_end|>\n"
            "<|im_start|>user\n<tool_response>\n3\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n"
        )

    def test_without_system_or_tools(self, tokenizer: Any) -> None:
        ask = {"role": "user", "content": "Hi"}
        user = "<|im_start|>user\nHi<|im_end|>\n"
        assert hermes(tokenizer, [ask]) == user
        assert hermes(tokenizer, [ask], tools=[]) == user
        assert hermes(tokenizer, [{"role": "system", "content": "Be"}, ask]) == (
            "<|im_start|>system\nBe<|im_end|>\n" + user
        )
        tools = Parrot().tools
        alone = hermes(tokenizer, [ask], tools=tools)
        assert alone.startswith('<|im_start|>system\n<tools>\n{"name":"say"')
        assert alone == hermes(tokenizer, [{"role": "system", "content": ""}, ask], tools=tools)
        assert alone.endswith("<|im_end|>\n" + user)

    def test_tools_without_their_wrapper_and_content_in_parts(self, tokenizer: Any) -> None:
        parts = [{"type": "text", "text": "A"}, {"type": "image"}, {"type": "text", "text": "B"}]
        ask = [{"role": "system", "content": parts}, {"role": "user", "content": parts}]
        wrapped = hermes(tokenizer, ask, tools=Parrot().tools)
        assert wrapped == hermes(tokenizer, ask, tools=[tool["function"] for tool in Parrot().tools])
        assert wrapped.startswith("<|im_start|>system\nAB\n\n<tools>")
        assert wrapped.endswith("<|im_start|>user\nAB<|im_end|>\n")


class TestMessages:
    def test_worked_examples_are_earlier_turns(self, tokenizer: Any) -> None:
        task = Parrot()
        chat = ChatFormat(tokenizer, ChatSettings(worked_examples=1), task)
        assert chat.messages(task.generate(1, 7)[0]) == [
            {"role": "system", "content": "Repeat the word."},
            {"role": "user", "content": "Say oak"},
            {"role": "assistant", "content": "", "tool_calls": [call("say", {"word": "oak"})]},
            {"role": "user", "content": "Say word7"},
        ]

    def test_none_are_shown_when_none_are_asked_for(self, tokenizer: Any, tictactoe: Any) -> None:
        chat = ChatFormat(tokenizer, ChatSettings(worked_examples=0), tictactoe)
        assert [m["role"] for m in chat.messages(tictactoe.generate(1, 0)[0])] == ["system", "user"]

    def test_more_than_the_task_has(self, tokenizer: Any) -> None:
        with pytest.raises(SettingsError, match=r"chat\.worked_examples = 3, but task parrot offers 2"):
            ChatFormat(tokenizer, ChatSettings(worked_examples=3), Parrot())

    def test_every_number_of_examples_of_tictactoe(self, tokenizer: Any, tictactoe: Any) -> None:
        example = tictactoe.generate(1, 0)[0]
        offered = len(tictactoe.worked_examples())
        lengths = []
        for count in range(offered + 1):
            chat = ChatFormat(tokenizer, ChatSettings(worked_examples=count), tictactoe)
            prompt = chat.render(example)
            assert prompt.count('<tool_call>{"name":"choose_square"') == count
            lengths.append(len(chat.encode(example)))
        assert lengths == sorted(set(lengths))

    def test_an_empty_system_message_is_no_message(
        self, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        task = Parrot()
        monkeypatch.setattr(task, "system", lambda: "", raising=True)
        chat = ChatFormat(tokenizer, ChatSettings(worked_examples=0), task)
        assert [m["role"] for m in chat.messages(task.generate(1, 0)[0])] == ["user"]


class TestChoice:
    def test_a_template_without_tools_is_not_used(self, tokenizer: Any) -> None:
        assert tokenizer.chat_template
        assert ChatFormat(tokenizer, ChatSettings(), Parrot()).template.source == "hermes"

    def test_the_models_own_is_used_where_it_speaks_tools(self, speaking: Any) -> None:
        chat = ChatFormat(speaking, ChatSettings(), Parrot())
        assert (chat.template.source, chat.template.text) == ("model", SPEAKS_TOOLS)
        assert 'TOOL {"type": "function"' in chat.render(Parrot().generate(1, 0)[0])

    def test_either_can_be_forced(self, speaking: Any) -> None:
        prompts = {
            choice: ChatFormat(speaking, ChatSettings(template=choice), Parrot()).render(
                Parrot().generate(1, 0)[0]
            )
            for choice in ("auto", "model", "hermes")
        }
        assert prompts["hermes"] == PROMPT
        assert prompts["auto"] == prompts["model"] != PROMPT

    @pytest.mark.parametrize(
        ("template", "reason"),
        [
            (None, "no chat template"),
            (OTHER_DIALECT, r"does not write a call as <tool_call>JSON</tool_call>.*\[CALL\]"),
            (HIDES_TOOLS, "does not show the tool say"),
            (NO_CALLS, "does not write a call"),
            (SPEAKS_TOOLS.replace("</tool_call>", "</tool_call><tool_call>"), "does not write a call"),
            (RAISES, "fails on a tool call.*one turn only"),
            ("{{ messages[0].content + 5 }}", "fails on a tool call.*TypeError"),
            ("{% for", "fails on a tool call.*TemplateSyntaxError"),
            ({"rag": SPEAKS_TOOLS}, "none is the default"),
        ],
    )
    def test_unfit_templates(self, tokenizer: Any, template: Any, reason: str) -> None:
        changed = with_template(tokenizer, template)
        assert ChatFormat(changed, ChatSettings(), Parrot()).template.source == "hermes"
        with pytest.raises(NinegridError, match=rf"(?s)chat\.template = model.*model: .*{reason}"):
            ChatFormat(changed, ChatSettings(template="model"), Parrot())

    def test_of_several_templates_the_one_for_tools(self, tokenizer: Any) -> None:
        changed = with_template(tokenizer, {"default": NO_CALLS, "tool_use": SPEAKS_TOOLS})
        chat = ChatFormat(changed, ChatSettings(), Parrot())
        assert chat.template.text == SPEAKS_TOOLS
        assert chat.saved_tokenizer().chat_template == SPEAKS_TOOLS

    def test_hermes_needs_chatml_tokens(self) -> None:
        plain = byte_fallback_tokenizer(special=["</s>"], eos_token="</s>")
        with pytest.raises(
            NinegridError, match=r"model: .*no chat template; hermes: .*no token <\|im_start\|>"
        ):
            ChatFormat(plain, ChatSettings(), Parrot())

    def test_a_prompt_that_loses_a_tool_is_refused(self, tokenizer: Any) -> None:
        forgetful = SPEAKS_TOOLS.replace(
            "in tools or []", "in ([] if messages[-1].content == 'Say word7' else tools)"
        )
        chat = ChatFormat(with_template(tokenizer, forgetful), ChatSettings(worked_examples=0), Parrot())
        chat.render(Parrot().generate(1, 6)[0])
        with pytest.raises(NinegridError, match="prompt of word7 does not show the tool say"):
            chat.render(Parrot().generate(1, 7)[0])


class TestTemplateVariables:
    def test_change_the_prompt(self, speaking: Any) -> None:
        example = Parrot().generate(1, 0)[0]
        plain = ChatFormat(speaking, ChatSettings(), Parrot()).render(example)
        terse = ChatFormat(speaking, ChatSettings(template_kwargs={"terse": True}), Parrot()).render(example)
        assert terse == plain + "(terse)"
        off = ChatFormat(speaking, ChatSettings(template_kwargs={"terse": False}), Parrot()).render(example)
        assert off == plain

    @pytest.mark.parametrize(
        "value",
        [True, False, None, 3, -0.5, 1e300, 'it\'s "é"\n{{ x }} %} \\', ["a", 1], {"k": [None, True]}],
    )
    def test_any_json_value_arrives_as_it_is(self, tokenizer: Any, value: Any) -> None:
        template = SPEAKS_TOOLS.replace("(terse)", "").replace(
            "{% if terse", "{{ extra | tojson }}{% if terse"
        )
        chat = ChatFormat(
            with_template(tokenizer, template), ChatSettings(template_kwargs={"extra": value}), Parrot()
        )
        prompt = chat.render(Parrot().generate(1, 0)[0])
        assert prompt.endswith("assistant\n" + json.dumps(value, ensure_ascii=False))

    def test_are_defaults_that_a_server_can_override(self, speaking: Any) -> None:
        chat = ChatFormat(speaking, ChatSettings(template_kwargs={"terse": True}), Parrot())
        text = chat.saved_tokenizer().apply_chat_template(
            [{"role": "user", "content": "?"}], terse=False, add_generation_prompt=True, tokenize=False
        )
        assert text.endswith("assistant\n")

    def test_unread_variables_are_refused(self, tokenizer: Any, speaking: Any) -> None:
        with pytest.raises(
            SettingsError, match=r"template_kwargs\.tersely would do nothing: the model template"
        ):
            ChatFormat(speaking, ChatSettings(template_kwargs={"tersely": True}), Parrot())
        with pytest.raises(
            SettingsError, match=r"template_kwargs\.terse would do nothing: the hermes template"
        ):
            ChatFormat(tokenizer, ChatSettings(template_kwargs={"terse": True}), Parrot())

    @pytest.mark.parametrize(
        ("raw", "message"),
        [
            ({"worked_examples": -1}, r"chat\.worked_examples = -1, allowed: >= 0"),
            ({"worked_examples": 1.5}, r"chat\.worked_examples = 1\.5"),
            ({"template": "chatml"}, r"chat\.template = 'chatml', expected one of auto, model, hermes"),
            ({"template_kwargs": {"tools": []}}, r"chat\.template_kwargs\.tools"),
            ({"template_kwargs": {"not a name": 1}}, r"chat\.template_kwargs\.not a name"),
            ({"template_kwargs": {"x": float("nan")}}, r"chat\.template_kwargs\.x = nan, allowed: JSON data"),
            ({"worked_exmples": 1}, r"did you mean chat\.worked_examples"),
        ],
    )
    def test_impossible_settings(self, raw: dict[str, Any], message: str) -> None:
        with pytest.raises(SettingsError, match=message):
            bind(ChatSettings, raw, "chat")


class TestTokens:
    def test_ids_are_those_of_the_standard_call(self, tokenizer: Any, tictactoe: Any) -> None:
        chat = ChatFormat(tokenizer, ChatSettings(), tictactoe)
        example = tictactoe.generate(1, 0)[0]
        standard = tokenizer.apply_chat_template(
            chat.messages(example),
            tools=list(tictactoe.tools),
            chat_template=chat.template.text,
            add_generation_prompt=True,
        )
        assert chat.encode(example) == standard["input_ids"]
        assert tokenizer.decode(chat.encode(example)) == chat.render(example)

    def test_special_tokens_are_never_added_twice(self, tokenizer: Any) -> None:
        begins = with_template(tokenizer, SPEAKS_TOOLS)
        begins.bos_token = "<|endoftext|>"
        begins.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single="<|endoftext|> $A <|im_end|>", special_tokens=[("<|endoftext|>", 0), ("<|im_end|>", 2)]
        )
        assert begins("a")["input_ids"][0] == 0
        assert begins("a")["input_ids"][-1] == 2
        ids = ChatFormat(begins, ChatSettings(), Parrot()).encode(Parrot().generate(1, 0)[0])
        assert ids.count(0) == 1
        assert ids[0] == 0
        assert ids[-1] != 2

    def test_stop_ids(self, tokenizer: Any) -> None:
        assert ChatFormat(tokenizer, ChatSettings(), Parrot()).stop_ids == {
            2
        }  # <|im_end|>, the end token too
        other_end = copy.deepcopy(tokenizer)
        other_end.eos_token = "<|endoftext|>"
        assert ChatFormat(other_end, ChatSettings(), Parrot()).stop_ids == {0, 2}
        no_end = copy.deepcopy(tokenizer)
        no_end.eos_token = None
        assert ChatFormat(no_end, ChatSettings(), Parrot()).stop_ids == {2}

    def test_a_template_that_never_ends_a_turn_is_refused(self, tokenizer: Any) -> None:
        endless = with_template(tokenizer, SPEAKS_TOOLS.replace("<|im_end|>", ""))
        endless.eos_token = None
        with pytest.raises(NinegridError, match="a reply would never stop"):
            ChatFormat(endless, ChatSettings(template="model"), Parrot())

    def test_decode_drops_the_final_stop_only(self, tokenizer: Any) -> None:
        chat = ChatFormat(tokenizer, ChatSettings(), Parrot())
        for body in ("", "Hi ", "<|endoftext|>", "a<|im_start|> b", " <tool_call>", "👍🏽", "a .", "don 't"):
            ids = tokenizer(body)["input_ids"]
            assert chat.decode(ids) == body
            assert chat.decode([*ids, 2]) == body
            assert chat.decode((*ids, 2, 2)) == body + "<|im_end|>"

    @given(text=st.text(ENCODABLE))
    def test_decode_gives_back_any_text(self, chat: ChatFormat, text: str) -> None:
        assert chat.decode([*chat.tokenizer(text)["input_ids"], 2]) == text


def byte_fallback_tokenizer(special: list[str], **names: str) -> Any:
    """A tokenizer that spells: printable ASCII one character a token, all else one token a byte."""
    pieces = [*special, *map(chr, range(32, 127)), "\n", *(f"<0x{byte:02X}>" for byte in range(256))]
    model = models.BPE({piece: i for i, piece in enumerate(pieces)}, [], byte_fallback=True)
    backend = Tokenizer(model)
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens([AddedToken(token, special=True) for token in special])
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


def judged(chat: ChatFormat, ids: list[int]) -> Judgement:
    return judge_reply(chat.task, chat.task.parse({"word": "oak"}), chat.decode(ids))


def token_at(tokenizer: Any, ids: list[int], byte: int) -> int:
    """Index of the token that holds a byte of the text; a byte-level token has one character a byte."""
    lengths = [len(token) for token in tokenizer.convert_ids_to_tokens(ids)]
    return next(i for i, end in enumerate(accumulate(lengths)) if end > byte)


class TestDecision:
    def test_by_hand(self, tokenizer: Any) -> None:
        chat = ChatFormat(tokenizer, ChatSettings(), Parrot())
        ids = tokenizer('<tool_call>{"name":"say","arguments":{"word":"oak"}}</tool_call><|im_end|>')[
            "input_ids"
        ]
        index = chat.decision_index(ids, judged(chat, ids).call)
        assert index is not None
        # The quote that opens the value shares its token with the colon before it.
        assert tokenizer.convert_ids_to_tokens(ids)[index - 1 : index + 2] == ["word", '":"', "o"]

    @pytest.mark.parametrize("value", ["5", "10", "-1", "5.0", "true", '"5"', "[5]"])
    @pytest.mark.parametrize("space", ["", " ", "\n\t"])
    def test_squares(self, tokenizer: Any, tictactoe: Any, value: str, space: str) -> None:
        chat = ChatFormat(tokenizer, ChatSettings(), tictactoe)
        before = f'5? <tool_call>{{"name":"choose_square","arguments":{{"square":{space}'
        ids = tokenizer(f"{before}{value}}}}}</tool_call>")["input_ids"]
        judgement = judge_reply(tictactoe, tictactoe.generate(1, 0)[0], chat.decode(ids))
        assert chat.decision_index(ids, judgement.call) == token_at(tokenizer, ids, len(before))

    @given(
        prose=st.text(st.sampled_from("a <é€👍🏽\u200d٥\n"), max_size=12),
        word=st.text(ENCODABLE.filter(lambda c: c not in '"\\' and c.isprintable()), max_size=6),
        space=st.text(" \n\t", max_size=3),
        cuts=st.lists(st.integers(0, 120), max_size=12),
        stop=st.booleans(),
    )
    def test_is_the_token_at_the_first_byte_of_the_value(
        self, chat: ChatFormat, prose: str, word: str, space: str, cuts: list[int], stop: bool
    ) -> None:
        before = f'{prose}<tool_call>{{"name":"say","arguments":{{"w\\u006frd"{space}:{space}'
        reply = f'{before}"{word}"}}}}</tool_call>{prose}'
        # Ids as a sampler may draw them, not as the tokenizer would cut the whole text.
        edges = [0, *sorted(min(cut, len(reply)) for cut in cuts), len(reply)]
        pieces = [reply[start:end] for start, end in pairwise(edges)]
        ids = [i for piece in pieces for i in chat.tokenizer(piece)["input_ids"]] + [2] * stop
        assert chat.decode(ids) == reply
        assert chat.decision_index(ids, judged(chat, ids).call) == token_at(
            chat.tokenizer, ids, len(before.encode())
        )

    @pytest.mark.parametrize("prose", ["", "abc", "é", "👍 👍🏽", "\n€"])
    def test_with_a_tokenizer_that_falls_back_to_bytes(self, prose: str) -> None:
        spelling = byte_fallback_tokenizer(special=list(CHATML), eos_token="<|im_end|>")
        chat = ChatFormat(spelling, ChatSettings(), Parrot())
        reply = f'{prose}<tool_call>{{"name":"say","arguments":{{"word":"é"}}}}</tool_call>'
        ids = [*spelling(reply, add_special_tokens=False)["input_ids"], spelling.eos_token_id]
        # A token a byte, so the index is the number of bytes before the value.
        assert chat.decision_index(ids, judged(chat, ids).call) == len(reply[: reply.index('"é"')].encode())

    @pytest.mark.parametrize(
        "reply",
        [
            "oak",
            '<tool_call>{"name":"count","arguments":{"times":3}}</tool_call>',
            '<tool_call>{"name":"sing","arguments":{"word":"oak"}}</tool_call>',
            '<tool_call>{"name":"say","arguments":{"word":"oak"}}',
        ],
        ids=["no call", "other argument", "wrong tool", "cut"],
    )
    def test_none_without_a_decision(self, tokenizer: Any, reply: str) -> None:
        chat = ChatFormat(tokenizer, ChatSettings(), Parrot())
        ids = tokenizer(reply)["input_ids"]
        assert chat.decision_index(ids, judged(chat, ids).call) is None

    def test_none_where_the_task_names_no_decision(self, tokenizer: Any) -> None:
        task = Parrot()
        task.decision = None
        chat = ChatFormat(tokenizer, ChatSettings(), task)
        ids = tokenizer('<tool_call>{"name":"say","arguments":{"word":"oak"}}</tool_call>')["input_ids"]
        assert chat.decision_index(ids, judged(chat, ids).call) is None

    def test_needs_the_judgement_of_this_reply(self, tokenizer: Any) -> None:
        chat = ChatFormat(tokenizer, ChatSettings(), Parrot())
        ids = tokenizer("nothing here")["input_ids"]
        elsewhere = Judgement("hit", ToolCall("say", {"word": "oak"}, (0, 67)))
        assert chat.decision_index(ids, elsewhere.call) is None


class TestSavedPolicy:
    @pytest.mark.parametrize("source", ["hermes", "model"])
    def test_renders_the_same_bytes_anywhere(
        self, tokenizer: Any, speaking: Any, tictactoe: Any, tmp_path: Path, source: str
    ) -> None:
        kwargs = {"terse": True} if source == "model" else {}
        base = speaking if source == "model" else tokenizer
        chat = ChatFormat(base, ChatSettings(template_kwargs=kwargs), tictactoe)
        assert chat.template.source == source
        chat.saved_tokenizer().save_pretrained(tmp_path)
        saved = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
        for example in tictactoe.generate(20, 0):
            conversation = {"conversation": chat.messages(example), "tools": list(tictactoe.tools)}
            text = saved.apply_chat_template(**conversation, add_generation_prompt=True, tokenize=False)
            assert text.encode() == chat.render(example).encode()
            ids = saved.apply_chat_template(**conversation, add_generation_prompt=True)["input_ids"]
            assert ids == chat.encode(example)

    @pytest.mark.parametrize("kwargs", [{}, {"terse": True}])
    def test_is_measured_as_the_base_model_was(
        self, tokenizer: Any, speaking: Any, tictactoe: Any, tmp_path: Path, kwargs: dict[str, Any]
    ) -> None:
        chosen = ChatSettings(template_kwargs=kwargs)
        before = ChatFormat(speaking if kwargs else tokenizer, chosen, tictactoe)
        before.saved_tokenizer().save_pretrained(tmp_path)
        after = ChatFormat(AutoTokenizer.from_pretrained(tmp_path, local_files_only=True), chosen, tictactoe)
        assert after.template.source == "model"
        assert after.fingerprint() == before.fingerprint()
        assert after.stop_ids == before.stop_ids

    def test_leaves_the_tokenizer_alone(self, tokenizer: Any) -> None:
        own = tokenizer.chat_template
        saved = ChatFormat(tokenizer, ChatSettings(), Parrot()).saved_tokenizer()
        assert tokenizer.chat_template == own != saved.chat_template
        assert getattr(tokenizer, "response_template", None) is None

    def test_lets_servers_read_tool_calls(self, tokenizer: Any, tictactoe: Any, tmp_path: Path) -> None:
        chat = ChatFormat(tokenizer, ChatSettings(), tictactoe)
        chat.saved_tokenizer().save_pretrained(tmp_path)
        saved = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
        prompt = chat.render(tictactoe.generate(1, 0)[0])
        reply = 'So:\n<tool_call>{"name":"choose_square","arguments":{"square":5}}</tool_call><|im_end|>'
        message = saved.parse_response(saved(reply)["input_ids"], prefix=prompt)
        assert message == {
            "role": "assistant",
            "content": "So:",
            "tool_calls": [call("choose_square", {"square": 5})],
        }
        assert saved.parse_response("No.<|im_end|>", prefix=prompt) == {"role": "assistant", "content": "No."}


class Quoting(Parrot):
    """A task whose own messages hold tool calls."""

    def system(self) -> str:
        return 'Answer so: <tool_call>{"name":"say","arguments":{"word":"oak"}}</tool_call>'

    def user(self, example: Example) -> str:
        return f'<tool_call>{{"name":"say","arguments":{{"word":"{example.data["word"]}"}}}}</tool_call>'


def test_calls_in_the_prompt_never_reach_the_parser(
    tiny_dir: Path, load: Callable[[Path, str], Any], tokenizer: Any
) -> None:
    task = Quoting()
    chat = ChatFormat(tokenizer, ChatSettings(), task)
    examples = task.generate(4, 0)
    assert parse_reply(chat.render(examples[0])).blocks >= 6  # system, template, worked examples, question
    policy = load(tiny_dir, "tiny_random")
    engine = choose_engine(policy.model, EngineSettings())
    sampler = Sampler(engine, chat, task, DecodingSettings(max_new_tokens=6), budget=10_000)
    rollouts = [r for batch in sampler.groups(examples, 2, ("prompt",)) for group in batch for r in group]
    assert len(rollouts) == 8
    # Random weights write no call, and the many calls of the prompt are not taken for one.
    assert {r.judgement.outcome for r in rollouts} == {"no_tool_call"}
    assert all("tool_call" not in r.text for r in rollouts)


def test_fingerprint_tells_what_shapes_the_prompt(tokenizer: Any, speaking: Any) -> None:
    def fingerprint(tokenizer: Any, task: Parrot, **chosen: Any) -> dict[str, str]:
        return ChatFormat(tokenizer, ChatSettings(**chosen), task).fingerprint()

    base = fingerprint(tokenizer, Parrot())
    assert base == fingerprint(copy.deepcopy(tokenizer), Parrot())
    assert list(base) == ["template_sha256", "tools_sha256", "prompt_sha256"]
    renamed = Parrot()
    renamed.tools[0]["function"]["name"] = "utter"

    def changed(other: dict[str, str]) -> set[str]:
        return {key.removesuffix("_sha256") for key in base if base[key] != other[key]}

    assert changed(fingerprint(tokenizer, Parrot(), worked_examples=1)) == {"prompt"}
    assert changed(fingerprint(speaking, Parrot())) == {"template", "prompt"}
    assert changed(fingerprint(tokenizer, renamed)) == {"tools", "prompt"}


def test_settings_can_be_checked_without_torch() -> None:
    code = "import sys, ninegrid.chat.format; print({'torch', 'transformers'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"


def test_argument_span_agrees_with_the_decoded_reply(tokenizer: Any) -> None:
    chat = ChatFormat(tokenizer, ChatSettings(), Parrot())
    ids = tokenizer('é <tool_call>{"name":"say","arguments":{"word":"oak"}}</tool_call><|im_end|>')[
        "input_ids"
    ]
    judgement = judged(chat, ids)
    assert judgement.call is not None
    span = argument_span(chat.decode(ids), judgement.call, "word")
    assert span is not None
    assert chat.decode(ids)[slice(*span)] == '"oak"'
