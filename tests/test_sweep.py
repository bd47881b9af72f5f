"""Sweeps: cells, ranking and pictures by hand, and the command on a real DVC project."""

from __future__ import annotations

import csv
import fcntl
import re
import signal
import subprocess
from dataclasses import replace

import pytest

from ninegrid.errors import SettingsError
from ninegrid.experiments import execute
from ninegrid.experiments.cell import Cell
from ninegrid.experiments.execute import how_it_ended
from ninegrid.experiments.results import DECODINGS, Figures, Result, write_record
from ninegrid.params import compose
from ninegrid.settings import validate
from ninegrid.sweep.cells import grid, make_cell, parse, sweep_name, swept_keys
from ninegrid.sweep.figure import draw_sweep
from ninegrid.sweep.meeting import Note, begin, leave_note, read_notes
from ninegrid.sweep.outcome import finished, write_outcome
from ninegrid.sweep.rank import rank, to_compare
from ninegrid.sweep.table import csv_rows, tables
from stages.sweep import Sweep, _alone, plan
from tests.conftest import ROOT, SMOKE
from tests.stopping import stopped_sweep

ONE_STEP = (*SMOKE, "train.steps=1")


def result(score, low=None, high=None, **values):
    named = {key.replace("__", "."): value for key, value in values.items()}
    figures = Figures(score, low, high, -0.5, score + 0.5, 0.0, 1.0, {"legal": 0.9})
    sides = dict.fromkeys(DECODINGS, figures)
    return Result(
        named,
        f"{score} {sorted(named.items())}",
        f"x-{score}",
        "abc",
        0.95,
        {"random_legal": 0.48},
        {},
        sides,
    )


# --- cells -----------------------------------------------------------------------------------------------


def test_the_grid_is_every_combination_once_with_what_is_fixed():
    overrides = parse(["-m", "reward.win=1,2", "train.steps=3", "train.seed=1,2", "hydra/launcher=box"])
    assert swept_keys(overrides) == ["reward.win", "train.seed"]
    cells = [" ".join(cell) for cell in grid(overrides)]
    assert len(cells) == len(set(cells)) == 4
    assert "reward.win=2 train.steps=3 train.seed=1" in cells


def test_the_name_follows_from_the_overrides_in_any_order():
    one, other = parse(["reward.win=1,2", "train.seed=1,2"]), parse(["train.seed=1,2", "reward.win=1,2"])
    assert sweep_name(one) == sweep_name(other)
    assert sweep_name(one) != sweep_name(parse(["reward.win=1,2"]))


def test_a_cell_is_called_by_what_is_swept_and_counts_by_everything(tmp_path):
    def cell(*overrides):
        made = ("reward.win=2", "reward=shaped", "train.steps=3", *overrides)
        return make_cell(ROOT, "s", made, ("reward.win", "reward"), validate(compose(made)))

    assert cell().values == {"reward.win": 2.0, "reward": "shaped"}
    assert cell().label == "reward.win=2 reward=shaped"
    assert cell().experiment == f"s-{cell().digest[:8]}"
    assert cell("tracking=disabled").digest == cell().digest
    assert cell("reward.win=2.0").digest == cell().digest  # the same setting in other digits
    assert cell("train.steps=4").digest != cell().digest
    assert (cell().last_stage, cell("perturb=all").last_stage) == ("retest", "perturb_retest")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-m", "reward.win=1,2", "train.n_samples=1,4"], "cell reward.win=1 train.n_samples=1: "),
        (["-m", "train=gspo,gspo_token", "train.credit=branch"], "cell train=gspo train.credit=branch: "),
        (["-m", "train.stepz=1,2"], "unknown setting train.stepz; did you mean train.steps?"),
        (["-m", "train.stepz=1"], "unknown setting train.stepz; did you mean train.steps?"),
        (["-m", "reward.win=[1,2"], "cannot read 'reward.win=[1,2'"),
        (["-m", "train.seed=1,2", "hydra.job.name=a/b"], "hydra.job.name='a/b'"),
        (["train.seed=1,2"], "a sweep is asked for with -m"),
        (["-m", "reward.win=1,1.0"], "cell reward.win=1.0 is the same as cell reward.win=1"),
        (["-m", "tracking.traces=0,5"], "cell tracking.traces=5 is the same as cell tracking.traces=0"),
        (["-m", "reward.win=interval(0,1)"], "hydra/sweeper=search"),
        (["-m", "reward.win"], "cannot read 'reward.win'"),
        (["-m", "hydra/sweeper=search", "reward.wn=interval(0,1)"], "did you mean reward.win?"),
        (["hydra/sweeper=search", "reward.win=interval(0,1)"], "a sweep is asked for with -m"),
    ],
)
def test_wrong_sweeps_are_refused_before_anything_runs(arguments, message):
    with pytest.raises(SettingsError) as refusal:
        plan(arguments)
    assert message in str(refusal.value)


