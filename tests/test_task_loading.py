"""A task comes from the settings alone: a user's own file plugs in, and what cannot work is named."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ninegrid.config import TaskSettings, bind
from ninegrid.errors import SettingsError
from ninegrid.tasks.loading import load_task
from ninegrid.tasks.protocol import Task
from ninegrid.tasks.tictactoe import TicTacToe

ROOT = Path(__file__).resolve().parent.parent
TICTACTOE = "ninegrid.tasks.tictactoe.TicTacToe"

OWN_TASK = """
from __future__ import annotations
from dataclasses import dataclass
from typing import Literal
from ninegrid.config import require
from ninegrid.tasks.tictactoe import TicTacToe

class Shouting(TicTacToe):
    def __init__(self, greeting: str, tone: Literal["loud", "soft"] = "loud", times: int = 1) -> None:
        super().__init__()
        require(times > 0, "times", times, "> 0")
        self.greeting, self.tone, self.times = greeting, tone, times

    def system(self) -> str:
        return " ".join([self.greeting] * self.times) + ("!" if self.tone == "loud" else ".")

@dataclass
class AsDataclass(TicTacToe):
    min_moves: int = 0
    max_moves: int = 2

class Untyped(TicTacToe):
    def __init__(self, anything):
        super().__init__()
        self.anything = anything

class Plain(TicTacToe):
    def __init__(self):
        super().__init__()

class NoMilestones(TicTacToe):
    @property
    def milestones(self):
        raise AttributeError

class WrongLead(TicTacToe):
    outcomes = TicTacToe.outcomes[1:]

class Unscored(TicTacToe):
    score = {k: v for k, v in TicTacToe.score.items() if k != "win"}

class OddMilestone(TicTacToe):
    milestones = {"legal": frozenset({"legal", "brilliant"})}

class OddDecision(TicTacToe):
    decision = "field"

class Half:
    name = "half"
    def system(self):
        return ""

not_a_class = 3
"""


@pytest.fixture(autouse=True)
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "own_task.py").write_text(OWN_TASK)
    (tmp_path / "needs_more.py").write_text("import a_module_that_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("own_task", "needs_more"):
        sys.modules.pop(name, None)


def load(target: str, **arguments: Any) -> Task:
    return load_task(TaskSettings(target, arguments))


def refused(target: str, **arguments: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        load(target, **arguments)
    return str(caught.value)


def test_the_shipped_configuration_loads_with_the_published_numbers_of_moves() -> None:
    raw = yaml.safe_load((ROOT / "conf/task/tictactoe.yaml").read_text())
    task = load_task(bind(TaskSettings, raw, "task"))
    assert isinstance(task, TicTacToe)
    assert (task.min_moves, task.max_moves) == (0, 6)


def test_arguments_reach_the_task() -> None:
    assert load(TICTACTOE, max_moves=2).available() == 73  # the empty board and 9 x 8 of two marks
    assert load(TICTACTOE, min_moves=1, max_moves=2).available() == 72


def test_a_task_in_a_file_of_ones_own_plugs_in() -> None:
    assert load("own_task.Shouting", greeting="move", times=2).system() == "move move!"
    assert load("own_task.Shouting", greeting="move", tone="soft").system() == "move."


def test_classes_of_other_shapes_plug_in() -> None:
    assert load("own_task.AsDataclass").available() == 73
    assert load("own_task.AsDataclass", max_moves=6).available() == 2201
    untyped: Any = load("own_task.Untyped", anything=[1, {"a": None}])
    assert untyped.anything == [1, {"a": None}]
    assert load("own_task.Plain").name == "tictactoe"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_move": 3}, "unknown setting task.max_move; did you mean task.max_moves?"),
        ({"colour": 3}, "unknown setting task.colour; task has min_moves, max_moves, view"),
        ({"max_moves": 9}, "task.max_moves = 9, allowed: 0 to 8"),
        ({"max_moves": "six"}, "task.max_moves = 'six', expected a whole number"),
        ({"max_moves": True}, "task.max_moves = True, expected a whole number"),
        ({"min_moves": 7}, "task.min_moves = 7, allowed: 0 to max_moves = 6"),
    ],
)
def test_arguments_that_do_not_fit_are_named(arguments: dict[str, Any], message: str) -> None:
    assert refused(TICTACTOE, **arguments) == message


def test_arguments_of_ones_own_class_are_checked_too() -> None:
    assert "missing setting task.greeting" in refused("own_task.Shouting")
    assert "task.times = 0, allowed: > 0" in refused("own_task.Shouting", greeting="a", times=0)
    assert "expected one of loud, soft" in refused("own_task.Shouting", greeting="a", tone="shrill")
    assert "unknown setting task.x" in refused("own_task.Plain", x=1)


@pytest.mark.parametrize("path", ["TicTacToe", "", "ninegrid/tasks/tictactoe.TicTacToe", "a..B", "own_task."])
def test_a_path_that_is_no_import_path_is_refused(path: str) -> None:
    assert refused(path) == f"task._target_ = {path!r}, expected package.module.ClassName"


def test_a_module_that_is_not_there_is_named() -> None:
    message = refused("ninegrid.tasks.tictacto.TicTacToe")
    assert "cannot import ninegrid.tasks.tictacto: No module named 'ninegrid.tasks.tictacto'" in message


def test_what_a_module_lacks_itself_is_named() -> None:
    assert "cannot import needs_more: No module named 'a_module_that_nobody_has'" in refused(
        "needs_more.Task"
    )


def test_a_class_that_is_not_there_is_named_with_the_nearest() -> None:
    message = refused("ninegrid.tasks.tictactoe.TicTacTo")
    assert "ninegrid.tasks.tictactoe has no class TicTacTo" in message
    assert f"-> task._target_={TICTACTOE}" in message
    assert "own_task has no class not_a_class" in refused("own_task.not_a_class")


@pytest.mark.parametrize(
    ("target", "lacking"),
    [
        ("own_task.Half", "the class lacks available, generate, parse"),
        ("builtins.dict", "the class lacks available, generate"),
        ("own_task.NoMilestones", "the class lacks milestones"),
        ("own_task.WrongLead", "outcomes begin with ['wrong_tool'"),
        ("own_task.Unscored", "score and outcomes differ in ['win']"),
        ("own_task.OddMilestone", "milestone legal names unknown outcomes ['brilliant']"),
        ("own_task.OddDecision", "decision = 'field' is no argument of its tools (square)"),
    ],
)
def test_a_class_that_cannot_be_a_task_is_refused(target: str, lacking: str) -> None:
    message = refused(target)
    assert message.startswith(f"task._target_ = '{target}': ")
    assert lacking in message
