"""The one door: what it refuses and how it says so; and that params.yaml is what conf/ composes to."""

from dataclasses import dataclass
from typing import Literal

import pytest

from ninegrid.app import read_sections
from ninegrid.config import bind, flatten, require, unbind
from ninegrid.errors import SettingsError
from ninegrid.params import check_overrides, compose, describe_changes, read_params
from ninegrid.settings import validate
from tests.conftest import ROOT


@dataclass(frozen=True)
class Inner:
    rate: float = 0.5
    mode: Literal["a", "b"] = "a"
    limit: int | None = None

    def __post_init__(self) -> None:
        require(0 < self.rate < 1, "rate", self.rate, "between 0 and 1")


@dataclass(frozen=True)
class Outer:
    inner: Inner
    names: tuple[str, ...] = ()


def test_binds_nested_values_and_defaults():
    assert bind(Outer, {"inner": {"rate": 0.25, "limit": 3}, "names": ["x"]}) == Outer(
        Inner(0.25, "a", 3), ("x",)
    )


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"inner": {"rats": 0.1}}, r"unknown setting inner\.rats; did you mean inner\.rate\?"),
        ({"inner": {"zzz": 0.1}}, r"unknown setting inner\.zzz; inner has rate, mode, limit"),
        ({"inner": {"rate": 2}}, r"inner\.rate = 2\.0, allowed: between 0 and 1"),
        ({"inner": {"rate": "abc"}}, r"inner\.rate = 'abc', expected a number"),
        ({"inner": {"rate": True}}, r"inner\.rate = True, expected a number"),
        ({"inner": {"rate": float("nan")}}, r"inner\.rate = nan, expected a finite number"),
        ({"inner": {"limit": 1.5}}, r"inner\.limit = 1\.5, expected a whole number"),
        ({"inner": {"mode": "c"}}, r"inner\.mode = 'c', expected one of a, b"),
        ({"inner": 3}, r"inner = 3, expected a mapping"),
        ({"inner": {}, "names": "x"}, r"names = 'x', expected a list"),
        ({}, r"missing setting inner"),
    ],
)
def test_refuses_with_key_value_and_what_is_allowed(raw, message):
    with pytest.raises(SettingsError, match=message):
        bind(Outer, raw)


def test_settings_go_back_to_the_keys_they_came_from():
    params = compose(["train.steps=3", "reward.win=2"])
    assert flatten(unbind(validate(params))) == flatten(params)


def test_committed_params_are_what_conf_composes_to():
    assert describe_changes(compose([]), read_params()) == []


GAME = ["task=game", "reward=game", "boards.count=1000"]
AGENT = ["task=agent", "reward=agent"]
COMPANIONS = {"task=game": GAME, "reward=game": GAME, "task=agent": AGENT, "reward=agent": AGENT}
"""What has to be chosen together with a file of a group."""
CHOICES = [
    f"{folder.name}={path.stem}"
    for folder in sorted((ROOT / "conf").iterdir())
    if folder.is_dir() and folder.name != "hydra"
    for path in sorted(folder.glob("*.yaml"))
]


@pytest.mark.parametrize("choice", CHOICES)
def test_every_shipped_group_is_valid(choice):
    validate(compose([choice, *COMPANIONS.get(choice, [])]))


def test_settings_that_no_file_holds_are_valid_too():
    validate(compose(["train.optimizer=adamw_8bit", "engine.path=padded"]))
    validate(compose([*GAME, "reward.steps.optimal=0.1", "train.credit=turn"]))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.n_samples=1", r"train\.n_samples = 1, allowed: >= 2"),
        ("boards.heldout_share=1.5", r"boards\.heldout_share = 1\.5"),
        ("reward.win=abc", r"reward\.win = 'abc', expected a number"),
        ("+reward.wim=1", r"unknown setting reward\.wim; did you mean reward\.win\?"),
        ("~reward.win", r"missing setting reward\.win"),
        ("boards.count=9999", r"9999, but only 2201"),
        ("train.clip_low=0", r"train\.clip_low = 0"),
        ("decoding.temperature=0", r"decoding\.temperature"),
        ("+nonsense.a=1", r"unknown setting nonsense"),
        ("task._target_=ninegrid.tasks.nowhere.Task", r"task"),
        ("task=game", r"unknown setting reward\.legal(.|\n)*task tictactoe_game wants a table of its own"),
        ("+reward.steps={optimal: 1}", r"reward\.steps = .*, but task tictactoe tells of no steps"),
    ],
)
def test_impossible_settings_are_refused(override, message):
    with pytest.raises(SettingsError, match=message):
        validate(compose([override]))


def test_overrides_of_unknown_settings_name_the_nearest():
    params = compose([])
    check_overrides(
        ["train.steps=5", "reward.win=1,2", "+reward.extra=1", "-m", "hydra.run.dir=x"], params, list(params)
    )
    with pytest.raises(SettingsError, match=r"unknown setting train\.stepz; did you mean train\.steps\?"):
        check_overrides(["train.stepz=5"], params, list(params))
    with pytest.raises(SettingsError, match="is a group of settings") as caught:
        check_overrides(["reward=shaped"], params, list(params))
    assert "python -m ninegrid.params reward=shaped" in str(caught.value)
    with pytest.raises(SettingsError, match="does not read boards; it reads task, train"):
        check_overrides(["boards.seed=5"], params, ["task", "train"])


def test_a_stage_reads_its_sections_and_no_others():
    @dataclass(frozen=True)
    class Needs:
        inner: Inner

    with pytest.raises(SettingsError, match="unknown setting inner"):
        read_sections(Needs, {"inner": {}})
