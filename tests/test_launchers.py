"""Sweeps beyond one process: what the command and its jobs leave for each other, and Hydra's launchers."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from importlib.metadata import PackageNotFoundError

import pytest
from omegaconf import OmegaConf

from ninegrid.errors import SettingsError
from ninegrid.experiments import running
from ninegrid.experiments.cell import Cell
from ninegrid.experiments.running import Manner, StoppedError, run_experiment
from ninegrid.sweep import meeting, plugins
from ninegrid.sweep.meeting import Note, begin, end, flag, is_on, leave_note, read_notes
from ninegrid.sweep.run import run_cell
from ninegrid.sweep.telling import telling
from stages.sweep import Sweep, _environment, plan
from tests.conftest import SMOKE

CELL = Cell("a", "f", {}, (), "d" * 64, "e", "retest")


def needs(package, extra):
    """Skips a test where the package is not installed."""
    missing = not plugins._is_installed(package)
    return pytest.mark.skipif(missing, reason=f"{package} is not installed: pip install 'ninegrid[{extra}]'")


needs_ray = needs("hydra-ray-launcher", "ray")
needs_submitit = needs("hydra-submitit-launcher", "slurm")


# --- what the command and its jobs leave for each other --------------------------------------------------


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
    (tmp_path / "dvc" / "__main__.py").write_text(
        "import time\ntry:\n    print('began', flush=True)\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    print('interrupted', flush=True)\n"
    )
    log = tmp_path / "log"
    monkeypatch.setattr(running, "ASK_S", 0.05)
    manner = Manner({"PYTHONPATH": str(tmp_path)}, wanted=lambda: "began" not in log.read_text())
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


# --- launchers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "package", "extra"),
    [
        ("hydra/launcher=box", "hydra-joblib-launcher", "sweep"),
        ("hydra/sweeper=search", "hydra-optuna-sweeper", "sweep"),
        ("hydra/launcher=cluster", "hydra-ray-launcher", "ray"),
        ("hydra/launcher=ray", "hydra-ray-launcher", "ray"),
        ("hydra/launcher=slurm", "hydra-submitit-launcher", "slurm"),
    ],
)
def test_a_missing_plugin_is_named_with_the_command_that_installs_it(monkeypatch, choice, package, extra):
    def version(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(plugins, "version", version)
    with pytest.raises(SettingsError) as refusal:
        plan(["-m", choice, "train.seed=1,2"])
    assert str(refusal.value) == (
        f"{choice} needs the package {package}, which is not installed\n  -> pip install 'ninegrid[{extra}]'"
    )


def launcher_of(project, *overrides):
    """The launcher's settings as Hydra composes them, and what it said meanwhile."""
    shown = project.python("-m", "stages.sweep", *overrides, "--cfg", "hydra", "-p", "hydra.launcher")
    return OmegaConf.create(shown.stdout), shown.stderr


@needs_ray
def test_rays_config_starts_no_dashboard_and_gives_a_cell_one_core(project):
    config, said = launcher_of(project, "hydra/launcher=cluster")
    assert said == ""  # no clash with the plugin's own config
    assert config._target_.endswith(".RayLauncher")
    assert (config.ray.init.include_dashboard, config.ray.init.object_store_memory) == (False, None)
    assert config.ray.remote == {"num_cpus": 1, "num_gpus": 0}


@needs_submitit
def test_slurms_config_goes_to_the_plugins_own_launcher(project):
    config, said = launcher_of(project, "hydra/launcher=slurm", "hydra.launcher.partition=gpu")
    assert said == ""
    assert config._target_.endswith(".SlurmLauncher")
    asked = (
        config.partition,
        config.timeout_min,
        config.cpus_per_task,
        config.mem_gb,
        config.array_parallelism,
    )
    assert asked == ("gpu", 1440, 4, 8, 16)


LAUNCHERS = [
    pytest.param("cluster", marks=needs_ray),
    # SLURM's own executor needs a cluster; this one takes the same jobs through the same files.
    pytest.param("submitit_local", marks=needs_submitit),
]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_cells_run_as_jobs_of_the_launcher(finished, launcher):
    arguments = (*SMOKE, "train.steps=1", "train.seed=1,2", f"hydra/launcher={launcher}")
    done = finished.python("-m", "stages.sweep", "-m", "hydra.job.name=s", *arguments, check=False)
    assert done.returncode == 0, done.stderr
    told = re.findall(r"^sweep: (\d/2)  train\.seed=([12])  score [+-]\d\.\d{3}", done.stderr, re.MULTILINE)
    assert [count for count, _ in told] == ["1/2", "2/2"]
    assert {seed for _, seed in told} == {"1", "2"}
    assert re.search(r"^rank +seeds", done.stdout, re.MULTILINE)
    assert "sweep: 2 of 2 cells" in done.stderr
    assert finished.git("status", "--porcelain").stdout == ""
    again = finished.python("-m", "stages.sweep", "-m", "hydra.job.name=s", *arguments)
    assert again.stderr.count("(known)") == 2


@pytest.mark.slow
@needs_ray
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 128 + 15)])
def test_a_sweep_on_ray_that_is_stopped_leaves_nothing_running(finished, number, status):
    arguments = (*SMOKE, "train.n_samples=8", "train.steps=600", "train.seed=1,2", "hydra/launcher=cluster")
    process = subprocess.Popen(
        [sys.executable, "-m", "stages.sweep", "-m", "hydra.job.name=s", *arguments],
        cwd=finished.root,
        env=finished.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 900
        while not list((finished.root / ".ninegrid/checkpoints").glob("*/checkpoint.pt")):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(number)
        said = process.communicate(timeout=300)[1]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == status, said
    assert "sweep: stopped; run it again to go on" in said
    assert list((finished.root / ".ninegrid/sweeps/s/running").iterdir()) == []
    assert list((finished.root / ".dvc/tmp/exps/standalone").glob("tmp*")) == []
