"""The alternatives to training: what is measured, how they are set beside the policy, what the page says."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from ninegrid.chat.format import ChatSettings
from ninegrid.config import bind
from ninegrid.errors import ConditionsError, DataError, SettingsError
from ninegrid.evaluation.alternative_files import episodes_file, write_nothing
from ninegrid.evaluation.alternative_settings import NAMES, AlternativeSettings
from ninegrid.evaluation.alternatives import (
    Tried,
    check_conditions,
    check_replies,
    read_alternatives,
    try_alternatives,
    write_alternatives,
)
from ninegrid.evaluation.cheaper import Cheaper
from ninegrid.evaluation.metrics import player_scores
from ninegrid.evaluation.settings import EvalSettings
from ninegrid.params import compose
from ninegrid.policy.settings import LocalSource, ModelSettings
from ninegrid.report.cheaper import section
from ninegrid.report.inputs import read_steps
from ninegrid.report.page import render_page
from ninegrid.tree.settings import DecodingSettings, EngineSettings
from tests.report_inputs import build
from tests.test_paired_comparison import evaluation
from tests.test_report import Page

# --- settings ---------------------------------------------------------------------------------


def test_each_name_is_one_way_to_use_the_untrained_model(tictactoe):
    more, forced, both = AlternativeSettings().chosen(tictactoe)
    assert (more.worked_examples, more.forced) == (4, False)
    assert (forced.worked_examples, forced.forced) == (None, True)
    assert (both.worked_examples, both.forced) == (4, True)
    assert both.label == "untrained, call forced, 4 worked examples"
    assert "4 worked examples" in more.description
    assert "valid call" in forced.description and "valid call" not in more.description


def test_settings_choose_what_is_measured(tictactoe):
    chosen = AlternativeSettings(names=("forced", "more_examples"), worked_examples=3).chosen(tictactoe)
    assert [(a.name, a.worked_examples) for a in chosen] == [("forced", None), ("more_examples", 3)]
    assert AlternativeSettings(names=()).chosen(tictactoe) == []


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"names": ["forced", "forced"]}, r"alternatives\.names = \['forced', 'forced'\]"),
        ({"names": ["force"]}, r"alternatives\.names\[0\] = 'force', expected one of more_examples, forced"),
        ({"worked_examples": 0}, r"alternatives\.worked_examples = 0, allowed: >= 1"),
    ],
)
def test_impossible_settings_are_refused(raw, message):
    with pytest.raises(SettingsError, match=message):
        bind(AlternativeSettings, raw, "alternatives")


def test_more_worked_examples_than_the_task_offers_are_refused(tictactoe):
    with pytest.raises(SettingsError, match=r"alternatives\.worked_examples = 5, .* offers 4"):
        AlternativeSettings(worked_examples=5).chosen(tictactoe)


# --- measuring --------------------------------------------------------------------------------


def try_settings(**alternatives):
    return SimpleNamespace(
        model=bind(ModelSettings, compose(["model=tiny_random"])["model"], "model"),
        chat=ChatSettings(worked_examples=1),
        decoding=DecodingSettings(max_new_tokens=26),
        engine=EngineSettings(threads=1),
        eval=EvalSettings(n_samples=2, resamples=100),
        alternatives=AlternativeSettings(**alternatives),
    )


@pytest.fixture(scope="module")
def boards(tictactoe, tmp_path_factory):
    path = tmp_path_factory.mktemp("boards") / "heldout.jsonl"
    lines = [json.dumps(example.line()) for example in tictactoe.generate(4, seed=5)]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def attempts(tiny_dir, boards, tictactoe):
    return try_alternatives(tiny_dir, boards, tictactoe, try_settings())


@pytest.fixture(scope="module")
def measured(attempts):
    return {a.alternative: a.measurement for a in attempts}


@pytest.fixture(scope="module")
def folder(attempts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tried") / "alternatives"
    write_alternatives(folder, attempts)
    return folder


def test_random_weights_make_valid_calls_where_they_are_forced_to_and_only_there(measured):
    found = {a.name: {str(e.outcome) for e in m.episodes} for a, m in measured.items()}
    assert list(found) == list(NAMES)
    assert found["more_examples"] == {"no_tool_call"}
    for name in ("forced", "forced_more_examples"):
        assert found[name] <= {"occupied", "legal", "optimal", "win"}
        assert len(found[name]) > 1
    for measurement in measured.values():
        assert [e.decoding for e in measurement.episodes] == ["sampled"] * 8 + ["greedy"] * 4


def test_only_what_shows_more_examples_has_another_prompt(measured):
    prompts = {a.name: m.agent.chat.render(m.examples[0]).count("assistant\n") for a, m in measured.items()}
    assert prompts == {"more_examples": 5, "forced": 2, "forced_more_examples": 5}


def test_with_nothing_chosen_the_files_are_there_and_empty(tmp_path, tictactoe):
    write_nothing(tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"metrics.json", "conditions.json", *map(episodes_file, NAMES)}
    assert (tmp_path / "out" / episodes_file("forced")).read_text() == ""
    assert read_alternatives(tmp_path / "out", tictactoe) == {}


def test_what_is_written_is_read_again(folder, measured, tictactoe):
    tried = read_alternatives(folder, tictactoe)
    metrics = json.loads((folder / "metrics.json").read_text())
    for alternative, measurement in measured.items():
        assert tried[alternative.name].episodes == measurement.episodes
        assert tried[alternative.name].label == alternative.label
        assert metrics[alternative.name]["sampled"] == measurement.metrics["sampled"]
        assert metrics[alternative.name]["players"] == measurement.metrics["players"]


def test_where_the_call_cannot_be_forced_the_rest_is_measured(talker_dir, boards, tictactoe, tmp_path):
    """The talker's vocabulary is whole replies; there is nothing in it to write a call with."""
    settings = try_settings()
    settings.model = ModelSettings(name="talker", source=LocalSource("local", str(talker_dir)), device="cpu")
    write_alternatives(tmp_path / "out", try_alternatives(talker_dir, boards, tictactoe, settings))
    tried = read_alternatives(tmp_path / "out", tictactoe)
    assert list(tried) == list(NAMES)
    assert tried["more_examples"].left_out is None
    assert len(tried["more_examples"].episodes) == 12
    assert "cannot read the tokenizer" in tried["forced"].left_out
    assert tried["forced"].episodes == []
    baseline = tried["more_examples"].episodes
    check_replies(tried, baseline)
    found = Cheaper(tictactoe, settings.eval).compare(tictactoe.generate(2, 1), baseline, tried, baseline)
    assert set(found["policies"]) == {"untrained", "more_examples", "trained"}
    assert set(found["left_out"]) == {tried["forced"].label, tried["forced_more_examples"].label}


