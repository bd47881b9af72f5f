"""Tic-tac-toe's perturbations by hand: what is shown and offered, and that a move is worth what it was."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest

from ninegrid.chat.format import ChatFormat, ChatSettings
from ninegrid.chat.judging import judge_reply
from ninegrid.config import OutOfRange
from ninegrid.errors import SettingsError
from ninegrid.params import compose
from ninegrid.perturb.choice import chosen_perturbations, offered_perturbations
from ninegrid.settings import validate
from ninegrid.tasks.protocol import Example, Perturbable, Task, ToolCall
from ninegrid.tasks.tictactoe import TicTacToe
from ninegrid.tasks.tictactoe.board import LINES, SQUARES
from ninegrid.tasks.tictactoe.generate import all_boards
from ninegrid.tasks.tictactoe.perturbations import REWORDINGS
from tests.small_tasks import Parrot

TASK = TicTacToe()
PERTURBED: Mapping[str, Any] = {name: p.task for name, p in TASK.perturbations().items()}
MIXED = "X.O...XO."
WIN_NOW = "...OO.XX."  # 9 wins, 6 is free and no more, 4 is taken
EIGHT = "eight_marks"


def example(board: str) -> Example:
    return TASK.parse({"id": "test", "board": [list(board[row : row + 3]) for row in (0, 3, 6)]})


def reply(tool: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': tool, 'arguments': arguments})}</tool_call>"


def parameters(task: Task) -> Any:
    return task.tools[0]["function"]["parameters"]


# --- what is shown and offered ---------------------------------------------------------------------------


def test_the_usual_prompt_is_what_it_was_before_there_were_perturbations(tokenizer: Any) -> None:
    """Hashes of the first release: a policy trained then is asked the same now."""
    told = ChatFormat(tokenizer, ChatSettings(), TASK).fingerprint()
    assert told["prompt_sha256"] == "07d062d8bd726eec2f34fd710a57eebada1d2bc026dd0c03076aabdfa5e866e3"
    assert told["tools_sha256"] == "7ef6d56e316a18c98aaf9c0595d887c3af6c9508c3cd3f5d31a6a9214600b556"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        # Squares 2, 4, 5, 6 and 9 are free.
        ("numbers_reversed", "X 8 O\n6 5 4\nX O 1"),
        ("numbers_from_zero", "X 1 O\n3 4 5\nX O 8"),
        ("letters", "X B O\nD E F\nX O I"),
        ("notation", "X|2|O\n4|5|6\nX|O|9"),
        ("plays_o", "O 2 X\n4 5 6\nO X 9"),
        ("tool_renamed", "X 2 O\n4 5 6\nX O 9"),
    ],
)
def test_the_board_as_it_is_shown(name: str, shown: str) -> None:
    assert PERTURBED[name].user(example(MIXED)) == shown


def test_each_perturbation_changes_its_own_part_and_no_other() -> None:
    plain = _parts(TASK)
    changed = {
        name: {part for part, text in _parts(task).items() if text != plain[part]}
        for name, task in PERTURBED.items()
    }
    assert changed == {
        "numbers_reversed": {"user", "worked calls"},
        "numbers_from_zero": {"user", "worked calls", "tools"},
        "letters": {"user", "worked calls", "tools", "system"},
        "notation": {"user"},
        "view_changed": {"system", "user"},
        "tool_renamed": {"system", "tools", "worked calls"},
        "argument_renamed": {"tools", "worked calls"},
        "schema_reordered": {"tools"},
        "instructions_reworded": {"system", "tools"},
        "examples_replaced": {"worked boards", "worked calls"},
        "plays_o": {"system", "tools", "user"},
        EIGHT: set(),
    }


def _parts(task: Task) -> dict[str, str]:
    worked = task.worked_examples()
    return {
        "system": task.system(),
        "tools": json.dumps(list(task.tools)),
        "user": task.user(example(MIXED)),
        "worked boards": json.dumps([w.example.line()["board"] for w in worked]),
        "worked calls": json.dumps([(w.call.name, w.call.arguments) for w in worked]),
    }


def test_schemas() -> None:
    square = {
        name: parameters(task)["properties"].get("square")
        for name, task in PERTURBED.items()
    }  # fmt: skip
    assert square["numbers_from_zero"] == {
        "type": "integer", "minimum": 0, "maximum": 8, "description": "The number of the square."
    }  # fmt: skip
    assert square["letters"] == {
        "type": "string", "enum": list("ABCDEFGHI"), "description": "The letter of the square."
    }  # fmt: skip
    renamed = parameters(PERTURBED["argument_renamed"])
    assert list(renamed["properties"]) == renamed["required"] == ["position"]
    assert PERTURBED["argument_renamed"].decision == "position"
    assert PERTURBED["tool_renamed"].tools[0]["function"]["name"] == "place_mark"
    assert "Call place_mark" in PERTURBED["tool_renamed"].system()
    assert PERTURBED["plays_o"].system().startswith("You play O in")
    assert PERTURBED["plays_o"].tools[0]["function"]["description"] == "Put O on a free square."
    for task in PERTURBED.values():
        jsonschema.Draft202012Validator.check_schema(parameters(task))


def test_a_reordered_schema_is_the_same_schema_backwards() -> None:
    usual, backwards = TASK.tools[0], PERTURBED["schema_reordered"].tools[0]
    assert backwards == usual
    assert list(backwards["function"]) == ["parameters", "description", "name"]
    assert list(backwards["function"]["parameters"]["properties"]["square"]) == [
        "description", "maximum", "minimum", "type"
    ]  # fmt: skip


def test_replaced_examples_are_other_boards_of_the_same_classes_with_best_answers() -> None:
    usual, replaced = TASK.worked_examples(), PERTURBED["examples_replaced"].worked_examples()
    assert {w.example.group for w in replaced} == {w.example.group for w in usual}
    assert not {str(w.example.data) for w in replaced} & {str(w.example.data) for w in usual}
    for w in replaced:
        judged = TASK.judge(w.example, w.call)
        assert judged.facts["square"] in judged.facts["best"]
    # OX. / ... / O.X, answered by 4, a quarter turn clockwise: O.O / ..X / X.. answered by 2.
    assert replaced[0].example.data["board"] == [["O", ".", "O"], [".", ".", "X"], ["X", ".", "."]]
    assert replaced[0].call.arguments == {"square": 2}


# --- what a move is worth --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "outcome"),
    [
        ("numbers_reversed", reply("choose_square", square=1), "win"),
        ("numbers_reversed", reply("choose_square", square=9), "legal"),  # square 1
        ("numbers_reversed", reply("choose_square", square=6), "occupied"),  # square 4
        ("numbers_from_zero", reply("choose_square", square=8), "win"),
        ("numbers_from_zero", reply("choose_square", square=0), "legal"),
        ("numbers_from_zero", reply("choose_square", square=9), "invalid_arguments"),
        ("letters", reply("choose_square", square="I"), "win"),
        ("letters", reply("choose_square", square="D"), "occupied"),
        ("letters", reply("choose_square", square=9), "invalid_arguments"),
        ("tool_renamed", reply("place_mark", square=9), "win"),
        ("tool_renamed", reply("choose_square", square=9), "wrong_tool"),
        ("argument_renamed", reply("choose_square", position=9), "win"),
        ("argument_renamed", reply("choose_square", square=9), "invalid_arguments"),
        # Shown as 1 2 3 / X X 6 / O O 9: O wins with 9, and 6 only stops X.
        ("plays_o", reply("choose_square", square=9), "win"),
        ("plays_o", reply("choose_square", square=6), "legal"),
    ],
)
def test_replies_are_judged_in_the_words_they_were_asked_in(name: str, text: str, outcome: str) -> None:
    assert judge_reply(PERTURBED[name], example(WIN_NOW), text).outcome == outcome


@pytest.mark.parametrize("name", REWORDINGS)
def test_every_square_is_worth_what_it_was(name: str) -> None:
    task = PERTURBED[name]
    for board in all_boards(0, 6)[::7]:
        found = example(board)
        for square in SQUARES:
            usual = TASK.judge(found, TASK.wording.call(square))
            judged = task.judge(found, task.wording.call(square))
            assert (judged.outcome, judged.facts) == (usual.outcome, usual.facts)
        assert task.legal_outcomes(found) == TASK.legal_outcomes(found)


@pytest.mark.parametrize("name", PERTURBED)
def test_a_perturbed_task_is_a_task_with_the_same_outcomes_and_examples(name: str) -> None:
    task = PERTURBED[name]
    assert isinstance(task, Task)
    assert (task.outcomes, task.milestones, task.score) == (TASK.outcomes, TASK.milestones, TASK.score)
    drawn = TASK.generate(40, seed=5)
    assert [task.parse(e.line()) for e in drawn] == drawn
    assert [w.example.group for w in task.worked_examples()] != []
    for worked in task.worked_examples():
        text = reply(worked.call.name, **worked.call.arguments)
        assert judge_reply(task, worked.example, text).outcome in task.milestones["optimal"]


def test_a_drawing_marks_the_square_that_was_meant() -> None:
    letters = PERTURBED["letters"]
    wanted = TASK.draw(example(WIN_NOW), {"after": ToolCall("choose_square", {"square": 9})})
    assert letters.draw(example(WIN_NOW), {"after": ToolCall("choose_square", {"square": "I"})}) == wanted
    missed = letters.draw(example(WIN_NOW), {"after": ToolCall("choose_square", {"square": 9})})
    assert "after: no valid call" in missed


# --- purity ----------------------------------------------------------------------------------------------


def test_perturbing_changes_neither_the_task_nor_the_next_perturbation() -> None:
    task = TicTacToe(max_moves=4)
    before = _parts(task)
    first, second = task.perturbations(), task.perturbations()
    assert _parts(task) == before
    assert list(first) == list(second)
    for name in first:
        assert _parts(first[name].task) == _parts(second[name].task)
        assert first[name].examples == second[name].examples
        assert first[name].task.available() == task.available() == 829  # 1 + 72 + 756


def test_perturbations_add_up() -> None:
    both = PERTURBED["letters"].perturbations()["plays_o"].task
    assert both.user(example(MIXED)) == "O B X\nD E F\nO X I"
    assert "Free squares show their letter" in both.system()


def test_free_squares_with_the_marks_on_their_lines() -> None:
    """X 2 O / 4 5 6 / X O 9 by hand: through 5 go 4-5-6 (empty), 2-5-8 (O), 1-5-9 (X) and 3-5-7 (O and X)."""
    task = TicTacToe(view="squares")
    assert task.user(example(MIXED)) == "2: XO O\n4: XX\n5: O X XO\n6: O\n9: XO O X"
    assert task.user(example(".........")).split("\n") == [f"{square}:" for square in SQUARES]


def test_lines_with_their_marks_and_free_squares() -> None:
    """X 2 O / 4 5 6 / X O 9: eight lines by hand, each with a free square."""
    task = TicTacToe(view="lines")
    assert task.user(example(MIXED)).split("\n") == [
        *("XO 2", "4 5 6", "XO 9"),
        *("XX 4", "O 2 5", "O 6 9"),
        *("X 5 9", "XO 5"),
    ]
    # A line without a free square is left out: here the first row, the first column and a diagonal.
    assert task.user(example("XOXOX.O..")).split("\n") == ["XO 6", "O 8 9", "XO 8", "X 6 9", "XX 9"]
    letters = task.perturbations()["letters"].task
    assert letters.user(example(MIXED)).split("\n")[:2] == ["XO B", "D E F"]


def test_perturbations_go_with_any_view() -> None:
    perturbed = {name: p.task for name, p in TicTacToe(view="squares").perturbations().items()}
    shown = {name: task.user(example(MIXED)) for name, task in perturbed.items()}
    assert shown["letters"] == "B: XO O\nD: XX\nE: O X XO\nF: O\nI: XO O X"
    assert shown["notation"] == "2:|XO|O\n4:|XX\n5:|O|X|XO\n6:|O\n9:|XO|O|X"
    assert shown["plays_o"] == "2: OX X\n4: OO\n5: X O OX\n6: X\n9: OX X O"
    assert "OO can be won there, XX must be stopped there" in perturbed["plays_o"].system()
    assert shown["view_changed"] == TASK.user(example(MIXED))
    assert perturbed["view_changed"].system() == TASK.system()
    assert PERTURBED["view_changed"].user(example(MIXED)) == TicTacToe(view="lines").user(example(MIXED))
    assert len({task.system() for name, task in perturbed.items() if name != EIGHT}) == 6


def test_an_unknown_view_is_refused() -> None:
    with pytest.raises(OutOfRange, match="view = 'rows', allowed: grid or squares or lines"):
        TicTacToe(view="rows")


# --- boards of eight marks -------------------------------------------------------------------------------


def test_boards_of_eight_marks_are_all_there_are_and_never_drawn() -> None:
    expected = set()
    for free in SQUARES:
        for xs in itertools.combinations([s for s in SQUARES if s != free], 4):
            board = "".join("." if s == free else "X" if s in xs else "O" for s in SQUARES)
            if not any({board[s - 1] for s in line} in ({"X"}, {"O"}) for line in LINES):
                expected.add(board)
    own = TASK.perturbations()[EIGHT].examples
    assert own is not None
    found = {"".join(mark for row in e.data["board"] for mark in row) for e in own}
    assert found == expected
    assert len({e.id for e in own}) == len(own) == len(expected)
    assert not found & set(all_boards(0, 6))


@pytest.mark.parametrize("most", [7, 8])
def test_where_the_generator_draws_eight_marks_they_are_no_perturbation(most: int) -> None:
    assert EIGHT not in TicTacToe(max_moves=most).perturbations()


# --- which ones the settings ask for ---------------------------------------------------------------------


def test_the_shipped_list_is_all_that_is_offered() -> None:
    assert list(validate(compose(["perturb=all"])).perturb.names) == list(TASK.perturbations())


def test_chosen_in_the_order_of_the_settings() -> None:
    assert list(chosen_perturbations(TASK, ["plays_o", "letters"])) == ["plays_o", "letters"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("perturb.names=[leters]", "task tictactoe does not offer; did you mean letters?"),
        ("perturb.names=[zzz]", "does not offer; it offers numbers_reversed, numbers_from_zero"),
        ("perturb.names=[letters,letters]", "each name once"),
        ("perturb.names=letters", "expected a list"),
        ("perturb.boards=0", "perturb.boards = 0, allowed: >= 1"),
    ],
)
def test_what_cannot_be_measured_is_refused(override: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        validate(compose([override]))
    assert message in str(caught.value)


def test_a_task_without_perturbations_has_none() -> None:
    assert not isinstance(Parrot(), Perturbable)
    assert offered_perturbations(Parrot()) == {}
    with pytest.raises(SettingsError, match="task parrot offers no perturbations") as caught:
        chosen_perturbations(Parrot(), ["letters"])
    assert "perturb=none" in str(caught.value)
