"""The paired comparison on episodes small enough to work out by hand."""

import json
from dataclasses import asdict, replace

import pytest

from ninegrid.errors import ConditionsError, DataError
from ninegrid.evaluation.compare import Comparison, rejudged
from ninegrid.evaluation.conditions import check_conditions, write_conditions
from ninegrid.evaluation.episodes import Episode, read_episodes, write_episodes
from ninegrid.evaluation.metrics import evaluation_metrics
from ninegrid.evaluation.settings import EvalSettings
from ninegrid.progress import interval_text
from ninegrid.reward import RewardTable

WIN_NOW = [[".", ".", "."], ["O", "O", "."], ["X", "X", "."]]
NOTHING_YET = [["."] * 3] * 3
SCORE = {"no_tool_call": -1.0, "occupied": -1.0, "legal": 0.0, "optimal": 0.8, "win": 1.0}


def episode(board, outcome, decoding="sampled", group=None, n_tokens=10):
    return Episode(
        example={"id": board, "board": WIN_NOW if board == "b0" else NOTHING_YET},
        group=group or board,
        decoding=decoding,
        sample=0,
        reply="text",
        n_tokens=n_tokens,
        finish="stop",
        outcome=outcome,
        truncated=False,
        call=None,
        facts={},
        score=SCORE[outcome],
        reward=SCORE[outcome],
    )


def evaluation(*outcomes):
    return [episode(f"b{i}", o, d) for d in ("sampled", "greedy") for i, o in enumerate(outcomes)]


@pytest.fixture
def comparison(tictactoe):
    return Comparison(tictactoe, EvalSettings(resamples=200), frozenset({"b0"}))


def test_a_task_that_lists_no_legal_actions_is_not_divided_by_them(tictactoe):
    """Which boards are decided by a choice cannot be told then: nothing is said of it."""
    untold = Comparison(tictactoe, EvalSettings(resamples=200), None)
    found = untold.compare(evaluation("legal", "win"), evaluation("win", "win"))["sampled"]
    assert found["subsets"] == {}
    assert found["score"]["change"] == pytest.approx(0.5)


def test_means_changes_and_transitions_by_hand(comparison):
    before = evaluation("no_tool_call", "legal", "occupied", "win")
    after = evaluation("legal", "win", "occupied", "optimal")
    found = comparison.compare(before, after)["sampled"]
    # Scores before: -1 0 -1 1, mean -0.25; after: 0 1 -1 0.8, mean 0.2; change 0.45.
    assert found["score"]["before"] == pytest.approx(-0.25)
    assert found["score"]["after"] == pytest.approx(0.2)
    assert found["score"]["change"] == pytest.approx(0.45)
    assert found["score"]["low"] <= 0.45 <= found["score"]["high"]
    # Legal: 2 of 4 before, 3 of 4 after.  Optimal: 1 of 4, then 2 of 4.
    assert found["milestones"]["legal"]["change"] == pytest.approx(0.25)
    assert found["milestones"]["optimal"]["change"] == pytest.approx(0.25)
    assert found["mcnemar"]["legal"] == {"gained": 1, "lost": 0, "p": 1.0}
    assert found["transitions"] == {
        "legal": {"win": 1},
        "no_tool_call": {"legal": 1},
        "occupied": {"occupied": 1},
        "win": {"optimal": 1},
    }
    assert [f["id"] for f in found["flips"]["improved"]] == ["b0", "b1"]
    assert found["flips"]["worsened"] == [{"id": "b3", "sample": 0, "before": "win", "after": "optimal"}]
    assert found["subsets"]["flat"]["n"] == 1
    assert found["subsets"]["decisive"]["score"]["change"] == pytest.approx((1 + 0 - 0.2) / 3)


def test_scores_are_told_apart_by_what_a_board_asks_for(comparison):
    before = evaluation("no_tool_call", "legal", "occupied", "optimal")
    after = evaluation("win", "optimal", "optimal", "optimal")
    kinds = comparison.compare(before, after)["greedy"]["kinds"]
    assert list(kinds) == ["keep the draw", "win at once"]
    # Three empty boards: 0 - 1 + 0.8, then 3 * 0.8; every one of the nine moves keeps the draw.
    draw, win = kinds["keep the draw"], kinds["win at once"]
    assert (draw["n"], win["n"]) == (3, 1)
    assert draw["score"]["before"] == pytest.approx(-0.2 / 3)
    assert draw["score"]["after"] == pytest.approx(0.8)
    assert draw["players"]["random_legal"] == pytest.approx(0.8)
    assert (win["score"]["change"], win["score"]["low"]) == (2.0, None)
    assert win["players"]["minimax"] == 1.0


