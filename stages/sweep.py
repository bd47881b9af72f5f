"""Train and retest every combination of settings, and rank them.

Not a stage of the pipeline but a command over it:
``python -m stages.sweep -m reward.win=1,2 reward.optimal=0.4,0.8 train.seed=1,2``.  Each cell is a DVC
experiment in a copy of the project, so that the workspace stays as it is; whatever the cells have in common
comes from the shared cache.  Settings are composed from conf/ with the overrides, not taken from params.yaml.
Cells that differ in train.seed alone are one setting.  Run again, it does what is missing: cells that failed,
or whose settings or code have changed.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ninegrid.errors import NinegridError, SettingsError
from ninegrid.progress import say
from ninegrid.tracking.signals import Terminated

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from ninegrid.settings import Settings

HELP = """{about}
Hydra's launchers and sweepers apply (pip install -e '.[sweep]'; of Ray and SLURM: '.[ray]', '.[slurm]'):
  hydra/launcher=box hydra.launcher.n_jobs=2   cells side by side on this machine
  hydra/launcher=cluster hydra.launcher.ray.remote.num_cpus=2   on Ray: here, or the cluster at RAY_ADDRESS
  hydra/launcher=slurm hydra.launcher.partition=NAME   as jobs of SLURM
  hydra/sweeper=search hydra.sweeper.n_trials=20 'reward.win=interval(0.5,2)'   a search by Optuna
  hydra.job.name=NAME   name of the sweep; follows from the overrides if left out

== Settings ==
$CONFIG
"""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_RAY = {
    "RAY_worker_niceness": "0",
    "RAY_DISABLE_FAILURE_SIGNAL_HANDLER": "1",
    "RAY_DEDUP_LOGS": "0",
    "RAY_COLOR_PREFIX": "0",
}
"""What Ray is told when a sweep starts it, unless the user has said otherwise: cells run at the priority of
the sweep (by default Ray gives way to everything else), SIGTERM leaves more than 3 s to put things in order,
and no line is left out for being like another."""


@dataclass(frozen=True)
class Sweep:
    """What every job of a sweep must know.

    Attributes:
        folder: of its records, logs and results.
        swept: settings that are given more than one value, or a range of values.
        cells: how many there are; None if a sweeper decides.
        mark: of this execution.
        tracking: the user's $MLFLOW_TRACKING_URI, which other machines do not know.
    """

    name: str
    folder: Path
    swept: tuple[str, ...]
    cells: int | None
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    tracking: str | None = field(default_factory=lambda: os.environ.get("MLFLOW_TRACKING_URI"))


def main() -> int:
    """Returns the exit status: 0, 1 if a cell failed, 2 for wrong settings, 130 after Ctrl-C."""
    arguments = sys.argv[1:]
    asks = [a for a in arguments if a.startswith("-") and a not in ("-m", "--multirun")]
    try:
        if asks:
            return _hydra(Sweep("sweep", Path(), (), None))
        return _sweep(arguments)
    except NinegridError as error:
        say(f"sweep: {error}")
        return 2
    except (KeyboardInterrupt, Terminated) as stop:
        say("sweep: stopped; run it again to go on")
        return int(stop.code or 1) if isinstance(stop, Terminated) else 130


def _sweep(arguments: Sequence[str]) -> int:
    from ninegrid.experiments.digest import tell_what_is_not_seen
    from ninegrid.project import store_root
    from ninegrid.sweep.meeting import begin, end, read_notes
    from ninegrid.sweep.outcome import finished, write_outcome
    from ninegrid.sweep.rank import to_compare
    from ninegrid.sweep.telling import telling
    from ninegrid.tracking import close_dead_runs
    from ninegrid.tracking.signals import unwinding

    sweep, settings = plan(arguments)
    folder = sweep.folder
    with _alone(sweep):
        begin(folder, sweep.mark)
        tell_what_is_not_seen(store_root(), "sweep")
        with unwinding():
            try:
                with telling(folder):
                    status = _hydra(sweep)
            finally:
                end(folder)
        notes = read_notes(folder)
        results, failed = finished(folder, notes), [note for note in notes if note.failure is not None]
        if results:
            print(write_outcome(sweep.name, folder, results))
            of = f"{len(notes) - len(failed)} of {sweep.cells or len(notes)}"
            say(f"sweep: {of} cells; table and picture are in {folder}")
            best = to_compare(results)
            if len(best) > 1:
                say(f"sweep: the best of them reply by reply: python -m stages.compare {' '.join(best)}")
    for note in failed:
        say(f"sweep: {note.label} {note.failure}")
    if failed:
        close_dead_runs(settings.tracking, settings.paths.state_folder())
        say("sweep: run it again to do what is missing")
        return 1
    return status if notes or not status else 2


@contextmanager
def _alone(sweep: Sweep) -> Iterator[None]:
    """Refuse a sweep that another process runs already: the two would count each other's cells."""
    from filelock import FileLock, Timeout

    sweep.folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(sweep.folder / "lock", timeout=0):
            yield
    except Timeout as error:
        raise SettingsError(
            f"{sweep.name} is being run by another process",
            hint="wait for it, or give this one a name of its own: hydra.job.name=NAME",
        ) from error


