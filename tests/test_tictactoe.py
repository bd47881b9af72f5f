"""Tic-tac-toe against figures worked out by hand, a second enumeration, and its own symmetry."""

from __future__ import annotations

import itertools
import json
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ninegrid.config import OutOfRange, TaskSettings, bind
from ninegrid.errors import DataError
from ninegrid.params import compose
from ninegrid.reward import RewardTable
from ninegrid.tasks.loading import load_task
from ninegrid.tasks.protocol import CallOutcome, Example, Task, ToolCall
from ninegrid.tasks.tictactoe import TicTacToe
from ninegrid.tasks.tictactoe.board import (
    EMPTY_BOARD,
    LINES,
    SQUARES,
    SYMMETRIES,
    best_squares,
    canonical,
    free_squares,
    has_line,
    is_finished,
    marks,
    optimal_squares,
    place,
    threatened_squares,
    to_move,
    transform,
    value,
    winning_squares,
)
from ninegrid.tasks.tictactoe.generate import all_boards, draw_boards

ROOT = Path(__file__).resolve().parent.parent
TASK = TicTacToe()
ALL = all_boards(0, 6)
SVG = "{http://www.w3.org/2000/svg}"

WIN_NOW = "...OO.XX."  # 9 wins; O threatens 6
TWO_SPEEDS = "X.X.O.O.."  # 2 wins now; 9 threatens both 2 and 6, so it wins a move later
LOST = "O.OX..XXO"  # O threatens 2, 5 and 6; X cannot win at once
boards = st.sampled_from(ALL)
symmetries = st.sampled_from(SYMMETRIES)
untimed = settings(deadline=None)


def example(board: str) -> Example:
    return TASK.parse({"id": "test", "board": [list(board[row : row + 3]) for row in (0, 3, 6)]})


def call(square: Any) -> ToolCall:
    return ToolCall("choose_square", {"square": square})


def mean_score(player: str) -> float:
    examples = [example(board) for board in ALL]
    scores = [
        sum(p * TASK.score[outcome] for outcome, p in TASK.expected_outcomes(player, e).items())
        for e in examples
    ]
    return sum(scores) / len(scores)


# --- the rules -------------------------------------------------------------------------------------------


def test_there_are_eight_symmetries_and_they_keep_lines() -> None:
    assert len(set(SYMMETRIES)) == 8
    for symmetry in SYMMETRIES:
        assert sorted(symmetry) == list(SQUARES)
        images = {tuple(sorted(symmetry[square - 1] for square in line)) for line in LINES}
        assert images == {tuple(sorted(line)) for line in LINES}


@untimed
@given(boards, symmetries, symmetries)
def test_a_class_has_one_name(board: str, first: tuple[int, ...], second: tuple[int, ...]) -> None:
    assert canonical(transform(transform(board, first), second)) == canonical(board)
    assert canonical(board) in {transform(board, symmetry) for symmetry in SYMMETRIES}


@untimed
@given(boards, symmetries)
def test_play_does_not_depend_on_how_the_board_is_turned(board: str, symmetry: tuple[int, ...]) -> None:
    turned = transform(board, symmetry)
    assert value(turned) == value(board)
    for squares in (optimal_squares, winning_squares, best_squares):
        assert {symmetry[square - 1] for square in squares(turned)} == set(squares(board))


@untimed
@given(boards)
def test_swapping_the_marks_swaps_who_wins(board: str) -> None:
    """Checked one move on, since on every board here it is X's turn."""
    for square in free_squares(board):
        after = place(board, square)
        swapped = after.translate(str.maketrans("XO", "OX"))
        for mark, other in (("X", "O"), ("O", "X")):
            assert has_line(after, mark) == has_line(swapped, other)


def test_best_play_reaches_the_value_whatever_the_opponent_does() -> None:
    """Minimax against a search that knows nothing of it: X follows it, O tries everything."""

    def worst(board: str) -> int:
        if is_finished(board):
            return has_line(board, "X") - has_line(board, "O")
        if to_move(board) == "X":
            return worst(place(board, best_squares(board)[0]))
        return min(worst(place(board, square)) for square in free_squares(board))

    for board in ALL:
        assert worst(board) == value(board), board


