"""Whole games: openings, opponents, what players can expect of them, and the course of a run."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from ninegrid.config import OutOfRange
from ninegrid.errors import DataError
from ninegrid.report.drawing import safe_drawing
from ninegrid.tasks.dataset import BoardSettings, build_dataset, check_leaks, is_flat
from ninegrid.tasks.protocol import CallOutcome, Consultation, Interactive, Judgement, Observation, ToolCall
from ninegrid.tasks.tictactoe import TicTacToe, TicTacToeGame
from ninegrid.tasks.tictactoe.board import EMPTY_BOARD, begun_by_x, best_squares, place
from ninegrid.tasks.tictactoe.openings import all_openings
from ninegrid.tasks.tictactoe.opponents import draw_square, mixed_move, perfect_move, random_move
from ninegrid.tasks.tictactoe.players import PLAYERS
from ninegrid.tasks.tictactoe.task import board_of, example_of

GAME = TicTacToeGame(view="lines")
EMPTY = example_of("empty", EMPTY_BOARD)


def move(square: int) -> ToolCall:
    return ToolCall("choose_square", {"square": square})


def play(task: TicTacToeGame, board: str, squares: list[int], draws: list[float] | None = None) -> list[Any]:
    """What comes back for each move of the policy."""
    run = task.begin(example_of("b", board), draws or [0.0] * 10)
    return [run.step(move(square)) for square in squares]


# --- openings ----------------------------------------------------------------------------------------------


def test_openings_are_all_boards_that_random_play_reaches() -> None:
    """9 boards of one mark, 9 x 8 of two, 9 x 8 / 2 x 7 of three, and 756 of four, as for single moves."""
    counts = [len(all_openings(n, n, "both")) for n in range(5)]
    assert counts == [1, 9, 72, 252, 756]
    assert len(all_openings(0, 4, "first")) == 1 + 72 + 756
    assert len(all_openings(0, 4, "second")) == 9 + 252
    assert GAME.available() == sum(counts)


def test_who_follows_sees_its_own_marks_as_x() -> None:
    for board in all_openings(1, 3, "second"):
        assert board.count("O") == board.count("X") + 1
        assert begun_by_x(board).count("X") == board.count("O")  # the rules' X moved first
    assert begun_by_x("O........") == "X........"
    assert begun_by_x("OX.......") == "OX......."


def test_a_draw_is_repeatable_distinct_and_within_what_was_asked_for() -> None:
    task = TicTacToeGame(min_moves=1, max_moves=4, start="second")
    drawn = task.generate(150, 3)
    assert [e.line() for e in drawn] == [e.line() for e in task.generate(150, 3)]
    assert len({board_of(e) for e in drawn}) == 150
    assert {task.stratum(e) for e in drawn} == {"marks=1", "marks=3"}
    assert drawn == [task.parse(e.line()) for e in drawn]


@pytest.mark.parametrize(
    "board", ["XX.......", "XXXOO.O..", "OO.......", "X........"], ids=["two", "over", "two O", "X ahead"]
)
def test_what_is_no_opening_is_refused(board: str) -> None:
    with pytest.raises(DataError):
        GAME.parse(example_of("b", board).line())


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"skill": 1.5}, "skill"),
        ({"min_moves": 1, "max_moves": 1, "start": "first"}, "start"),
        ({"max_moves": 9}, "max_moves"),
    ],
)
def test_settings_that_leave_nothing_to_play_are_refused(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(OutOfRange) as caught:
        TicTacToeGame(**settings)
    assert caught.value.field == field


def test_held_out_openings_are_not_in_the_prompt() -> None:
    """The worked examples are played on; the boards that are shown then are kept from the held-out side."""
    task = TicTacToeGame(max_moves=4)
    dataset = build_dataset(task, BoardSettings(1000, 7))
    check_leaks(task, dataset)
    shown = {one.example.group for worked in task.worked_examples() for one in (worked, *worked.after)}
    assert shown & {e.group for e in dataset.train}
    assert not shown & {e.group for e in dataset.heldout}


# --- opponents and reference players -----------------------------------------------------------------------


def test_random_play_against_random_play_from_the_empty_board() -> None:
    """The textbook figures: 58.49% won by who begins, 12.70% drawn, 28.81% lost."""
    expected = GAME.expected_outcomes("random_legal", EMPTY)
    assert expected["win"] == pytest.approx(737 / 1260, abs=1e-9)
    assert expected["draw"] == pytest.approx(8 / 63, abs=1e-9)
    assert expected["loss"] == pytest.approx(121 / 420, abs=1e-9)


def test_the_last_three_squares_by_hand() -> None:
    """X O X / O O . / . X . with X to move: 6, 7 and 9 are free, and O threatens to complete 4-5-6 with 6.

    After 6, O takes 7 and X completes 3-6-9 (won), or O takes 9 and X ends on 7 (drawn).
    After 7, O takes 6 (lost), or 9 and X ends on 6 (drawn).
    After 9, O takes 6 (lost), or 7 and X completes 3-6-9 (won).
    """
    example = example_of("b", "XOXOO..X.")
    thirds = {"win": 1 / 3, "draw": 1 / 3, "loss": 1 / 3}
    assert GAME.expected_outcomes("random_legal", example) == pytest.approx(thirds)
    assert GAME.expected_outcomes("minimax", example) == pytest.approx({"win": 1 / 2, "draw": 1 / 2})


@pytest.mark.parametrize("player", ["centre", "uniform", "first_empty", "random_legal"])
def test_expectations_are_the_means_of_games_that_were_played(player: str) -> None:
    """Games against a random opponent, move by move through the run itself, within four standard errors."""
    rng, n = random.Random(5), 4000
    example = example_of("b", "O..X.....")
    counts = Counter[str]()
    for _ in range(n):
        run = GAME.begin(example, [rng.random() for _ in range(10)])
        board = begun_by_x(board_of(example))
        step: Any = None
        while not isinstance(step, Judgement):
            choices = PLAYERS[player].choices(board)
            square = rng.choices(list(choices), list(choices.values()))[0]
            step = run.step(move(square))
            if isinstance(step, Observation):
                board = run._board
        counts[step.outcome] += 1
    for outcome, p in GAME.expected_outcomes(player, example).items():
        assert abs(counts[outcome] / n - p) < 4 * math.sqrt(max(p * (1 - p), 1e-4) / n), outcome


def test_players_stand_between_nothing_and_the_best_response() -> None:
    examples = GAME.generate(80, 1)

    def result(task: TicTacToeGame, player: str) -> float:
        expected = [task.expected_outcomes(player, e) for e in examples]
        for outcomes in expected:
            assert sum(outcomes.values()) == pytest.approx(1)
        return sum(task.score[o] * p for outcomes in expected for o, p in outcomes.items()) / len(examples)

    for task in (GAME, TicTacToeGame(opponent="minimax"), TicTacToeGame(opponent="mixed", skill=0.3)):
        results = {player: result(task, player) for player in task.players()}
        assert (
            max(results, key=lambda name: results[name] + (name == "best_response") * 1e-9) == "best_response"
        )
        assert results["uniform"] < results["random_legal"] < results["minimax"]
    assert result(GAME, "best_response") > result(GAME, "minimax")  # random play can be lured


def test_perfect_play_against_itself_is_a_draw() -> None:
    for task in (TicTacToeGame(opponent="minimax"), TicTacToeGame(opponent="self")):
        assert task.expected_outcomes("minimax", EMPTY) == pytest.approx({"draw": 1.0})
    assert "best_response" not in TicTacToeGame(opponent="self").players()


def test_against_itself_a_player_that_strays_is_set_right_on_the_other_side_only() -> None:
    """Always the centre: on its own side it ends on a taken square, on the other side it plays at random."""
    task = TicTacToeGame(opponent="self")
    assert task.expected_outcomes("centre", EMPTY) == {"occupied": 1.0}
    taken = example_of("b", "....O....")
    assert task.expected_outcomes("centre", taken) == {"occupied": 1.0}


def test_a_mixed_opponent_lies_between_the_two() -> None:
    board = "XX.OO...."
    assert dict(mixed_move(0.0)(board)) == pytest.approx(dict(random_move(board)))
    assert {s: p for s, p in mixed_move(1.0)(board).items() if p} == pytest.approx(dict(perfect_move(board)))
    half = mixed_move(0.5)(board)  # five free squares; perfect is 3 alone
    assert half[3] == pytest.approx(0.5 + 0.5 / 5)
    assert half[7] == pytest.approx(0.5 / 5)


def test_draws_follow_the_probabilities() -> None:
    assert [draw_square({2: 0.25, 5: 0.5, 9: 0.25}, u) for u in (0.0, 0.24, 0.26, 0.74, 0.76, 0.9999)] == [
        2, 2, 5, 5, 9, 9,
    ]  # fmt: skip
    assert draw_square({1: 1 / 3, 2: 1 / 3, 3: 1 / 3 - 1e-9}, 0.9999999999) == 3


# --- the course of a game ----------------------------------------------------------------------------------


def test_a_won_game() -> None:
    """X 1, O 2 (the first free square, as the draws are 0), X 4, O 3, X 7: the first column."""
    first, second, last = play(GAME, EMPTY_BOARD, [1, 4, 7])
    assert isinstance(first, Observation) and isinstance(second, Observation)
    assert first.text == GAME.wording.show("XO.......")
    assert last.outcome == "win"
    assert last.facts == {"moves": [1, 2, 4, 3, 7], "move": 3}


def test_a_lost_game_ends_with_the_opponents_move() -> None:
    """O has 1 and 2 and takes 3 after X's 9."""
    (last,) = play(GAME, "OO.XX....", [9])
    assert (last.outcome, last.facts["moves"]) == ("loss", [9, 3])
    assert last.facts["move"] == 1


