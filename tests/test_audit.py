"""The reward audit: hand-computed earnings on two boards, and sentences that follow the table."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ninegrid.audit.audit import audit
from ninegrid.audit.policies import constant_calls
from ninegrid.report.audit_section import audit_section
from ninegrid.report.page import write_report
from ninegrid.reward import RewardTable
from ninegrid.tasks.protocol import ToolCall
from ninegrid.tasks.tictactoe import TicTacToe, TicTacToeGame
from tests.larger import Larger
from tests.report_inputs import build
from tests.small_tasks import Parrot, function

TASK = TicTacToe()
PUBLISHED = RewardTable(dict(TASK.score))


def board(name, cells):
    return TASK.parse({"id": name, "board": [list(cells[row : row + 3]) for row in (0, 3, 6)]})


# X to move; 9 wins at once, 1 and 2, 3, 6 free too: 4 legal, 1 win, 4 taken (4, 5, 7, 8).
OPEN = board("open", "...OO.XX.")
# Lost: O threatens 3 and 6 at once, so every free square (1, 3, 6) is optimal.
LOST = board("lost", ".O..OX.X.")
EMPTY = board("empty", ".........")


def told(table=PUBLISHED, train=(OPEN,), heldout=(EMPTY,), task=TASK):
    return audit(task, table, {"train": list(train), "heldout": list(heldout)})


def table(**changes):
    return RewardTable({**TASK.score, **changes})


def warnings(content):
    return [f["text"] for f in content["findings"] if f["level"] == "warning"]


def test_what_policies_earn_by_hand():
    content = told(table(no_tool_call=-0.5, occupied=-0.25, win=2.0))
    train, heldout = content["earns"]["train"], content["earns"]["heldout"]
    assert train["no_tool_call"] == -0.5 and heldout["no_tool_call"] == -0.5
    assert train["invalid_arguments"] == -1.0
    assert train["always square 9"] == 2.0
    assert train["always square 4"] == -0.25
    assert train["always square 1"] == 0.0
    assert train["legal: worst"] == 0.0
    assert train["legal: best"] == 2.0
    assert train["legal: at random"] == pytest.approx(2 / 5)
    # Any of the nine: four taken, four legal, one win.
    assert train["player: uniform"] == pytest.approx((4 * -0.25 + 4 * 0 + 2.0) / 9, abs=1e-6)
    assert train["player: minimax"] == 2.0
    # On the empty board every square is legal and keeps the draw.
    assert {heldout[f"always square {n}"] for n in range(1, 10)} == {0.8}


def test_every_player_and_every_constant_call_is_there_once():
    names = [policy["name"] for policy in told()["policies"]]
    assert len(names) == len(set(names)) == 4 + 9 + 3 + len(TASK.players())
    assert set(told()["earns"]["train"]) == set(names)


def test_boards_that_teach_nothing_about_play_are_counted_by_stratum():
    content = told(train=(OPEN, EMPTY))
    assert content["examples"]["train"]["flat"] == 1
    assert content["examples"]["train"]["flat_share"] == 0.5
    assert content["examples"]["train"]["strata"]["marks=0"]["flat"] == 1
    assert content["examples"]["train"]["strata"]["marks=4"]["flat"] == 0
    assert content["examples"]["train"]["mute"] == 0


def test_flat_follows_the_reward_in_force_not_the_score():
    assert told(table(win=0.0), train=(OPEN,))["examples"]["train"]["flat"] == 1


def test_a_board_is_mute_only_if_no_reply_at_all_pays_otherwise():
    # All legal moves of the empty board are optimal; failed replies pay the same, a taken square would not
    # but there is none.
    same = dict.fromkeys(["no_tool_call", "wrong_tool", "multiple_calls", "invalid_arguments"], 0.8)
    content = told(table(**same), train=(EMPTY, OPEN))
    assert content["examples"]["train"]["mute"] == 1
    assert any("1 of 2 training boards pay the same for every reply" in text for text in warnings(content))
    assert told(table(**same, legal=0.8, win=0.8), train=(OPEN,))["examples"]["train"]["mute"] == 0


MANY = TASK.generate(200, seed=1)


def test_the_published_table_gives_no_warning():
    assert warnings(told(train=MANY)) == []


def test_a_paid_taken_square_lets_a_habit_win():
    # On OPEN: square 4 earns 0.5; random legal play 1/5, the worst 0.
    found = warnings(told(table(occupied=0.5, win=0.4)))
    assert any(
        "The constant square 4 earns more than random legal play: 0.500 against 0.080" in t for t in found
    )


def test_a_habit_between_the_worst_and_random_legal_play_is_named_too():
    content = told(table(occupied=0.0), train=MANY)
    earned = content["earns"]["train"]
    habit = max(earned[f"always square {n}"] for n in range(1, 10))
    assert earned["legal: worst"] < habit < earned["legal: at random"]
    assert any("earns more than the worst legal play" in text for text in warnings(content))


def test_rewards_against_the_order_of_outcomes_are_named():
    found = warnings(told(table(win=-2.0)))
    assert any(t.startswith("“win” pays -2.000, less than “optimal” (0.800)") for t in found)


def test_a_failed_reply_that_pays_as_much_as_a_legal_one_is_named():
    found = warnings(told(table(no_tool_call=0.0)))
    assert any(t.startswith("“legal” pays 0.000, no more than “no tool call”") for t in found)


def test_a_table_without_spread_has_one_warning():
    content = told(RewardTable(dict.fromkeys(TASK.score, -1.0)))
    assert warnings(content) == ["Every outcome pays -1.000: nothing can be learned."]
    assert len(content["findings"]) == 1


def test_a_table_of_legality_alone_cannot_teach_play():
    found = warnings(told(table(legal=1.0, optimal=1.0), train=MANY))
    assert found == [
        "On every training board all legal actions pay the same: legality can be learned, play cannot."
    ]


@pytest.mark.parametrize(("penalty", "warned"), [(0.0, False), (0.001, False), (0.1, True)])
def test_a_length_penalty_that_makes_silence_pay_is_a_warning(penalty, warned):
    # A failure pays 1 less than a legal move: 1,000 tokens at 0.001, 10 at 0.1.  A call has 50 characters.
    found = warnings(told(RewardTable(dict(TASK.score), penalty), train=(OPEN, EMPTY)))
    assert any("length penalty" in text for text in found) == warned


def test_another_task_is_audited_through_its_protocol_alone():
    task = Larger()
    pair = task.parse({"id": "a", "first": 2, "second": 1})
    content = audit(task, RewardTable(dict(task.score)), {"train": [pair], "heldout": [pair]})
    assert content["earns"]["train"]["always which first"] == 3.0
    assert content["earns"]["train"]["always which second"] == 0.0
    assert content["earns"]["train"]["player: coin"] == 1.5
    # With a single pair the habit is as good as knowing.
    assert any("The constant which first earns more than random legal play" in t for t in warnings(content))


def test_calls_are_listed_only_where_their_arguments_are_finite():
    task = Parrot()  # says any word, or counts from 1 to 9
    assert constant_calls(task) == [ToolCall("count", {"times": n}) for n in range(1, 10)]
    task.tools = [
        function("odd", {"n": {"type": "integer", "minimum": 1, "maximum": 4, "multipleOf": 2}}),
        function("both", {"a": {"type": "boolean"}, "b": {"enum": ["x"]}}),
        function("endless", {"n": {"type": "integer", "minimum": 0}}),
        function("many", {"n": {"type": "integer", "minimum": 1, "maximum": 101}}),
    ]
    assert [(c.name, dict(c.arguments)) for c in constant_calls(task)] == [
        ("odd", {"n": 2}),
        ("odd", {"n": 4}),
        ("both", {"a": False, "b": "x"}),
        ("both", {"a": True, "b": "x"}),
    ]


def test_a_task_that_does_not_list_its_legal_actions_is_audited_without_them():
    task = Parrot()
    words = task.generate(3, 0)
    content = audit(task, RewardTable(dict(task.score)), {"train": words, "heldout": words})
    assert content["earns"]["train"]["always count(times=1)"] == 0.0
    assert "legal: worst" not in content["earns"]["train"]
    assert any("does not list its legal actions" in f["text"] for f in content["findings"])


# --- the report's section --------------------------------------------------------------------------------


def test_where_actions_cannot_be_listed_any_outcome_may_teach():
    """Failing pays -1 throughout, and the one tool takes any text: what it can earn is in the table alone."""

    class Spoken(Parrot):
        def __init__(self):
            self.tools = [function("say", {"word": {"type": "string"}})]

    task = Spoken()
    examples = task.generate(2, 0)
    content = told(RewardTable(dict(task.score)), examples, examples, task)
    assert content["examples"]["train"]["mute"] == 0
    content = told(RewardTable(dict.fromkeys(task.score, -1.0)), examples, examples, task)
    assert content["examples"]["train"]["mute"] == 2


def test_whole_games_are_audited_by_their_players_and_not_by_constant_calls():
    """What a call earns that is repeated through a game, its first move does not tell; its player does."""
    game = TicTacToeGame()
    examples = game.generate(20, 0)
    table = RewardTable({**dict.fromkeys(game.outcomes, -1.0), "loss": 0.0, "draw": 0.5, "win": 1.0})
    content = told(table, examples, examples, game)
    kinds = {p["name"]: p["kind"] for p in content["policies"]}
    assert "constant" not in kinds.values()
    assert content["earns"]["train"]["player: centre"] < content["earns"]["train"]["player: random_legal"]
    texts = " ".join(finding["text"] for finding in content["findings"])
    assert "Of the replies without an acceptable call" in texts and "ignores the board" not in texts
    assert "reward.steps" not in texts
    priced = told(replace(table, steps={"optimal": 0.1}), examples, examples, game)
    assert "nor what reward.steps adds" in " ".join(finding["text"] for finding in priced["findings"])
    assert content["examples"]["train"]["mute"] == 0


def test_the_section_shows_the_best_habit_and_the_range_of_the_others():
    section = audit_section(told())
    rows = {row.label: (row.train, row.heldout) for _, rows in section.groups for row in rows}
    assert rows["square 9, the best of them"] == ("1.000", "0.800")
    assert rows["8 others"] == ("−1.000 to 0.000", "0.800")
    assert rows["random legal play"][0] == "0.200"
    assert section.warnings == len(warnings(told()))
    assert section.teaching[-1].stratum == "all"


def test_the_page_shows_the_audit(tmp_path):
    assert audit_section({}) is None
    content = json.loads(json.dumps(told(table(win=-2.0))))
    page = write_report(tmp_path, build(boards=14, steps=3, audit=content)).read_text(encoding="utf-8")
    assert "What the reward pays" in page
    assert "which is the worse outcome" in page
    assert 'id="trivial-policies"' in page