def test_a_square_that_is_not_optimal_gives_something_away() -> None:
    for board in ALL:
        for square in free_squares(board):
            loses = value(place(board, square)) < value(board)
            assert loses != (square in optimal_squares(board)), (board, square)


def test_placing_a_mark() -> None:
    assert place("X........", 5) == "X...O...."
    with pytest.raises(ValueError, match="square 1 of X"):
        place("X........", 1)


# --- how many boards there are ---------------------------------------------------------------------------


def test_boards_by_marks() -> None:
    # 2 marks: 9 x 8 = 72.  4 marks: C(9,2) x C(7,2) = 36 x 21 = 756.
    # 6 marks: C(9,3) x C(6,3) = 84 x 20 = 1,680, less those with a line.  X has one on 8 lines x 20 = 160
    # boards, O likewise, both on 12 (two parallel rows or columns: 2 x 3 x 2): 1,680 - 308 = 1,372.
    assert Counter(marks(board) for board in ALL) == {0: 1, 2: 72, 4: 756, 6: 1372}
    assert len(ALL) == len(set(ALL)) == 2201 == TASK.available()


def test_symmetry_classes() -> None:
    assert len({canonical(board) for board in ALL}) == 304


def test_boards_on_which_every_legal_move_pays_the_same() -> None:
    flat = [b for b in ALL if len({TASK.score[o] for o in TASK.legal_outcomes(example(b))}) == 1]
    assert len(flat) == 281


@pytest.mark.parametrize(("fewest", "most"), [(0, 0), (0, 2), (1, 1), (3, 5), (2, 6), (5, 7), (0, 8), (7, 8)])
def test_enumeration_agrees_with_a_second_one(fewest: int, most: int) -> None:
    """Every way to place equally many X and O without a line; the number of moves rounds up to even."""
    expected = set()
    for half in sorted({(moves + 1) // 2 for moves in range(fewest, most + 1)}):
        for xs in itertools.combinations(SQUARES, half):
            for os in itertools.combinations(set(SQUARES) - set(xs), half):
                if not any(set(line) <= set(xs) or set(line) <= set(os) for line in LINES):
                    expected.add("".join("X" if s in xs else "O" if s in os else "." for s in SQUARES))
    assert set(all_boards(fewest, most)) == expected
    assert TicTacToe(fewest, most).available() == len(expected)


# --- the draw --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fewest", "most"), [(0, 2), (1, 1), (3, 4), (0, 6)])
def test_every_board_can_be_drawn_and_no_other(fewest: int, most: int) -> None:
    exist = all_boards(fewest, most)
    drawn = draw_boards(len(exist), 7, fewest, most)
    assert sorted(drawn) == sorted(exist)


def test_a_draw_for_more_than_there_are_ends_at_once() -> None:
    with pytest.raises(ValueError, match="74 distinct boards asked for, 73 exist for 0 to 2 moves"):
        draw_boards(74, 0, 0, 2)


@untimed
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 60))
def test_the_seed_fixes_the_draw_and_its_order(seed: int, few: int, more: int) -> None:
    few, more = sorted((few, more))
    assert draw_boards(more, seed, 0, 6)[:few] == draw_boards(few, seed, 0, 6)


def test_another_seed_gives_other_boards() -> None:
    assert draw_boards(50, 1, 0, 6) != draw_boards(50, 2, 0, 6)


def test_the_number_of_moves_is_uniform() -> None:
    # 0, 1 or 2 moves, a third each, and all are kept: no move leaves the board empty, one or two give two
    # marks.  600 draws: 200 empty boards expected, standard deviation sqrt(600 x 1/3 x 2/3) = 11.5.
    first = [draw_boards(1, seed, 0, 2)[0] for seed in range(600)]
    assert abs(first.count(EMPTY_BOARD) - 200) < 4 * 11.5