def test_a_damaged_record_is_one_message(folder, tictactoe):
    whole = (folder / "metrics.json").read_text()
    try:
        (folder / "metrics.json").write_text('{"forced": {}}')
        with pytest.raises(DataError, match="forced: expected a known name with label"):
            read_alternatives(folder, tictactoe)
    finally:
        (folder / "metrics.json").write_text(whole)


def test_alternatives_under_other_conditions_are_refused(folder, measured, tictactoe):
    tried = read_alternatives(folder, tictactoe)
    (plain,) = [m for a, m in measured.items() if a.name == "forced"]
    check_conditions(tried, plain.conditions)  # other prompts are what some of them are
    with pytest.raises(ConditionsError, match="alternative more_examples; seed: more_examples 7, retest 8"):
        check_conditions(tried, {**plain.conditions, "seed": 8})
    check_replies(tried, plain.episodes)
    with pytest.raises(ConditionsError, match="more_examples and the baseline"):
        check_replies(tried, plain.episodes[1:])


# --- the policy beside the alternatives -------------------------------------------------------


def outcomes(sampled, greedy):
    """Episodes with these outcomes on boards b0, b1, ..."""
    return [
        next(e for e in evaluation(*each) if e.decoding == d and e.example["id"] == f"b{i}")
        for d, each in (("sampled", sampled), ("greedy", greedy))
        for i in range(len(each))
    ]


@pytest.fixture
def compared(tictactoe):
    untrained = outcomes(["no_tool_call", "legal"], ["legal", "legal"])
    forced = outcomes(["occupied", "win"], ["legal", "optimal"])
    trained = outcomes(["optimal", "win"], ["win", "legal"])
    tried = {"forced": Tried("call forced", "Held to it.", {}, forced)}
    settings = EvalSettings(resamples=200)
    return Cheaper(tictactoe, settings).compare(tictactoe.generate(2, 1), untrained, tried, trained)