def test_a_drawn_game() -> None:
    (last,) = play(GAME, "XOXXOO.XO", [7])
    assert last.outcome == "win"  # 1-4-7
    (last,) = play(GAME, "XOXOXXO.O", [8])
    assert last.outcome == "draw"


def test_a_taken_square_ends_the_game_where_it_was_chosen() -> None:
    *_, last = play(GAME, EMPTY_BOARD, [1, 2])
    assert last.outcome == "occupied"
    assert last.facts == {"moves": [1, 2], "move": 2, "square": 2}


def test_a_reply_without_a_call_ends_the_game_with_its_own_outcome() -> None:
    run = GAME.begin(EMPTY, [0.0] * 10)
    run.step(move(5))
    judged = run.fail(Judgement(CallOutcome.NO_TOOL_CALL.value, facts={"why": "nothing"}))
    assert (judged.outcome, judged.facts) == ("no_tool_call", {"why": "nothing", "moves": [5, 1], "move": 2})


def test_steps_are_judged_by_themselves() -> None:
    """X takes 9 and lets O win with 3: legal only.  Then nothing more is judged."""
    run = GAME.begin(example_of("b", "OO.XX...."), [0.0] * 10)
    run.step(move(9))
    assert run.steps == ["legal"]
    run = GAME.begin(example_of("b", "OO.XX...."), [0.9] * 10)
    run.step(move(6))
    assert run.steps == ["win"]
    run = GAME.begin(EMPTY, [0.0] * 10)
    run.step(move(5))
    assert run.steps == ["optimal"]


