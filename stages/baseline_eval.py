"""Measure the untrained model on the held-out boards.

Run by DVC, or as ``python -m stages.baseline_eval [KEY=VALUE ...]``.  Its rewards follow the task's
fixed score table: it does not depend on the reward that a policy will be trained with.
"""

from __future__ import annotations

from dataclasses import dataclass

from ninegrid.app import stage
from ninegrid.chat.format import ChatSettings
from ninegrid.config import TaskSettings, unbind
from ninegrid.evaluation.settings import EvalSettings
from ninegrid.paths import PathSettings
from ninegrid.policy.settings import ModelSettings
from ninegrid.reward import RewardTable
from ninegrid.tasks.loading import load_task
from ninegrid.tracking import TrackingSettings, input_hashes, track
from ninegrid.tree.settings import DecodingSettings, EngineSettings


@dataclass(frozen=True)
class Settings:
    """What this stage reads."""

    model: ModelSettings
    task: TaskSettings
    chat: ChatSettings
    decoding: DecodingSettings
    engine: EngineSettings
    eval: EvalSettings
    paths: PathSettings
    tracking: TrackingSettings


@stage
def main(settings: Settings) -> None:
    """Measure the untrained model on the held-out boards."""
    from ninegrid.evaluation.measure import measure, mirror_measurement
    from ninegrid.outputs import check_writable

    paths, folder = settings.paths, settings.paths.folder("baseline")
    check_writable(folder)
    task = load_task(settings.task)
    boards = paths.folder("boards") / "heldout.jsonl"
    tags = {
        **input_hashes({"model": paths.folder("model"), "heldout": boards}),
        "score_table": dict(task.score),
        "seed": settings.eval.seed,
    }
    with track(
        settings.tracking, "baseline_eval", unbind(settings), tags, state=settings.paths.state_folder()
    ) as run:
        measurement = measure(
            paths.folder("model"),
            boards,
            task,
            RewardTable(dict(task.score)),
            settings,
            label="baseline_eval",
        )
        measurement.write(folder)
        mirror_measurement(run, "baseline", measurement, folder)


if __name__ == "__main__":
    main()