def test_each_move_is_uniform_among_the_free_squares() -> None:
    # 72 boards of two moves, 50 draws of each expected; chi-square with 71 degrees of freedom exceeds 112
    # once in a thousand.
    counts = Counter(draw_boards(1, seed, 2, 2)[0] for seed in range(3600))
    assert sum((counts[board] - 50) ** 2 / 50 for board in all_boards(2, 2)) < 112


def test_examples_are_numbered_in_order_of_drawing() -> None:
    examples = TASK.generate(12, seed=3)
    assert [e.id for e in examples] == [f"generated-{i:05d}" for i in range(12)]
    assert [e.group for e in examples] == [canonical(board) for board in draw_boards(12, 3, 0, 6)]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [({"max_moves": 9}, "max_moves"), ({"max_moves": -1}, "max_moves"), ({"min_moves": -1}, "min_moves"),
     ({"min_moves": 4, "max_moves": 3}, "min_moves")],
)  # fmt: skip
def test_numbers_of_moves_that_leave_no_board_are_refused(arguments: dict[str, int], field: str) -> None:
    with pytest.raises(OutOfRange) as caught:
        TicTacToe(**arguments)
    assert caught.value.field == field


# --- lines of a data file --------------------------------------------------------------------------------


def test_the_published_line_comes_back_unchanged() -> None:
    line = '{"id":"generated-00000","board":[["X",".","O"],[".",".","."],["X","O","."]]}'
    read = TASK.parse(json.loads(line))
    assert json.dumps(read.line(), separators=(",", ":")) == line
    assert read.group == canonical("X.O...XO.")


@untimed
@given(boards)
def test_every_board_survives_its_line(board: str) -> None:
    read = example(board)
    assert TASK.parse(read.line()) == read
    assert TASK.stratum(read) == f"marks={9 - board.count('.')}"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({}, r"keys \(none\), expected id, board"),
        ({"id": "a", "board": [], "reward": 1}, "keys board, id, reward, expected id, board"),
        ({"id": 7, "board": []}, "id = 7"),
        ({"id": "", "board": []}, "id = ''"),
        ({"id": "a", "board": "........."}, "three rows of three"),
        ({"id": "a", "board": [["."] * 3] * 2}, "three rows of three"),
        ({"id": "a", "board": [["."] * 3, ["."] * 3, ["."] * 4]}, "three rows of three"),
        ({"id": "a", "board": [["...", "...", "..."]] * 3}, "three rows of three"),
        ({"id": "a", "board": [["x", ".", "."]] * 3}, "three rows of three"),
        ({"id": "a", "board": [[None, ".", "."]] * 3}, "three rows of three"),
        ({"id": "a", "board": [["X", ".", "."], ["."] * 3, ["."] * 3]}, "1 X and 0 O"),
        ({"id": "a", "board": [["X", ".", "."], ["O"] * 3, ["X", ".", "X"]]}, "finished"),
    ],
)
def test_a_line_that_is_no_board_to_move_on_is_refused(line: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        TASK.parse(line)


# --- judging ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("board", "kind", "threatened"),
    [
        (WIN_NOW, "win at once", (6,)),
        (LOST, "lost already", (2, 5, 6)),
        ("O..XO.OXX", "must block", (3,)),
        ("X.......O", "win by force", ()),  # 3 or 7 threatens twice after O's forced answer
        ("." * 9, "keep the draw", ()),
    ],
)
def test_what_a_board_asks_for(board: str, kind: str, threatened: tuple[int, ...]) -> None:
    assert TASK.kind(example(board)) == kind
    assert threatened_squares(board) == threatened


@given(boards)
@untimed
def test_what_a_board_asks_for_does_not_depend_on_how_it_is_turned(board: str) -> None:
    assert len({TASK.kind(example(transform(board, s))) for s in SYMMETRIES}) == 1