def plan(arguments: Sequence[str]) -> tuple[Sweep, Settings]:
    """Check everything that can be checked before anything runs.

    Returns:
        The sweep, and the settings that its cells have in common.

    Raises:
        SettingsError: an override is wrong, or the name is.
    """
    from ninegrid.params import compose
    from ninegrid.settings import validate
    from ninegrid.sweep.cells import check_grid, check_keys, grid, parse, sweep_name, swept_keys
    from ninegrid.sweep.plugins import check_plugins

    check_plugins(arguments)
    overrides = parse(arguments)
    named = [a.partition("=")[2] for a in arguments if a.startswith("hydra.job.name=")]
    name = named[-1] if named else sweep_name(overrides)
    if not _NAME.fullmatch(name):
        raise SettingsError(f"hydra.job.name={name!r}, expected letters, digits, - and _")
    shared = validate(compose([str(o.input_line) for o in overrides if not o.is_sweep_override()]))
    folder = shared.paths.state_folder("sweeps") / name
    swept = swept_keys(overrides)
    if swept and not {"-m", "--multirun"} & set(arguments):
        raise SettingsError(f"{swept[0]} has several values", hint="a sweep is asked for with -m")
    if any(argument.startswith("hydra/sweeper=") for argument in arguments):
        check_keys(swept, shared)
        return Sweep(name, folder, tuple(swept), None), shared
    cells = grid(overrides)
    check_grid(cells)
    return Sweep(name, folder, tuple(swept), len(cells)), shared


def _hydra(sweep: Sweep) -> int:
    """Let Hydra choose the cells and start the jobs; returns its exit status."""
    import hydra

    from ninegrid.app import quiet_hydra
    from ninegrid.project import project_root

    def job(config: DictConfig) -> float:
        return run_job(sweep, config)

    for variable, value in _RAY.items():
        os.environ.setdefault(variable, value)
    quiet_hydra("sweep", HELP.format(about=(__doc__ or "").strip()))
    conf = str(project_root() / "conf")
    try:
        hydra.main(version_base="1.3", config_path=conf, config_name="config")(job)()
    except Terminated:
        raise
    except SystemExit as end:
        # Ray puts its own handler in the place of ours, and then another exception in that of its handler's.
        if end.code == signal.SIGTERM or hasattr(end, "ray_terminate_msg"):
            raise Terminated(signal.SIGTERM) from end
        return end.code if isinstance(end.code, int) else 1
    return 0


def run_job(sweep: Sweep, config: DictConfig) -> float:
    """One cell, in whatever process it was started; returns its score, NaN if it failed.

    Raises:
        CellError: the cell failed and a searching sweeper is to learn of it.
    """
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    from ninegrid.experiments.execute import CellError
    from ninegrid.params import plain
    from ninegrid.project import store_root
    from ninegrid.settings import validate
    from ninegrid.sweep.cells import make_cell
    from ninegrid.sweep.run import run_cell

    around: Any = HydraConfig.get()
    settings, root = validate(plain(config)), store_root()
    overrides = [str(override) for override in around.overrides.task]
    cell = make_cell(root, sweep.name, overrides, sweep.swept, settings)
    total = sweep.cells or OmegaConf.select(around, "sweeper.n_trials")
    number = OmegaConf.select(around, "job.num", throw_on_missing=False) or 0
    retest = settings.paths.retest
    told = _environment(sweep, around)
    result = run_cell(root, cell, sweep.folder, retest, number, total, sweep.mark, told)
    if result is not None:
        return result.figures["sampled"].score
    if sweep.cells is None:
        raise CellError(cell.label)
    return float("nan")


def _environment(sweep: Sweep, around: Any) -> dict[str, str]:
    """What the cell's processes are told: the sweep they belong to, the store, their share of the cores."""
    from omegaconf import OmegaConf

    from ninegrid.tracking.provenance import SWEEP_VARIABLE

    told = {SWEEP_VARIABLE: sweep.name}
    if sweep.tracking is not None:
        told["MLFLOW_TRACKING_URI"] = sweep.tracking
    cores = _cores(OmegaConf.select(around, "launcher"))
    if cores is not None and "OMP_NUM_THREADS" not in os.environ:
        told["OMP_NUM_THREADS"] = str(cores)
    return told


def _cores(launcher: Any) -> int | None:
    """A cell's share of its machine, where the launcher's settings tell it; Ray sees to that by itself."""
    if isinstance(launcher.get("cpus_per_task"), int):
        return int(launcher.cpus_per_task)
    if not isinstance(launcher.get("n_jobs"), int):
        return None
    cores, n_jobs = os.cpu_count() or 1, launcher.n_jobs
    return max(1, cores // (n_jobs if n_jobs > 0 else max(1, cores + 1 + n_jobs)))


if __name__ == "__main__":
    sys.exit(main())
