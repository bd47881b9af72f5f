"""What the machinery around the work costs: DVC, the command line, start-up, and a cell of a sweep.

Measured in a throw-away copy of the project under the smoke preset (a tiny random model), whole commands from
start to end.  Not measured: the hashing of large data, which DVC does once for every new file.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.project_copy import Ended, ProjectCopy, copy_project
from benchmarks.stats import Spread
from benchmarks.subject import Subject
from benchmarks.tables import Report, Table
from ninegrid.progress import Progress

MINUTES = 9
HEAVY = ("torch", "transformers", "mlflow")
ABOUT = """
Whole commands in a throw-away copy of the project under the smoke preset (a tiny random model), so that
what is left is the machinery. Start-up is the time from the start of a stage's process to its first line of
progress: the model is loaded then, and for the two evaluations one batch of boards is answered. *Imports*
says which of {heavy} the command loaded. A cell of a sweep is `{cell}`; its overhead is its time less that
of its stages as plain commands, run right after it.
"""


@dataclass(frozen=True)
class StageCase:
    """A stage as a command: its outputs' settings, a setting it refuses, and whether it loads a model."""

    name: str
    outputs: tuple[str, ...]
    refused: str
    model: bool = True


FETCH = StageCase("fetch_model", ("model",), "model.dtype=float33", model=False)
GENERATE = StageCase("generate_boards", ("boards",), "boards.count=1", model=False)
BASELINE = StageCase("baseline_eval", ("baseline",), "eval.n_samples=0")
TRAIN = StageCase("train_gspo", ("policy", "train"), "train.n_samples=1")
RETEST = StageCase("retest", ("policy", "train", "retest"), "eval.n_samples=0")


@dataclass(frozen=True)
class Plan:
    """What is run how often.

    Attributes:
        targets: of DVC, none for the whole pipeline.
        cell: the setting that a cell of the sweep changes, with room for a number.
        cell_stages: those that it runs anew.
    """

    stages: tuple[StageCase, ...]
    targets: tuple[str, ...]
    tracking: str
    cell: str
    cell_stages: tuple[StageCase, ...]
    repetitions: int
    no_ops: int


FULL = Plan(
    stages=(FETCH, GENERATE, BASELINE, TRAIN, RETEST),
    targets=(),
    tracking="mlflow",
    cell="reward.win={}",
    cell_stages=(TRAIN, RETEST),
    repetitions=3,
    no_ops=5,
)
QUICK = Plan(
    stages=(GENERATE,),
    targets=("generate_boards",),
    tracking="disabled",
    cell="boards.seed={}",
    cell_stages=(GENERATE,),
    repetitions=1,
    no_ops=1,
)


def measure(subject: Subject) -> Report:
    """Run all commands, one after the other."""
    plan = QUICK if subject.quick else FULL
    with tempfile.TemporaryDirectory() as folder:
        aside = Path(folder, "aside")
        aside.mkdir()
        copy = copy_project(Path(folder))
        progress = Progress("overhead: command", 4 + 3 * len(plan.stages) + plan.repetitions)
        _prepare(copy, plan, progress)
        tables = [
            _commands(copy, plan, progress),
            _stages(copy, plan, aside, progress),
            _cells(copy, plan, aside, progress),
        ]
    cell = " ".join(["dvc exp run --temp -S", plan.cell.format("N"), *plan.targets])
    return Report("DVC, command line, start-up", ABOUT.format(heavy=", ".join(HEAVY), cell=cell), tables)


def _prepare(copy: ProjectCopy, plan: Plan, progress: Progress) -> None:
    """Make the smoke preset the copy's default, run the pipeline once, commit."""
    copy.edit("conf/config.yaml", "experiment: default", "experiment: smoke")
    copy.edit("conf/config.yaml", "tracking: mlflow", f"tracking: {plan.tracking}")
    copy.python("-m", "ninegrid.params")
    progress.advance("the copy's settings")
    copy.commit("the copy")
    copy.dvc("repro", *plan.targets)
    copy.commit("after the first run")
    progress.advance("the copy's first dvc repro")


