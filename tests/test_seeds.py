"""Repeating a setting over seeds: statistics by hand, and the command on a real DVC project."""

from __future__ import annotations

import csv
import json
import re
import shutil
from dataclasses import replace

import pytest

from ninegrid.errors import SettingsError
from ninegrid.experiments.digest import code_digest
from ninegrid.experiments.results import (
    DECODINGS,
    Figures,
    Result,
    read_record,
    seed_of,
    write_record,
)
from ninegrid.experiments.spread import seeds_above, spread, spreads
from ninegrid.seeds.figure import draw_seeds
from ninegrid.seeds.plan import default_name, make_plan
from ninegrid.seeds.summary import summary
from ninegrid.seeds.table import csv_rows, tables
from tests.conftest import ROOT, SMOKE

ONE_STEP = (*SMOKE, "train.steps=1")


ALTERNATIVES = {"forced": {"sampled": 0.56, "greedy": 0.3}}


def result(seed, score, low, high, **changes):
    figures = Figures(score, low, high, -0.5, score + 0.5, 0.0, 1.0, {"legal": 0.9, "optimal": 0.5})
    made = Result(
        {"train.seed": seed},
        "d" * 64,
        f"x-seed-{seed}",
        "abc",
        0.95,
        {"random": 0.48},
        ALTERNATIVES,
        dict.fromkeys(DECODINGS, figures),
    )
    return replace(made, **changes)


THREE = (result(1, 0.5, 0.47, 0.53), result(2, 0.6, 0.55, 0.65), result(3, 0.7, 0.66, 0.74))


def test_spread_by_hand():
    # The sd of 1, 2, 3 is 1; t for 95% and 2 degrees of freedom is 4.302653; over sqrt(3) it is 2.484138.
    found = spread([1.0, 2.0, 3.0], 0.95)
    assert (found.n, found.mean, found.sd, found.min, found.max) == (3, 2.0, 1.0, 1.0, 3.0)
    assert found.low == pytest.approx(2 - 2.484138, abs=1e-6)
    assert found.high == pytest.approx(2 + 2.484138, abs=1e-6)
    # With 80% t is 1.885618.
    assert spread([1.0, 2.0, 3.0], 0.8).high == pytest.approx(2 + 1.885618 / 3**0.5, abs=1e-6)


def test_a_single_seed_has_no_spread():
    found = spread([0.25], 0.95)
    assert (found.mean, found.sd, found.low, found.high) == (0.25, None, None, None)


def test_a_seed_is_above_a_reference_only_with_its_whole_interval():
    assert seeds_above(THREE, "sampled", 0.48) == [2, 3]
    assert seeds_above(THREE, "sampled", 0.55) == [3]
    assert seeds_above([result(1, 0.9, None, None)], "greedy", 0.0) == []


def test_tables_csv_and_summary_agree():
    told = summary("x", ["train.steps=1"], THREE, [9])
    assert told["seeds"] == [1, 2, 3] and told["failed"] == [9]
    assert told["spread"]["sampled/score"]["mean"] == pytest.approx(0.6)
    assert told["spread"]["sampled/score"]["sd"] == pytest.approx(0.1)
    assert told["spread"]["greedy/change"]["min"] == pytest.approx(1.0)
    assert told["beside"]["random"]["sampled"] == {"score": 0.48, "seeds_above": [2, 3]}
    assert told["beside"]["forced"]["sampled"] == {"score": 0.56, "seeds_above": [3]}
    assert told["beside"]["forced"]["greedy"] == {"score": 0.3, "seeds_above": [1, 2, 3]}
    assert told["beside"]["baseline"]["sampled"] == {"score": -0.5, "seeds_above": [1, 2, 3]}
    assert spreads(THREE)["sampled/legal"].mean == pytest.approx(0.9)
    rows = csv_rows(THREE)
    assert [row["seed"] for row in rows] == [1, 2, 3]
    assert rows[1]["sampled/score_low"] == 0.55
    text = tables(THREE)
    assert re.search(r"sampled score +\+0\.600 +\+0\.100 +\+0\.500 +\+0\.700 +\+0\.352 to \+0\.848", text)
    assert re.search(r"random +\+0\.480 +2 of 3 +\+0\.480 +2 of 3", text)


def test_the_picture_shows_every_seed_and_is_the_same_each_time():
    picture, pixels = draw_seeds("x", THREE)
    for text in ("seed 1", "seed 3", "mean", "random", "baseline", "held-out score, greedy"):
        assert f">{text}<" in picture
    assert draw_seeds("x", THREE) == (picture, pixels)
    assert draw_seeds("x", THREE[:1])[0] != picture


def test_a_record_counts_for_its_digest_alone(tmp_path):
    path = tmp_path / "seed-1.json"
    assert read_record(path, THREE[0].digest) is None
    write_record(path, THREE[0])
    assert read_record(path, THREE[0].digest) == THREE[0]
    assert read_record(path, "e" * 64) is None
    path.write_text(path.read_text()[:-20])
    assert read_record(path, THREE[0].digest) is None


def test_what_a_run_depends_on_decides_its_digest():
    one, two = make_plan(ROOT, [1, 2], ["train.steps=1"]).cells
    assert one.digest != two.digest
    (same,) = make_plan(ROOT, [1], ["train.steps=1", "tracking=disabled", "paths.state=x"]).cells
    assert same.digest == one.digest
    (other,) = make_plan(ROOT, [1], ["train.steps=2"]).cells
    assert other.digest != one.digest


