"""Hydra's launchers that start the cells of a sweep in other processes: their configs, and real sweeps."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest
from omegaconf import OmegaConf

from ninegrid.errors import SettingsError
from ninegrid.sweep import plugins
from stages.sweep import plan
from tests.conftest import ROOT, SMOKE
from tests.stopping import stopped_sweep


def needs(package, extra):
    """Skips a test where the package is not installed."""
    missing = not plugins._is_installed(package)
    return pytest.mark.skipif(missing, reason=f"{package} is not installed: pip install -e '.[{extra}]'")


needs_ray = needs("hydra-ray-launcher", "ray")
needs_submitit = needs("hydra-submitit-launcher", "slurm")


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
        f"{choice} needs the package {package}, which is not installed\n  -> pip install -e '.[{extra}]'"
    )


def test_the_commands_help_tells_of_every_launcher_that_has_a_config():
    done = subprocess.run(
        [sys.executable, "-m", "stages.sweep", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for config in (ROOT / "conf/hydra/launcher").glob("*.yaml"):
        assert f"hydra/launcher={config.stem}" in done.stdout


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
    ended, said = stopped_sweep(finished, number, *arguments, send=os.kill)
    assert ended == status, said
    assert "sweep: stopped; run it again to go on" in said
    assert list((finished.root / ".ninegrid/sweeps/s/running").iterdir()) == []
    assert list((finished.root / ".dvc/tmp/exps/standalone").glob("tmp*")) == []