def _commands(copy: ProjectCopy, plan: Plan, progress: Progress) -> Table:
    commands = {
        "`dvc repro`, nothing to do": ("-m", "dvc", "repro", *plan.targets),
        "`python -m ninegrid.params --check`": ("-m", "ninegrid.params", "--check"),
    }
    rows = []
    for name, arguments in commands.items():
        spread = _repeat(copy, plan.no_ops, arguments)
        imported = _imports(copy, arguments)
        rows.append([name, str(plan.no_ops), spread.text(), imported])
        progress.advance(name)
    return Table(["command", "runs", "s", "imports"], rows)


def _stages(copy: ProjectCopy, plan: Plan, aside: Path, progress: Progress) -> Table:
    rows = []
    for case in plan.stages:
        module = ("-m", f"stages.{case.name}")
        shown = _repeat(copy, plan.repetitions, (*module, "--help"))
        progress.advance(f"{case.name} --help")
        refused = (*module, case.refused)
        said_no = _repeat(copy, plan.repetitions, refused, status=2)
        progress.advance(f"{case.name} {case.refused}")
        runs = [_alone(copy, case, aside) for _ in range(plan.repetitions)]
        progress.advance(case.name)
        started = Spread.of(_first_line(run, case) for run in runs).text() if case.model else "–"
        whole = Spread.of(run.seconds for run in runs).text()
        imports = [
            _imports(copy, (*module, "--help")),
            _imports(copy, refused, status=2),
            _imports(copy, (*module, *_outputs(case, aside))),
        ]
        rows.append([case.name, shown.text(), said_no.text(), started, whole, *imports])
    head = ["stage", "`--help` s", "bad setting refused s", "start-up s", "whole stage s"]
    return Table([*head, "imports: `--help`", "refusal", "run"], rows)


def _cells(copy: ProjectCopy, plan: Plan, aside: Path, progress: Progress) -> Table:
    cells, stages = [], []
    for index in range(plan.repetitions):
        setting = plan.cell.format(index + 2)
        cells.append(copy.dvc("exp", "run", "--temp", "-S", setting, *plan.targets).seconds)
        stages.append(sum(_alone(copy, case, aside, setting).seconds for case in plan.cell_stages))
        progress.advance(f"a cell of a sweep, {setting}")
    return cell_table(cells, stages)


def cell_table(cells: Sequence[float], stages: Sequence[float]) -> Table:
    """A cell's time, that of its stages by themselves, and the difference of each pair."""
    over = [cell - alone for cell, alone in zip(cells, stages, strict=True)]
    rows = [[str(len(cells)), *(Spread.of(values).text() for values in (cells, stages, over))]]
    return Table(["cells", "cell of a sweep s", "its stages by themselves s", "overhead s"], rows)


def _repeat(copy: ProjectCopy, times: int, arguments: Sequence[str], status: int = 0) -> Spread:
    return Spread.of(copy.python(*arguments, status=status).seconds for _ in range(times))


def _alone(copy: ProjectCopy, case: StageCase, aside: Path, *settings: str) -> Ended:
    """Run the stage as a plain command; what it writes is kept from the copy's own outputs."""
    return copy.python("-m", f"stages.{case.name}", *_outputs(case, aside), *settings)


def _outputs(case: StageCase, aside: Path) -> list[str]:
    return [f"paths.{name}={aside / name}" for name in case.outputs]


def _first_line(run: Ended, case: StageCase) -> float:
    """Seconds until the stage said something of its own."""
    return next(seconds for seconds, line in run.lines if line.startswith(f"{case.name}: "))


def _imports(copy: ProjectCopy, arguments: Sequence[str], status: int = 0) -> str:
    """Which heavy packages a command imported, from Python's own record of imports."""
    record = copy.python("-X", "importtime", *arguments, status=status).stderr
    return imported(record) or "none"


def imported(record: str) -> str:
    """The heavy packages in what ``python -X importtime`` wrote."""
    names = set(re.findall(r"^import time:.*\| +([\w.]+)$", record, re.MULTILINE))
    return ", ".join(package for package in HEAVY if package in names)