def test_a_sweep_that_runs_already_is_refused(tmp_path):
    one = Sweep("s", tmp_path / "s", (), 1)
    with _alone(one), pytest.raises(SettingsError, match="s is being run by another process"), _alone(one):
        pass
    with _alone(one):
        pass


def test_a_search_is_called_by_the_settings_it_searches():
    sought, _ = plan(["-m", "hydra/sweeper=search", "experiment=smoke", "reward.win=interval(0.5,2)"])
    assert (sought.swept, sought.cells) == (("reward.win",), None)
    with pytest.raises(SettingsError, match=re.escape("train.stepz")):
        plan(["-m", "hydra/sweeper=search", "train.stepz=1", "reward.win=interval(0.5,2)"])


# --- ranking, tables, pictures ---------------------------------------------------------------------------


def test_seeds_are_one_setting_and_settings_are_ranked_by_their_mean():
    settings = rank(
        [
            result(0.5, win=1, train__seed=1),
            result(0.9, win=2, train__seed=1),
            result(0.7, win=1, train__seed=2),
            result(0.3, win=2, train__seed=2),
            result(0.61, 0.5, 0.7, win=3, train__seed=1),
        ]
    )
    assert [(s.values, len(s.results)) for s in settings] == [
        ((("win", 3),), 1),
        ((("win", 1),), 2),
        ((("win", 2),), 2),
    ]
    assert [s.score for s in settings] == pytest.approx([0.61, 0.6, 0.6])
    assert to_compare(settings[1].results + settings[0].results) == ["x-0.61", "x-0.5"]
    # One seed has the interval over boards.  Two have Student's: t for 95%, 1 degree of freedom: 12.7062,
    # and the standard error of 0.5 and 0.7 is 0.1.
    assert settings[0].interval() == (0.5, 0.7)
    assert settings[1].interval() == pytest.approx((0.6 - 1.27062, 0.6 + 1.27062), abs=1e-5)


def test_one_result_counts_once_and_values_may_be_lists():
    one = result(0.5, 0.4, 0.6, names=["a"], train__seed=1)
    (setting,) = rank([one, one])
    assert (len(setting.results), setting.interval()) == (1, (0.4, 0.6))
    settings = rank([one, result(0.6, 0.5, 0.7, names=[], train__seed=1)])
    assert [s.values for s in settings] == [(("names", []),), (("names", ["a"]),)]
    assert "names=['a']" in draw_sweep("s", settings)[0]
    flags = rank([result(0.1, x=v, y=w) for v in (1, True) for w in ([], ["a"])])
    assert len(flags) == 4
    draw_sweep("s", flags)


def test_a_record_tells_the_values_of_the_sweep_that_asks(tmp_path, monkeypatch):
    write_record(tmp_path / "f.json", replace(result(0.5), digest="d" * 64))
    cell = Cell("a", "f", {"train.seed": 1}, (), "d" * 64, "e", "retest")
    monkeypatch.setattr(execute, "find_experiment", lambda root, name: "abc")
    assert execute.known_result(tmp_path, cell, tmp_path).values == {"train.seed": 1}
    # Its experiment was removed: there is nothing behind the record any more.
    monkeypatch.setattr(execute, "find_experiment", lambda root, name: None)
    assert execute.known_result(tmp_path, cell, tmp_path) is None


def test_the_table_names_best_first_and_what_it_is_set_beside():
    text = tables(rank([result(0.2, 0.1, 0.3, reward__win=1), result(0.4, 0.3, 0.5, reward__win=2)]))
    assert re.search(r"^1 +2 +1 +\+0\.400 +\+0\.900 .* \+0\.300 to \+0\.500 +boards$", text, re.MULTILINE)
    assert re.search(r"^2 +1 +1 +\+0\.200", text, re.MULTILINE)
    assert re.search(r"^baseline +-0\.500 +-0\.500$", text, re.MULTILINE)
    assert re.search(r"^random legal +\+0\.480 +\+0\.480$", text, re.MULTILINE)