def test_a_change_that_is_the_same_everywhere_has_no_width(comparison):
    found = comparison.compare(evaluation(*["legal"] * 5), evaluation(*["win"] * 5))["greedy"]["score"]
    assert (found["change"], found["low"], found["high"]) == (1.0, 1.0, 1.0)


def test_one_symmetry_class_has_no_interval(comparison):
    before, after = (
        [replace(e, group="the same") for e in evaluation(*outcomes)]
        for outcomes in (["legal", "win"], ["win", "win"])
    )
    found = comparison.compare(before, after)["sampled"]["score"]
    assert (found["change"], found["low"], found["high"]) == (0.5, None, None)
    assert interval_text(found) == "[one class: no interval]"


def test_other_replies_are_refused(comparison):
    with pytest.raises(ConditionsError, match="b1"):
        comparison.compare(evaluation("legal", "win"), evaluation("legal"))


def test_the_baseline_is_rejudged_under_the_table_in_force():
    table = RewardTable({**SCORE, "win": 2.0}, length_penalty=0.01)
    (found,) = rejudged([episode("b0", "win", n_tokens=20)], table)
    # 2 - 20 * 0.01
    assert found.reward == pytest.approx(1.8)
    assert found.score == 1.0


def test_metrics_by_hand(tictactoe):
    episodes = [
        *(replace(e, n_tokens=n) for e, n in zip(evaluation("legal", "win"), [10, 30, 10, 30], strict=True))
    ]
    board = tictactoe.generate(3, 1)
    found = evaluation_metrics(episodes, tictactoe, board, 0.95)
    assert found["sampled"]["score_mean"] == pytest.approx(0.5)
    assert found["sampled"]["milestones"]["legal"]["rate"] == 1.0
    assert found["sampled"]["milestones"]["optimal"]["rate"] == 0.5
    assert found["sampled"]["outcomes"]["win"]["rate"] == 0.5
    assert found["sampled"]["outcomes"]["occupied"]["rate"] == 0.0
    assert found["sampled"]["response_len_mean"] == 20.0
    assert set(found["players"]) == set(tictactoe.players())


def test_episodes_survive_the_file_and_a_damaged_line_is_named(tmp_path):
    path = tmp_path / "episodes.jsonl"
    episodes = [replace(episode("b0", "win"), reply="line\nbreak \ud800 \u2028 end"), episode("b1", "legal")]
    write_episodes(path, episodes)
    assert read_episodes(path, SCORE) == episodes
    assert list(json.loads(path.read_text().splitlines()[0])) == list(asdict(episodes[0]))
    path.write_text(path.read_text() + '{"example": 1}\n')
    with pytest.raises(DataError, match="line 3"):
        read_episodes(path, SCORE)
    with pytest.raises(DataError, match="line 1 is not an episode: unknown outcome 'win'"):
        read_episodes(path, {"legal"})
    with pytest.raises(DataError, match="does not exist"):
        read_episodes(tmp_path / "none.jsonl", SCORE)


def test_differing_conditions_are_named_with_both_values(tmp_path):
    write_conditions(tmp_path, {"seed": 7, "decoding": {"temperature": 1.0}, "same": [1]})
    check_conditions(tmp_path, {"seed": 7, "decoding": {"temperature": 1.0}, "same": (1,)})
    with pytest.raises(ConditionsError, match=r"seed: baseline 7, retest 8") as caught:
        check_conditions(tmp_path, {"seed": 8, "decoding": {"temperature": 1.0}, "same": [1]})
    assert "same: " not in str(caught.value)
    with pytest.raises(ConditionsError, match=r"the other .* like the one; .*seed: one 7, other 8") as caught:
        check_conditions(tmp_path, {"seed": 8}, ("one", "other"), ("first", "second"))
    assert "dvc repro first second" in str(caught.value)
    with pytest.raises(DataError, match="does not exist"):
        check_conditions(tmp_path / "none", {})