def test_means_and_rates_by_hand(compared):
    policies = compared["policies"]
    # Scores -1 and 0; 0 and 0; -1 and 1; 0 and 0.8; 0.8 and 1; 1 and 0.
    means = {(n, d): policies[n][d]["score"]["mean"] for n in policies for d in ("sampled", "greedy")}
    assert means == pytest.approx(
        {
            ("untrained", "sampled"): -0.5,
            ("untrained", "greedy"): 0.0,
            ("forced", "sampled"): 0.0,
            ("forced", "greedy"): 0.4,
            ("trained", "sampled"): 0.9,
            ("trained", "greedy"): 0.5,
        }
    )
    assert policies["forced"]["sampled"]["milestones"]["legal"]["mean"] == 0.5
    assert policies["trained"]["greedy"]["milestones"]["optimal"]["mean"] == 0.5
    score = policies["forced"]["sampled"]["score"]
    assert (score["low"], score["high"]) == (-1, 1)  # two boards: both may be drawn twice


def test_the_best_alternative_is_paired_with_the_policy_by_hand(compared):
    found = compared["trained_minus_best"]
    # Sampled: 0.8 and 1 less forced -1 and 1: 1.8 and 0.  Greedy: 1 and 0 less forced 0 and 0.8: 1 and -0.8.
    assert (found["sampled"]["best"], found["sampled"]["best_decoding"]) == ("forced", "sampled")
    assert found["sampled"]["change"] == pytest.approx(0.9)
    assert (found["sampled"]["low"], found["sampled"]["high"]) == pytest.approx((0, 1.8))
    assert found["greedy"]["change"] == pytest.approx(0.1)
    assert (found["greedy"]["low"], found["greedy"]["high"]) == pytest.approx((-0.8, 1))
    # Best against best: trained sampled, 0.8 and 1, less forced greedy, 0 and 0.8: 0.8 and 0.2.
    assert found["either"]["trained_decoding"] == "sampled"
    assert found["either"]["best_decoding"] == "greedy"
    assert found["either"]["change"] == pytest.approx(0.5)
    assert (found["either"]["low"], found["either"]["high"]) == pytest.approx((0.2, 0.8))


def test_the_plain_model_is_an_alternative_too(tictactoe):
    untrained = outcomes(["legal", "legal"], ["win", "win"])
    trained = outcomes(["win", "legal"], ["legal", "legal"])
    found = Cheaper(tictactoe, EvalSettings(resamples=100)).compare(
        tictactoe.generate(2, 1), untrained, {}, trained
    )
    either = found["trained_minus_best"]["either"]
    assert (either["best"], either["best_decoding"], either["change"]) == ("untrained", "greedy", -0.5)


def test_more_samples_of_a_board_count_as_their_mean(tictactoe):
    once = outcomes(["legal", "legal"], ["legal", "legal"])
    again = [replace(e, sample=1, score=1.0) for e in once if e.decoding == "sampled"]
    found = Cheaper(tictactoe, EvalSettings(resamples=100)).compare(
        tictactoe.generate(2, 1), once + again, {}, once + again
    )
    assert found["policies"]["trained"]["sampled"]["score"]["mean"] == 0.5
    assert found["trained_minus_best"]["either"]["before"] == 0.5


def test_one_symmetry_class_has_no_interval(tictactoe):
    episodes = [replace(e, group="same") for e in outcomes(["legal", "win"], ["legal", "win"])]
    found = Cheaper(tictactoe, EvalSettings(resamples=100)).compare(
        tictactoe.generate(2, 1), episodes, {}, episodes
    )
    assert found["trained_minus_best"]["either"]["low"] is None
    assert found["policies"]["trained"]["greedy"]["score"]["high"] is None


def test_players_are_exact(compared, tictactoe):
    examples = tictactoe.generate(2, 1)
    players = compared["players"]
    assert {name: p["score"] for name, p in players.items()} == player_scores(tictactoe, examples)
    assert players["minimax"]["milestones"] == {"legal": 1.0, "optimal": 1.0}
    assert players["random_legal"]["milestones"]["legal"] == pytest.approx(1.0)
    assert players["random_legal"]["milestones"]["optimal"] < 1