def test_csv_has_a_row_for_each_cell():
    rows = csv_rows([result(0.2, 0.1, 0.3, reward__win=1, train__seed=1)])
    assert rows[0]["reward.win"] == 1
    assert (rows[0]["sampled/score"], rows[0]["sampled/score_low"]) == (0.2, 0.1)


TWO_AXES = [result(w + o, w + o - 0.1, w + o + 0.1, reward__win=w, reward__optimal=o)
            for w in (0.1, 0.2) for o in (0.3, 0.5, 0.7)]  # fmt: skip


@pytest.mark.parametrize(
    ("results", "texts"),
    [
        (TWO_AXES, ["reward.win", "reward.optimal", "0.800", "beside: baseline"]),
        (
            [result(s, s - 0.1, s + 0.1, reward__win=w) for w, s in ((1.0, 0.2), (2.0, 0.4))],
            ["reward.win", "held-out score, sampled", "random legal"],
        ),
        ([result(0.1, reward="shaped"), result(0.2, reward="published")], ["reward=shaped", "baseline"]),
        (
            [result(s, a__x=1, b__y=2, c__z=z, train__seed=k) for z, k, s in ((3, 1, 0.1), (3, 2, 0.2))],
            ["x=1  y=2  z=3", "one seed"],
        ),
        ([result(0.1)], ["the only one"]),
    ],
)
def test_pictures_show_what_was_swept_and_are_the_same_each_time(results, texts):
    picture, pixels = draw_sweep("s", rank(results))
    for text in texts:
        assert text in picture
    assert draw_sweep("s", rank(results)) == (picture, pixels)


def test_notes_of_this_execution_alone_count(tmp_path):
    begin(tmp_path, "one")
    leave_note(tmp_path, Note(3, "old", "f", {}, "FAILED", False))
    begin(tmp_path, "two")
    write_record(tmp_path / "f.json", replace(result(0.5), values={"reward.win": 2.0}))
    leave_note(tmp_path, Note(10, "b", "g", {}, "FAILED", False))
    leave_note(tmp_path, Note(2, "a", "f", {"reward.win": 3.0}, None, True))
    notes = read_notes(tmp_path)
    assert [note.label for note in notes] == ["a", "b"]
    found = finished(tmp_path, notes)
    assert [r.values for r in found] == [{"reward.win": 3.0}]
    write_outcome("s", tmp_path, found)
    assert {path.suffix for path in tmp_path.glob("sweep.*")} == {".csv", ".svg", ".png"}


@pytest.mark.parametrize(
    ("said", "ended"),
    [
        ("failed to run: python -m stages.train_gspo, exited with 1", "FAILED (train_gspo, status 1)"),
        ("failed to run: python -m stages.retest, exited with -9", "KILLED (retest, SIGKILL)"),
        ("failed to run: python -m stages.retest, exited with 143", "KILLED (retest, SIGTERM)"),
        ("no such thing", "FAILED (dvc exp run ended with status 255)"),
    ],
)
def test_a_failure_says_which_stage_and_how(tmp_path, said, ended):
    log = tmp_path / "log"
    log.write_text(f"ERROR: {said}\n")
    assert how_it_ended(log, 255) == ended


def test_a_cell_waits_for_dvcs_lock_and_gives_up_on_anything_else(tmp_path, monkeypatch):
    cell = Cell("a", "f", {}, (), "d" * 64, "e", "retest")
    said = ["ERROR: Unable to acquire lock. Most likely", "ERROR: failed to run: no such file"]
    attempts = []

    def run_experiment(root, cell, log, prefix, manner, held):
        log.write_text(said[len(attempts)])
        attempts.append(cell.experiment)
        return 255

    monkeypatch.setattr(execute, "run_experiment", run_experiment)
    monkeypatch.setattr(execute, "find_experiment", lambda root, name: None)
    monkeypatch.setattr(execute, "PAUSE_S", (0.0, 0.0))
    with pytest.raises(execute.CellError, match="dvc exp run ended with status 255"):
        execute.execute(tmp_path, cell, tmp_path, "data/retest")
    assert attempts == ["e", "e"]