@pytest.mark.parametrize(
    ("board", "square", "outcome", "best"),
    [
        (WIN_NOW, 4, "occupied", [9]),
        (WIN_NOW, 9, "win", [9]),
        # After 6 (the block) O blocks 9, and X has no way left; after 1, O completes 4-5-6.
        (WIN_NOW, 6, "legal", [9]),
        (WIN_NOW, 1, "legal", [9]),
        (TWO_SPEEDS, 2, "win", [2]),
        (TWO_SPEEDS, 9, "optimal", [2]),
        (TWO_SPEEDS, 4, "legal", [2]),  # O blocks 2, which threatens 8, and X is left with a draw
        (LOST, 2, "optimal", [2, 5, 6]),
        (LOST, 5, "optimal", [2, 5, 6]),
        (LOST, 1, "occupied", [2, 5, 6]),
        (EMPTY_BOARD, 5, "optimal", list(SQUARES)),
    ],
)
def test_outcomes(board: str, square: int, outcome: str, best: list[int]) -> None:
    judged = TASK.judge(example(board), call(square))
    assert (judged.outcome, judged.call) == (outcome, call(square))
    assert judged.facts == {"square": square, "best": best}


@pytest.mark.parametrize(
    ("board", "square", "outcome", "best"),
    [
        ("XX.OO.O..", 1, "occupied", [3]),
        ("XX.OO.O..", 3, "win", [3]),
        ("XX.OO.O..", 6, "legal", [3]),  # blocks 4-5-6, but O completes 3-5-7
        ("X..OO....", 6, "optimal", [6]),  # the block
        ("O........", 5, "optimal", [5]),  # the centre alone holds the draw against a corner
        ("O........", 9, "legal", [5]),
    ],
)
def test_a_move_in_a_game_that_o_began(board: str, square: int, outcome: str, best: list[int]) -> None:
    asked = TASK.position("here", board)
    judged = TASK.judge(asked, call(square))
    assert (judged.outcome, judged.facts["best"]) == (outcome, best)
    assert "".join(mark for row in asked.line()["board"] for mark in row) == board


def test_a_position_of_the_generator_is_the_example_that_it_makes() -> None:
    assert TASK.position("test", WIN_NOW) == example(WIN_NOW)


@pytest.mark.parametrize("board", ["X........", "OO.......", "XXXOO.O..", "OOO.XX...", "XOXXOXOXO"])
def test_a_board_on_which_x_cannot_move_is_no_position(board: str) -> None:
    with pytest.raises(DataError, match=board):
        TASK.position("here", board)


def test_legal_outcomes_are_those_of_the_free_squares() -> None:
    for board in ALL:
        e = example(board)
        judged = [TASK.judge(e, call(square)).outcome for square in free_squares(board)]
        assert list(TASK.legal_outcomes(e)) == judged
        assert "occupied" not in judged


def test_the_score_is_the_published_reward_table() -> None:
    table = {"no_tool_call": -1, "wrong_tool": -1, "multiple_calls": -1, "invalid_arguments": -1,
             "occupied": -1, "legal": 0, "optimal": 0.8, "win": 1}  # fmt: skip
    assert TASK.score == table
    assert (
        bind(RewardTable, yaml.safe_load((ROOT / "conf/reward/published.yaml").read_text())).outcomes == table
    )


def test_every_reward_file_names_all_outcomes_and_none_pays_for_failing() -> None:
    for name in (path.stem for path in sorted((ROOT / "conf/reward").glob("*.yaml"))):
        params = compose([f"reward={name}", *([f"task={name}"] if name in ("game", "agent") else [])])
        table = bind(RewardTable, params["reward"], "reward")
        task = load_task(bind(TaskSettings, params["task"], "task"))
        table.check(task)
        paid = [table.outcomes[outcome] for outcome in task.outcomes]
        assert paid == sorted(paid), name  # outcomes are listed worst first


def test_milestones_and_outcomes_fit_together() -> None:
    assert isinstance(TASK, Task)
    assert list(TASK.outcomes[:4]) == list(CallOutcome)
    assert TASK.milestones["optimal"] < TASK.milestones["legal"] < set(TASK.outcomes)
    assert set(TASK.outcomes) - TASK.milestones["legal"] == {*CallOutcome, "occupied"}