# --- the page ---------------------------------------------------------------------------------


@pytest.fixture
def inputs(compared, tictactoe):
    plain = build("improved", boards=20)
    expected = {name: figures["score"] for name, figures in compared["players"].items()}
    players = {name: {**texts, "expected": expected[name]} for name, texts in tictactoe.players().items()}
    return replace(plain, players=players, comparison={**plain.comparison, "alternatives": compared})


def answered(inputs, low, high):
    """The page's sentence for an interval of best against best."""
    found = inputs.comparison["alternatives"]
    either = {**found["trained_minus_best"]["either"], "change": (low + high) / 2, "low": low, "high": high}
    changed = {**found, "trained_minus_best": {**found["trained_minus_best"], "either": either}}
    return section(replace(inputs, comparison={**inputs.comparison, "alternatives": changed}))


@pytest.mark.parametrize(
    ("low", "high", "sentence", "tone"),
    [
        (
            0.1,
            0.3,
            "No: the trained policy (sampled) beats the best alternative (call forced, greedy) by 0.200 "
            "(95% interval of the difference +0.100 to +0.300).",
            "up",
        ),
        (-0.3, -0.1, "Yes: the best alternative (call forced, greedy) beats the trained policy", "down"),
        (-0.1, 0.3, "Not clear: the trained policy (sampled) is ahead of", "flat"),
        (-0.3, 0.1, "Not clear: the trained policy (sampled) is behind", "flat"),
        (0.0, 0.0, "Yes: the trained policy (sampled) and the best alternative", "flat"),
    ],
)
def test_the_sentence_follows_the_interval(inputs, low, high, sentence, tone):
    found = answered(inputs, low, high)
    assert found.answer.startswith(sentence)
    assert found.tone == tone


def test_without_an_interval_nothing_is_claimed(inputs):
    found = inputs.comparison["alternatives"]
    either = {**found["trained_minus_best"]["either"], "low": None, "high": None}
    changed = {**found, "trained_minus_best": {**found["trained_minus_best"], "either": either}}
    shown = section(replace(inputs, comparison={**inputs.comparison, "alternatives": changed}))
    assert shown.answer.startswith("Not known: ")
    assert shown.tone == "flat"


def page_of(inputs):
    from ninegrid.report.figures import plots
    from ninegrid.report.page import render_figure

    steps = read_steps(inputs.steps)
    return Page(render_page(inputs, steps, [render_figure(plot) for plot in plots(inputs, steps)]))


def test_the_page_shows_every_policy_and_the_players(inputs):
    page = page_of(inputs)
    head, *rows = page.table("alternatives")
    assert head == ["policy", "decoding", "score", "interval", "legal", "optimal", "what it is"]
    assert [row[:2] for row in rows[:6]] == [
        [label, decoding]
        for label in ("untrained", "call forced", "trained")
        for decoding in ("sampled", "greedy")
    ]
    assert rows[2][2:6] == ["0.000", "−1.000 to 1.000", "50.0%", "50.0%"]
    label = inputs.players["minimax"]["label"]
    assert [row[3:6] for row in rows if row[:2] == [label, "–"]] == [["exact", "100.0%", "100.0%"]]
    assert len(rows) == 6 + len(inputs.players)
    _, *differences = page.table("best-alternative")
    assert [row[0] for row in differences] == [
        "both sampled",
        "both greedy",
        "best against best (sampled against greedy)",
    ]
    assert differences[2][2:] == ["0.400", "0.900", "+0.500 +0.200 to +0.800"]


def test_the_page_says_what_could_not_be_measured(inputs):
    found = {
        **inputs.comparison["alternatives"],
        "left_out": {"untrained, call forced": "no <such> tokenizer"},
    }
    page = page_of(replace(inputs, comparison={**inputs.comparison, "alternatives": found}))
    assert "Not measured: untrained, call forced. no <such> tokenizer." in page.texts["p"]


def test_a_page_without_alternatives_has_no_such_section(inputs):
    plain = {k: v for k, v in inputs.comparison.items() if k != "alternatives"}
    page = page_of(replace(inputs, comparison=plain))
    assert "alternatives" not in page.tables
    assert "Would something cheaper have done it?" not in " ".join(page.texts["h2"])