def test_a_cell_whose_sweep_was_killed_is_waited_for(tmp_path, monkeypatch):
    cell = Cell("a", "f", {}, (), "d" * 64, "e", "retest")
    with (tmp_path / "f.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        left = ["sh", "-c", f"sleep 1; touch {tmp_path}/ended"]
        subprocess.Popen(left, pass_fds=[file.fileno()])
    ended = []

    def run_experiment(root, cell, log, prefix, manner, held):
        ended.append((tmp_path / "ended").exists())
        return 1

    monkeypatch.setattr(execute, "run_experiment", run_experiment)
    monkeypatch.setattr(execute, "find_experiment", lambda root, name: None)
    with pytest.raises(execute.CellError):
        execute.execute(tmp_path, cell, tmp_path, "data/retest")
    assert ended == [True]


# --- the command, on a project of its own ----------------------------------------------------------------


def sweep(project, *arguments, **extra):
    return project.python("-m", "stages.sweep", "-m", "hydra.job.name=s", *arguments, check=False, **extra)


def rows_of(project):
    with (project.root / ".ninegrid/sweeps/s/sweep.csv").open() as file:
        return list(csv.DictReader(file))


def logs_of(project):
    return [path.read_text() for path in (project.root / ".ninegrid/sweeps/s").glob("*.log")]


SABOTAGE = """    if str(settings.train.seed) in __import__('os').environ.get('SABOTAGE', ''):
        if settings.train.seed == 3:
            raise RuntimeError('it is not to be')
        __import__('os').kill(__import__('os').getpid(), 9)
"""
"""What `train_gspo` does in the test: of the seeds named, 3 raises and the others are killed."""


@pytest.mark.slow
def test_cells_run_beside_the_workspace_and_those_that_fail_leave_the_others_alone(finished):
    project = finished
    stage = project.root / "stages/train_gspo.py"
    line = "    paths, start = settings.paths, starting_model(settings.paths)\n"
    assert line in stage.read_text()
    stage.write_text(stage.read_text().replace(line, SABOTAGE + line))
    project.git("commit", "-qam", "sabotage")
    data = {path: path.stat().st_mtime_ns for path in (project.root / "data").rglob("*")}

    first = sweep(project, *ONE_STEP, "train.seed=3,4,5", SABOTAGE="34")
    assert first.returncode == 1, first.stderr
    ended = [r"1/3  train.seed=3  FAILED \(train_gspo, status 1\) after",
             r"2/3  train.seed=4  KILLED \(train_gspo, SIGKILL\) after",
             r"3/3  train.seed=5  score [+-]\d\.\d{3}, change"]  # fmt: skip
    assert re.search(".*".join(f"sweep: {line}" for line in ended), first.stderr, re.DOTALL)
    assert [row["train.seed"] for row in rows_of(project)] == ["5"]
    assert re.search(r"^rank +seeds", first.stdout, re.MULTILINE)
    assert "<svg" in (project.root / ".ninegrid/sweeps/s/sweep.svg").read_text()
    # Of all stages only those ran that read what the cell changes.
    ran = [tuple(re.findall(r"^Running stage '(\w+)'", log, re.MULTILINE)) for log in logs_of(project)]
    assert sorted(ran) == [("train_gspo",), ("train_gspo",), ("train_gspo", "retest")]
    # The workspace is as it was.
    assert project.git("status", "--porcelain").stdout == ""
    assert {path: path.stat().st_mtime_ns for path in (project.root / "data").rglob("*")} == data
    assert not (project.root / "multirun").exists()

    again = sweep(project, *ONE_STEP, "train.seed=3,4,5", SABOTAGE="3")
    assert again.returncode == 1, again.stderr
    assert again.stderr.count("(known)") == 1
    assert [row["train.seed"] for row in rows_of(project)] == ["4", "5"]


@pytest.mark.slow
def test_ctrl_c_ends_the_sweep_and_it_goes_on_later(finished):
    arguments = (*SMOKE, "train.n_samples=8", "train.steps=60", "train.seed=1,2")
    status, said = stopped_sweep(finished, signal.SIGINT, *arguments)
    assert status == 130, said
    assert "sweep: stopped; run it again to go on" in said
    assert list((finished.root / ".dvc/tmp/exps/standalone").glob("tmp*")) == []