def test_who_follows_plays_its_own_marks_to_the_end() -> None:
    """O has moved; in the follower's eyes it plays X, and its third mark in the left column wins."""
    steps = play(GAME, "....O....", [1, 4, 7], draws=[0.0] * 10)
    assert [type(s) for s in steps] == [Observation, Observation, Judgement]
    assert steps[0].text == GAME.wording.show("XO..O....")
    assert steps[2].outcome == "win"


def test_marks_may_be_the_other_ones() -> None:
    task = TicTacToeGame(mark="O")
    assert "You play O" in task.system()
    assert task.user(example_of("b", "X...O....")) == "O 2 3\n4 X 6\n7 8 9"
    assert "Put O on" in task.tools[0]["function"]["description"]
    (last,) = play(task, "XOXXOO.XO", [7])
    assert last.outcome == "win"


def test_against_itself_the_policy_is_asked_from_the_other_side() -> None:
    task = TicTacToeGame(opponent="self")
    run = task.begin(EMPTY, [0.0] * 10)
    asked = run.step(move(5))
    assert isinstance(asked, Consultation)
    assert board_of(asked.example) == "....O...."  # X's centre is O in the other player's eyes
    seen = run.answer(move(1))
    assert isinstance(seen, Observation)
    assert seen.text == task.wording.show("O...X....")
    run.step(move(9))
    assert isinstance(run.answer(None), Observation)  # no call: the first free square, as the draws are 0
    last = run.step(move(1))
    assert isinstance(last, Judgement)
    assert last.facts == {"moves": [5, 1, 9, 2], "move": 3, "square": 1, "opponent_strayed": 1}


def test_a_first_move_by_itself_is_judged_by_perfect_play() -> None:
    lost = example_of("b", "OO.XX....")
    assert GAME.judge(lost, move(9)).outcome == "loss"
    assert GAME.judge(lost, move(6)).outcome == "win"
    assert GAME.judge(EMPTY, move(1)).outcome == "draw"
    assert GAME.judge(lost, move(1)).outcome == "occupied"
    assert not is_flat(GAME, EMPTY)


def test_the_worked_examples_are_played_on_well() -> None:
    for worked in GAME.worked_examples():
        board = place(begun_by_x(board_of(worked.example)), GAME.wording.square(worked.call))
        for later in worked.after:
            shown = begun_by_x(board_of(later.example))
            assert sum(a != b for a, b in zip(board, shown, strict=True)) == 1  # O has moved
            assert GAME.wording.square(later.call) in best_squares(shown)
    assert [len(worked.after) for worked in GAME.worked_examples()] == [0, 1, 1, 1]


def test_it_is_interactive_and_the_single_move_is_not() -> None:
    assert isinstance(GAME, Interactive)
    assert not isinstance(TicTacToe(), Interactive)
    assert GAME.environment == {"opponent": "random"}
    assert TicTacToeGame(opponent="mixed").environment == {"opponent": "mixed", "skill": 0.5}


def test_drawings_show_both_games_move_by_move() -> None:
    drawing = GAME.draw_runs(EMPTY, {"before": {"moves": [1, 2]}, "after": {"moves": [5, 1, 9]}})
    safe = safe_drawing(drawing, "games")
    assert safe is not None
    assert safe.count(">before<") == safe.count(">after<") == 1  # a label above each board
    assert "before: squares 1, 2. after: squares 5, 1, 9." in safe


def test_perturbations_carry_over() -> None:
    turned = GAME.perturbations()["plays_o"].task
    assert isinstance(turned, TicTacToeGame)
    assert "eight_marks" not in GAME.perturbations()
    run = turned.begin(EMPTY, [0.0] * 10)
    seen = run.step(replace(move(5)))
    assert isinstance(seen, Observation) and "O" in seen.text
