"""Teach the model by examples before GSPO, or leave it as it is.

Run by DVC, or as ``python -m stages.warm_start [KEY=VALUE ...]``.  With the method ``none``
nothing is loaded, and nothing but a record is written.  train_gspo reads there which weights to begin with.
"""

from __future__ import annotations

from dataclasses import dataclass

from ninegrid.app import stage
from ninegrid.chat.format import ChatSettings
from ninegrid.config import TaskSettings, unbind
from ninegrid.outputs import check_writable, output_folder
from ninegrid.paths import PathSettings
from ninegrid.policy.settings import ModelSettings
from ninegrid.progress import say
from ninegrid.tasks.dataset import read_examples
from ninegrid.tasks.loading import load_task
from ninegrid.tracking import TrackingSettings, input_hashes, track
from ninegrid.tree.settings import EngineSettings
from ninegrid.warm_start.record import write_record
from ninegrid.warm_start.settings import NoWarmStart, Taught, WarmStartSettings


@dataclass(frozen=True)
class Settings:
    """What this stage reads."""

    model: ModelSettings
    task: TaskSettings
    chat: ChatSettings
    engine: EngineSettings
    warm_start: WarmStartSettings
    paths: PathSettings
    tracking: TrackingSettings


@stage
def main(settings: Settings) -> None:
    """Teach the model by examples before GSPO, or leave it as it is."""
    recipe = settings.warm_start.recipe
    if isinstance(recipe, NoWarmStart):
        with output_folder(settings.paths.folder("warm_start")) as draft:
            write_record(draft, recipe.method)
        say("warm_start: none, training begins with the model as it is")
    else:
        _teach(settings, recipe)


def _teach(settings: Settings, recipe: Taught) -> None:
    from ninegrid.warm_start.run import warm_start, write_warm_start

    paths, folder = settings.paths, settings.paths.folder("warm_start")
    check_writable(folder)
    task = load_task(settings.task)
    boards = paths.folder("boards") / "train.jsonl"
    examples = read_examples(task, boards)
    tags = {**input_hashes({"model": paths.folder("model"), "train": boards}), "seed": recipe.seed}
    state = paths.state_folder()
    with track(settings.tracking, "warm_start", unbind(settings), tags, state=state) as run:
        result = warm_start(paths.folder("model"), task, examples, settings, recipe, run)
        write_warm_start(result, folder)
        for name in ("record.json", "steps.csv", "metrics.json", "lessons.jsonl"):
            run.artifact(folder / name)


if __name__ == "__main__":
    main()