# --- reference players -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("player", "published"),
    [("uniform", -0.377), ("centre", -0.296), ("random_legal", 0.483), ("minimax", 0.923)],
)
def test_mean_scores_over_all_boards(player: str, published: float) -> None:
    assert round(mean_score(player), 3) == published


def test_players_are_listed_weakest_first() -> None:
    scores = [mean_score(player) for player in TASK.players()]
    assert scores == sorted(scores)


@pytest.mark.parametrize(
    ("player", "expected"),
    [
        # Free are 1, 2, 3, 6 (legal) and 9 (win); four squares are taken.
        ("uniform", {"occupied": 4 / 9, "legal": 4 / 9, "win": 1 / 9}),
        ("centre", {"occupied": 1.0}),
        ("random_legal", {"legal": 4 / 5, "win": 1 / 5}),
        ("first_empty", {"legal": 1.0}),
        ("minimax", {"win": 1.0}),
    ],
)
def test_expected_outcomes_on_one_board(player: str, expected: dict[str, float]) -> None:
    assert TASK.expected_outcomes(player, example(WIN_NOW)) == pytest.approx(expected)


@untimed
@given(boards)
def test_expected_outcomes_are_probabilities_of_known_outcomes(board: str) -> None:
    e = example(board)
    for player in TASK.players():
        expected = TASK.expected_outcomes(player, e)
        assert sum(expected.values()) == pytest.approx(1)
        assert set(expected) <= set(TASK.outcomes)
    legal = Counter(TASK.legal_outcomes(e))
    shares = {outcome: n / legal.total() for outcome, n in legal.items()}
    assert TASK.expected_outcomes("random_legal", e) == pytest.approx(shares)


@untimed
@given(boards)
def test_no_player_earns_more_than_perfect_play(board: str) -> None:
    e = example(board)
    best = max(TASK.score[outcome] for outcome in TASK.legal_outcomes(e))
    assert sum(p * TASK.score[o] for o, p in TASK.expected_outcomes("minimax", e).items()) == pytest.approx(
        best
    )


# --- what the policy sees --------------------------------------------------------------------------------


def test_the_board_shows_the_numbers_of_free_squares() -> None:
    assert TASK.user(example("X.O...XO.")) == "X 2 O\n4 5 6\nX O 9"


def test_different_boards_read_differently() -> None:
    assert len({TASK.user(example(board)) for board in ALL}) == len(ALL)


def test_a_board_takes_few_tokens_and_each_square_its_own(tokenizer: Any) -> None:
    # The fullest reading is the empty board: nine digits, six spaces between them and two line ends.
    for board in ALL:
        tokens = tokenizer.convert_ids_to_tokens(tokenizer(TASK.user(example(board)))["input_ids"])
        squares = [token.lstrip("Ġ") for token in tokens if token.lstrip("Ġ") not in ("", "Ċ")]
        assert squares == [str(s) if board[s - 1] == "." else board[s - 1] for s in SQUARES]
        assert len(tokens) <= 17


def test_the_schema_takes_the_numbers_of_squares_and_nothing_else() -> None:
    schema = TASK.tools[0]["function"]["parameters"]
    jsonschema.Draft202012Validator.check_schema(schema)
    valid = jsonschema.Draft202012Validator(schema).is_valid
    assert all(valid({"square": square}) for square in SQUARES)
    for wrong in ({}, {"square": 0}, {"square": 10}, {"square": "5"}, {"square": 5, "why": "centre"}):
        assert not valid(wrong)


def test_the_system_message_names_the_tool_that_is_offered() -> None:
    assert [tool["function"]["name"] for tool in TASK.tools] == ["choose_square"]
    assert "choose_square" in TASK.system()


