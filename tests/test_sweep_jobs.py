"""The command of a sweep and its jobs, which meet in the sweep's folder alone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from omegaconf import OmegaConf

from ninegrid.experiments import running
from ninegrid.experiments.cell import Cell
from ninegrid.experiments.running import Manner, StoppedError, run_experiment
from ninegrid.outputs import write_json
from ninegrid.sweep import meeting
from ninegrid.sweep.meeting import Note, begin, end, flag, is_on, leave_note, read_notes
from ninegrid.sweep.run import run_cell
from ninegrid.sweep.telling import telling
from stages.sweep import Sweep, _environment

CELL = Cell("a", "f", {}, (), "d" * 64, "e", "retest")


def test_a_job_is_wanted_from_the_beginning_of_its_execution_to_its_end(tmp_path):
    assert not is_on(tmp_path, "one")
    begin(tmp_path, "one")
    assert is_on(tmp_path, "one")
    end(tmp_path)
    assert not is_on(tmp_path, "one")
    begin(tmp_path, "two")
    with pytest.raises(StoppedError):
        run_cell(tmp_path, CELL, tmp_path, "retest", 0, 1, "one", {})
    assert read_notes(tmp_path) == []


def test_the_end_waits_for_jobs_that_run_and_not_for_those_that_were_killed(tmp_path):
    begin(tmp_path, "one")
    release = threading.Event()

    def job():
        with flag(tmp_path, 0):
            release.wait(60)

    thread = threading.Thread(target=job)
    thread.start()
    threading.Timer(0.5, release.set).start()
    while not list((tmp_path / "running").iterdir()):
        time.sleep(0.01)
    end(tmp_path)
    assert release.is_set()
    thread.join()
    killed = subprocess.run(
        [sys.executable, "-c", "import os, sys\nfrom pathlib import Path\n"
         "from ninegrid.sweep.meeting import flag\n"
         "with flag(Path(sys.argv[1]), 1): os.kill(os.getpid(), 9)", str(tmp_path)],
        check=False,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL
    assert [path.name for path in (tmp_path / "running").iterdir()] == ["00001"]
    began = time.monotonic()
    end(tmp_path)
    assert time.monotonic() - began < meeting.END_S / 10


def test_an_experiment_that_is_wanted_no_longer_is_interrupted_even_where_ctrl_c_is_blocked(
    tmp_path, monkeypatch
):
    # A `dvc` that says how it was told to end.
    (tmp_path / "dvc").mkdir()
    (tmp_path / "dvc" / "__init__.py").touch()
    (tmp_path / "dvc" / "__main__.py").write_text(
        "import time\ntry:\n    print('began', flush=True)\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    print('interrupted', flush=True)\n"
    )
    log = tmp_path / "log"
    monkeypatch.setattr(running, "ASK_S", 0.05)
    manner = Manner(wanted=lambda: not log.exists() or "began" not in log.read_text())
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # as in a worker of Ray
    try:
        with pytest.raises(StoppedError):
            run_experiment(tmp_path, CELL, log, "", manner)
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert log.read_text() == "began\ninterrupted\n"


def test_cells_are_told_as_they_end_with_the_time_that_is_left(tmp_path, capsys):
    begin(tmp_path, "one")
    with telling(tmp_path):
        leave_note(tmp_path, Note(1, "seed=2", "f", {}, None, True, "score +0.500", 3))
        while "seed=2" not in (said := capsys.readouterr().err):
            time.sleep(0.05)
        leave_note(tmp_path, Note(0, "seed=1", "f", {}, "FAILED (retest, status 1)", False, "", 3))
        time.sleep(1)
        leave_note(tmp_path, Note(2, "seed=3", "f", {}, None, False, "score +0.600", 3))
    lines = [*said.splitlines(), *capsys.readouterr().err.splitlines()]
    assert lines[0] == "sweep: 1/3  seed=2  score +0.500 (known)"  # its time says nothing about the others
    assert re.fullmatch(r"sweep: 2/3  seed=1  FAILED \(retest, status 1\)  ETA 0:\d\d", lines[1])
    assert lines[2:] == ["sweep: 3/3  seed=3  score +0.600"]


def test_a_note_that_is_being_written_is_not_read(tmp_path, monkeypatch):
    seen = []

    def write_slowly(path, content):
        path.write_text('{"num')
        seen.append(read_notes(tmp_path))
        write_json(path, content)

    begin(tmp_path, "one")
    monkeypatch.setattr(meeting, "write_json", write_slowly)
    leave_note(tmp_path, Note(0, "a", "f", {}, None, True))
    assert seen == [[]]
    assert [note.label for note in read_notes(tmp_path)] == ["a"]


def test_cells_are_told_the_store_and_their_share_of_the_cores(tmp_path, monkeypatch):
    def told(launcher, tracking="http://127.0.0.1:1"):
        around = OmegaConf.create({"launcher": launcher})
        return _environment(Sweep("s", tmp_path, (), 1, tracking=tracking), around)

    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert told({}) == {"NINEGRID_SWEEP": "s", "MLFLOW_TRACKING_URI": "http://127.0.0.1:1"}
    assert told({}, None) == {"NINEGRID_SWEEP": "s"}
    shares = [
        told(share)["OMP_NUM_THREADS"] for share in ({"n_jobs": 4}, {"n_jobs": -1}, {"cpus_per_task": 3})
    ]
    assert shares == ["2", "1", "3"]  # 8 cores for 4 jobs; for as many jobs as there are cores; as given
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert "OMP_NUM_THREADS" not in told({"n_jobs": 4})
