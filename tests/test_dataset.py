"""The data set of any task: the split, the leak check, the manifest, and files that are not right."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ninegrid.config import bind
from ninegrid.errors import DataError, SettingsError
from ninegrid.tasks.dataset import (
    BoardSettings,
    Dataset,
    build_dataset,
    check_leaks,
    expected_score,
    is_flat,
    manifest,
    read_examples,
    write_dataset,
)
from ninegrid.tasks.protocol import Example
from ninegrid.tasks.split import heldout_groups
from ninegrid.tasks.tictactoe import TicTacToe

ROOT = Path(__file__).resolve().parent.parent
TASK = TicTacToe()
PUBLISHED = BoardSettings(count=2048, seed=2026, heldout_share=0.2)
WORKED = {worked.example.group for worked in TASK.worked_examples()}

untimed = settings(deadline=None, max_examples=20)


@pytest.fixture(scope="module")
def published() -> Dataset:
    return build_dataset(TASK, PUBLISHED)


def board(name: str, squares: str) -> Example:
    return TASK.parse({"id": name, "board": [list(squares[row : row + 3]) for row in (0, 3, 6)]})


def whole(examples: list[Example], share: float, seed: int = 0, pinned: str = "") -> frozenset[str]:
    """Hold out groups of examples that have one stratum each by the first letter of their group."""
    return heldout_groups(examples, share, seed, frozenset(pinned), lambda e: e.group[0])


def members(**groups: int) -> list[Example]:
    return [Example(f"{group}{i}", group, {}) for group, n in groups.items() for i in range(n)]


# --- the split -------------------------------------------------------------------------------------------

boards_settings = st.builds(
    BoardSettings,
    count=st.integers(40, 2201),
    seed=st.integers(0, 10**6),
    heldout_share=st.floats(0.05, 0.6),
)


@untimed
@given(boards_settings)
def test_no_group_is_divided_and_the_share_is_met_to_within_a_group(asked: BoardSettings) -> None:
    data = build_dataset(TASK, asked)
    train, held = ({e.group for e in side} for side in (data.train, data.heldout))
    assert not train & held
    assert not WORKED & held
    assert Counter(e.id for e in data.total) == Counter(e.id for e in TASK.generate(asked.count, asked.seed))
    largest = max(Counter(e.group for e in data.total).values())
    assert abs(len(data.heldout) - asked.heldout_share * asked.count) <= largest
    check_leaks(TASK, data)


@untimed
@given(st.lists(st.integers(1, 9), min_size=2, max_size=40), st.floats(0.05, 0.95), st.integers(0, 99))
def test_the_share_is_met_for_groups_of_any_number(sizes: list[int], share: float, seed: int) -> None:
    """To within half of the last group, unless the first group alone is too much or all are not enough."""
    examples = members(**{f"g{i}": n for i, n in enumerate(sizes)})
    chosen = whole(examples, share, seed)
    held = sum(e.group in chosen for e in examples)
    assert len(chosen) == 1 or abs(held - share * len(examples)) <= max(sizes) / 2 + 1e-9


@untimed
@given(boards_settings, st.randoms(use_true_random=False))
def test_the_choice_does_not_depend_on_the_order_of_examples(asked: BoardSettings, random: Any) -> None:
    examples = TASK.generate(asked.count, asked.seed)
    arguments = (asked.heldout_share, asked.seed, frozenset(WORKED), TASK.stratum)
    expected = heldout_groups(examples, *arguments)
    random.shuffle(examples)
    assert heldout_groups(examples, *arguments) == expected


def test_strata_give_alike(published: Dataset) -> None:
    """Each stratum of many boards gives a fifth, to within a group of eight boards and the rounding."""
    for label in ("marks=4", "marks=6"):
        n = sum(TASK.stratum(e) == label for e in published.total)
        held = sum(TASK.stratum(e) == label for e in published.heldout)
        assert abs(held - 0.2 * n) <= 8


def test_strata_give_alike_by_hand() -> None:
    # Two strata of four groups of one example: half of each is held out, whichever the shuffle puts first.
    examples = members(a1=1, a2=1, a3=1, a4=1, b1=1, b2=1, b3=1, b4=1)
    for seed in range(20):
        assert Counter(group[0] for group in whole(examples, 0.5, seed)) == {"a": 2, "b": 2}


def test_a_group_that_would_overshoot_further_than_it_helps_stays_in_training() -> None:
    # 8 examples, wanted 0.5 x 8 = 4.  After one group of 3 the next would make 6: further off than 3.
    examples = members(a1=3, a2=3, a3=2)
    held = {seed: sum(e.group in whole(examples, 0.5, seed) for e in examples) for seed in range(20)}
    assert set(held.values()) <= {3, 5}


def test_pinned_groups_stay_in_training_whatever_the_share() -> None:
    examples = members(a=5, b=5, c=5)
    assert all("a" not in whole(examples, 0.95, seed, pinned="a") for seed in range(20))
    assert whole(examples, 0.95, pinned="a") == {"b", "c"}


def test_another_seed_holds_out_other_groups() -> None:
    examples = TASK.generate(500, seed=1)
    chosen = {heldout_groups(examples, 0.2, seed, frozenset(), TASK.stratum) for seed in range(5)}
    assert len(chosen) == 5


def test_the_published_settings_are_the_defaults_of_code_and_configuration() -> None:
    assert BoardSettings() == PUBLISHED
    raw = yaml.safe_load((ROOT / "conf/boards/default.yaml").read_text())
    assert bind(BoardSettings, raw, "boards") == PUBLISHED


@pytest.mark.parametrize(
    ("key", "value"), [("count", 1), ("seed", -1), ("heldout_share", 0.0), ("heldout_share", 1.5)]
)
def test_settings_out_of_range_are_refused(key: str, value: float) -> None:
    with pytest.raises(SettingsError, match=f"boards.{key} = {value}, allowed: "):
        bind(BoardSettings, {key: value}, "boards")


def test_asking_for_more_than_exist_names_how_many_do_and_draws_nothing() -> None:
    class NeverDraws(TicTacToe):
        def generate(self, count: int, seed: int) -> list[Example]:
            raise AssertionError("drew although too few exist")

    with pytest.raises(
        SettingsError, match=r"boards.count = 2202, but only 2201 distinct examples exist"
    ) as caught:
        build_dataset(NeverDraws(), BoardSettings(count=2202))
    assert caught.value.hint == "boards.count=2201"


def test_all_that_exist_can_be_asked_for() -> None:
    data = build_dataset(TASK, BoardSettings(count=2201))
    assert len(data.total) == 2201


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_a_split_with_an_empty_side_is_refused(share: float) -> None:
    """Two boards of one class: at least one class is held out, so training has none."""

    class OneClass(TicTacToe):
        def generate(self, count: int, seed: int) -> list[Example]:
            return [board("a", "O.......X"), board("b", "X.......O")]

    assert len({e.group for e in OneClass().generate(2, 0)}) == 1
    with pytest.raises(SettingsError, match="leaves no training examples"):
        build_dataset(OneClass(), BoardSettings(count=2, heldout_share=share))


def test_a_split_of_nothing_but_worked_examples_is_refused() -> None:
    class OnlyShown(TicTacToe):
        def generate(self, count: int, seed: int) -> list[Example]:
            return [shown.example for shown in self.worked_examples()[:count]]

    with pytest.raises(SettingsError, match="leaves no held-out examples"):
        build_dataset(OnlyShown(), BoardSettings(count=2))


# --- the leak check --------------------------------------------------------------------------------------


def test_the_published_data_set_has_no_leak(published: Dataset) -> None:
    check_leaks(TASK, published)


def test_a_rotated_training_board_is_a_leak() -> None:
    data = Dataset([board("a", "X.O......")], [board("b", "..X.....O")])
    with pytest.raises(DataError, match="held-out example b is of the same group as a"):
        check_leaks(TASK, data)


def test_a_leak_is_found_though_the_examples_claim_different_groups() -> None:
    turned = replace(board("b", "..X.....O"), group="another")
    with pytest.raises(DataError, match="held-out example b"):
        check_leaks(TASK, Dataset([board("a", "X.O......")], [turned]))


def test_a_held_out_worked_example_is_a_leak() -> None:
    shown = TASK.worked_examples()[0].example
    data = Dataset([board("a", "X.O......")], [replace(shown, id="b")])
    with pytest.raises(DataError, match=f"held-out example b is of the same group as {shown.id}"):
        check_leaks(TASK, data)


def test_examples_that_occur_twice_are_refused() -> None:
    first, again = board("a", "X.O......"), board("b", "X.O......")
    with pytest.raises(DataError, match="two examples have the id a"):
        check_leaks(TASK, Dataset([first, replace(again, id="a")], []))
    with pytest.raises(DataError, match="examples a and b hold the same data"):
        check_leaks(TASK, Dataset([first, again], []))


def test_leaking_data_are_not_written(tmp_path: Path) -> None:
    data = Dataset([board("a", "X.O......")], [board("b", "..X.....O")])
    with pytest.raises(DataError, match="held-out example b"):
        write_dataset(TASK, data, PUBLISHED, tmp_path)
    assert list(tmp_path.iterdir()) == []


# --- the manifest ----------------------------------------------------------------------------------------


def test_the_manifest_counts_what_is_there(published: Dataset) -> None:
    told = manifest(TASK, published, PUBLISHED)
    assert told["available"] == 2201
    assert told["examples"] == {
        "train": len(published.train),
        "heldout": len(published.heldout),
        "total": 2048,
    }
    # Asking for 93% of all boards meets every one of the 304 classes.
    assert told["groups"]["total"] == told["groups"]["train"] + told["groups"]["heldout"] == 304
    for side in ("train", "heldout", "total"):
        assert sum(stratum[side] for stratum in told["strata"].values()) == told["examples"][side]
    assert list(told["strata"]) == ["marks=0", "marks=2", "marks=4", "marks=6"]
    assert set(told["worked_example_groups"]) == WORKED


def test_the_manifest_of_all_boards_shows_the_known_figures() -> None:
    asked = BoardSettings(count=2201)
    told = manifest(TASK, build_dataset(TASK, asked), asked)
    assert {label: n["total"] for label, n in told["strata"].items()} == {
        "marks=0": 1,
        "marks=2": 72,
        "marks=4": 756,
        "marks=6": 1372,
    }
    assert told["flat"]["total"] == told["flat"]["train"] + told["flat"]["heldout"] == 281
    totals = {player: round(score["total"], 3) for player, score in told["players"].items()}
    first_empty = totals.pop("first_empty")
    assert totals == {"uniform": -0.377, "centre": -0.296, "random_legal": 0.483, "minimax": 0.923}
    assert totals["random_legal"] < first_empty < totals["minimax"]


def test_scores_in_the_manifest_by_hand() -> None:
    # Two boards of the same marks: on "...OO.XX." four legal moves pay 0 and one pays 1 (mean 0.2); on the
    # empty board all nine are optimal (0.8).  Only the empty board is flat.
    data = Dataset([board("a", "...OO.XX.")], [board("b", ".........")])
    told = manifest(TASK, data, PUBLISHED)
    assert told["players"]["random_legal"] == {"train": 0.2, "heldout": 0.8, "total": 0.5}
    assert told["players"]["minimax"] == {"train": 1.0, "heldout": 0.8, "total": 0.9}
    assert told["flat"] == {"train": 0, "heldout": 1, "total": 1}


def test_a_task_without_enumerable_actions_has_no_flat_examples() -> None:
    class Silent(TicTacToe):
        def legal_outcomes(self, example: Example) -> list[str]:
            return []

    empty = board("b", ".........")
    assert is_flat(TASK, empty)
    assert not is_flat(Silent(), empty)


def test_expected_score_by_hand() -> None:
    # Uniform on "...OO.XX.": four of nine taken (-1), four legal (0), one wins (1): (-4 + 1) / 9.
    assert expected_score(TASK, "uniform", board("a", "...OO.XX.")) == pytest.approx(-3 / 9)


# --- files -----------------------------------------------------------------------------------------------


def test_what_is_written_reads_back(published: Dataset, tmp_path: Path) -> None:
    told = write_dataset(TASK, published, PUBLISHED, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "heldout.jsonl",
        "manifest.json",
        "train.jsonl",
    ]
    assert read_examples(TASK, tmp_path / "train.jsonl") == published.train
    assert read_examples(TASK, tmp_path / "heldout.jsonl") == published.heldout
    assert json.loads((tmp_path / "manifest.json").read_text()) == told
    for name, digest in told["sha256"].items():
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() == digest


def test_lines_have_the_published_form(tmp_path: Path) -> None:
    data = Dataset([board("generated-00000", "X.O...XO.")], [board("generated-00001", ".........")])
    write_dataset(TASK, data, PUBLISHED, tmp_path)
    line = '{"id":"generated-00000","board":[["X",".","O"],[".",".","."],["X","O","."]]}\n'
    assert (tmp_path / "train.jsonl").read_text() == line


@untimed
@given(boards_settings)
def test_the_same_settings_give_the_same_bytes(tmp_path_factory: Any, asked: BoardSettings) -> None:
    folders = [tmp_path_factory.mktemp("boards") for _ in range(2)]
    for folder in folders:
        write_dataset(TASK, build_dataset(TASK, asked), asked, folder)
    first, second = ({p.name: p.read_bytes() for p in folder.iterdir()} for folder in folders)
    assert first == second


def test_another_seed_gives_other_files(tmp_path: Path) -> None:
    told = []
    for seed in (1, 2):
        asked = BoardSettings(count=100, seed=seed)
        told.append(manifest(TASK, build_dataset(TASK, asked), asked)["sha256"])
    assert told[0]["train.jsonl"] != told[1]["train.jsonl"]


GOOD = '{"id":"a","board":[["X",".","O"],[".",".","."],["X","O","."]]}'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "not JSON"),
        ('{"id":"b","board":[["X"', "not JSON"),
        ("9" * 5000, "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", r"expected a JSON object, found \[1\]"),
        ('{"id":"b"}', "keys id, expected id, board"),
        (GOOD.replace('"X","O"', '"X","X"'), "3 X and 1 O"),
        (GOOD, "id a is that of line 1 too"),
    ],
)
def test_a_line_that_is_no_example_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text(f"{GOOD}\n{line}\n")
    with pytest.raises(DataError, match=message) as caught:
        read_examples(TASK, path)
    assert f"{path}, line 2: " in str(caught.value)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    path = tmp_path / "heldout.jsonl"
    with pytest.raises(DataError, match=r"heldout.jsonl is missing\n  -> dvc repro generate_boards"):
        read_examples(TASK, path)
    path.write_text("")
    with pytest.raises(DataError, match=r"heldout.jsonl holds no examples"):
        read_examples(TASK, path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match=r"cannot read .*heldout.jsonl"):
        read_examples(TASK, path)
    with pytest.raises(DataError, match=r"cannot read "):
        read_examples(TASK, tmp_path)