def test_worked_examples_are_best_play_and_differ() -> None:
    shown = TASK.worked_examples()
    judged = [TASK.judge(w.example, w.call) for w in shown]
    assert all(j.facts["square"] in j.facts["best"] for j in judged)
    assert len({j.facts["square"] for j in judged}) == len(shown) == 4
    assert len({w.example.group for w in shown}) == len({w.example.id for w in shown}) == 4
    assert {TASK.stratum(w.example) for w in shown} == {"marks=2", "marks=4", "marks=6"}
    assert [j.outcome for j in judged].count("win") == 1
    assert all(TASK.parse(w.example.line()) == w.example for w in shown)


def test_the_two_worked_examples_shown_by_default_differ_in_kind() -> None:
    """Not both the first free square, not both the same outcome: a habit must not explain both."""
    first, second = TASK.worked_examples()[:2]
    outcomes = {TASK.judge(w.example, w.call).outcome for w in (first, second)}
    assert outcomes == {"win", "optimal"}
    for w in (first, second):
        assert TASK.expected_outcomes("first_empty", w.example) == {"legal": 1.0}


# --- drawings --------------------------------------------------------------------------------------------


def texts(svg: str, class_name: str) -> list[str | None]:
    return [t.text for t in ET.fromstring(svg).iter(f"{SVG}text") if class_name in t.get("class", "").split()]


def test_a_drawing_shows_marks_numbers_and_calls() -> None:
    svg = TASK.draw(example(WIN_NOW), {"before": call(4), "after": call(9)})
    assert texts(svg, "mark") == ["O", "O", "X", "X"]
    assert texts(svg, "number") == ["1", "2", "3", "6", "9"]
    assert texts(svg, "call") == ["before", "after"]
    frames = {r.get("class"): (r.get("x"), r.get("y")) for r in ET.fromstring(svg).iter(f"{SVG}rect")}
    # Squares are 64 wide from 4 on, frames 3 inside: square 4 is row 2 column 1, square 9 row 3 column 3.
    assert frames == {"call call-before": ("7", "71"), "call call-after": ("135", "135")}


def test_two_calls_on_one_square_share_a_frame_and_show_both_names() -> None:
    svg = TASK.draw(example(WIN_NOW), {"before": call(9), "after": call(9)})
    assert len(list(ET.fromstring(svg).iter(f"{SVG}rect"))) == 1
    assert texts(svg, "call") == ["before", "after"]


@pytest.mark.parametrize(
    "bad", [None, call("5"), call(0), call(10), call(True), ToolCall("move", {"square": 5})]
)
def test_a_call_that_is_not_valid_is_told_below_the_board(bad: ToolCall | None) -> None:
    svg = TASK.draw(example(WIN_NOW), {"before": bad})
    assert texts(svg, "call") == ["before: no valid call"]
    assert not list(ET.fromstring(svg).iter(f"{SVG}rect"))


def test_a_drawing_can_be_read_aloud() -> None:
    root = ET.fromstring(TASK.draw(example(WIN_NOW), {"before": None, "after": call(9)}))
    assert root.get("role") == "img"
    assert [child.tag for child in list(root)[:2]] == [f"{SVG}title", f"{SVG}desc"]
    assert root[1].text == "Rows: - - -; O O -; X X -. before: no valid call. after: square 9."


@untimed
@given(st.text(min_size=1, max_size=20))
def test_names_of_calls_cannot_break_out_of_a_drawing(name: str) -> None:
    hostile = f"<b>&\"'{name}"
    printable = "".join(c for c in hostile if c.isprintable())
    svg = TASK.draw(example(WIN_NOW), {printable: call(9), printable + "2": None})
    assert texts(svg, "call") == [printable, f"{printable}2: no valid call"]


def test_a_drawing_brings_no_colours_ids_or_styles_of_its_own() -> None:
    svg = TASK.draw(example(WIN_NOW), {"before": call(4), "after": None})
    assert "#" not in svg
    assert " id=" not in svg
    assert "<style" not in svg
    inks = {node.get(key) for node in ET.fromstring(svg).iter() for key in ("fill", "stroke")}
    assert inks <= {None, "none", "currentColor"}