def test_code_that_stages_list_is_part_of_the_digest(tmp_path):
    for name in ("ninegrid", "stages"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    before = code_digest(tmp_path)
    assert before == code_digest(ROOT)
    with (tmp_path / "ninegrid/progress.py").open("a") as file:
        file.write("# no output depends on this module\n")
    assert code_digest(tmp_path) == before
    with (tmp_path / "ninegrid/gspo/credit.py").open("a") as file:
        file.write("# a change\n")
    assert code_digest(tmp_path) != before


def test_names_follow_the_overrides():
    assert default_name([]) == "default"
    assert default_name(["experiment=strong"]) == "strong"
    named = default_name(["experiment=strong", "train.steps=2", "reward.win=2"])
    assert named == default_name(["reward.win=2", "train.steps=2", "experiment=strong"])
    assert re.fullmatch("strong-[0-9a-f]{6}", named)


@pytest.mark.parametrize(
    ("seeds", "overrides", "name", "message"),
    [
        ([1, 1], [], None, "distinct"),
        ([-1], [], None, ">= 0"),
        ([1], ["train.seed=2"], None, "given by --seeds"),
        ([1], ["train.n_samples=1"], None, "train.n_samples = 1"),
        ([1], ["train.stepz=1"], None, "train.stepz"),
        ([1], [], "a/b", "--name 'a/b'"),
    ],
)
def test_wrong_plans_are_refused_before_anything_runs(seeds, overrides, name, message):
    with pytest.raises(SettingsError, match=re.escape(message)):
        make_plan(ROOT, seeds, overrides, name)


# --- the command, on a project of its own ----------------------------------------------------------------


def repeat(project, *arguments):
    return project.python("-m", "stages.repeat_seeds", "--name", "x", *arguments, check=False)


def stages_run(project, seed):
    log = (project.root / f".ninegrid/seeds/x/seed-{seed}.log").read_text()
    return re.findall(r"^Running stage '(\w+)'", log, re.MULTILINE)


@pytest.mark.slow
def test_seeds_run_beside_the_workspace_and_only_what_is_missing_runs_again(finished):
    project = finished
    params = (project.root / "params.yaml").read_bytes()
    data = {path: path.stat().st_mtime_ns for path in (project.root / "data").rglob("*")}
    first = repeat(project, "--seeds", "1,2", *ONE_STEP)
    assert first.returncode == 0, first.stderr
    folder = project.root / ".ninegrid/seeds/x"
    with (folder / "seeds.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["seed"] for row in rows] == ["1", "2"]
    assert stages_run(project, 2) == ["train_gspo", "retest"]
    assert "over seeds" in first.stdout and "[seed 2] > python -m stages.retest" in first.stderr
    told = json.loads((folder / "summary.json").read_text())
    assert set(told["beside"]) >= {"baseline", "random_legal", "minimax"}
    assert "forced" not in told["beside"]  # nothing was tried instead of training
    assert {path.suffix for path in folder.glob("seeds.*")} == {".csv", ".svg", ".png"}
    # The numbers are those of the experiment, and the workspace is as it was.
    held = project.dvc("exp", "show", "--json").stdout
    assert all(row["experiment"] in held for row in rows)
    metrics = project.root / "metrics.json"
    project.dvc("get", ".", "data/retest/metrics.json", "--rev", rows[1]["revision"], "-o", str(metrics))
    found = json.loads(metrics.read_text())["sampled"]
    metrics.unlink()
    assert float(rows[1]["sampled/score"]) == pytest.approx(found["score_mean"])
    assert float(rows[1]["sampled/legal"]) == pytest.approx(found["milestones"]["legal"]["rate"])
    assert (project.root / "params.yaml").read_bytes() == params
    assert project.git("status", "--porcelain").stdout == ""
    assert {path: path.stat().st_mtime_ns for path in (project.root / "data").rglob("*")} == data

    again = repeat(project, "--seeds", "1,2", *ONE_STEP)
    assert again.returncode == 0
    assert "[seed" not in again.stderr
    assert again.stdout == first.stdout
    # A lost record is taken from the experiment again.
    (folder / "seed-2.json").unlink()
    assert "[seed" not in repeat(project, "--seeds", "2", *ONE_STEP).stderr
    assert (folder / "seed-2.json").exists()


def test_a_seed_that_fails_does_not_stop_the_next(tmp_path, monkeypatch, capsys):
    from ninegrid.experiments.execute import CellError
    from ninegrid.seeds import collect

    plan = make_plan(ROOT, [3, 1], ["train.steps=1"], "x")

    def execute(root, cell, folder, retest):
        if cell.values["train.seed"] == 3:
            raise CellError("FAILED (train_gspo, status 1) after 2 s: the log")
        return result(1, 0.5, 0.4, 0.6)

    monkeypatch.setattr(collect, "execute", execute)
    outcome = collect.run_plan(ROOT, plan, tmp_path)
    assert ([seed_of(r) for r in outcome.results], outcome.failed) == ([1], [3])
    assert "seed 3 FAILED (train_gspo, status 1) after 2 s: the log" in capsys.readouterr().err
