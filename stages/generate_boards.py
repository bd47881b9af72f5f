"""Draw the boards and split them into training and held-out ones.

Run by DVC, or as ``python -m stages.generate_boards [KEY=VALUE ...]``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ninegrid.app import stage
from ninegrid.config import TaskSettings, unbind
from ninegrid.outputs import output_folder
from ninegrid.paths import PathSettings
from ninegrid.progress import say
from ninegrid.tasks.dataset import BoardSettings, build_dataset, write_dataset
from ninegrid.tasks.loading import load_task
from ninegrid.tracking import TrackingSettings, track


@dataclass(frozen=True)
class Settings:
    """What this stage reads."""

    task: TaskSettings
    boards: BoardSettings
    paths: PathSettings
    tracking: TrackingSettings


@stage
def main(settings: Settings) -> None:
    """Draw the boards and split them into training and held-out ones."""
    task = load_task(settings.task)
    dataset = build_dataset(task, settings.boards)
    folder = settings.paths.folder("boards")
    with track(
        settings.tracking,
        "generate_boards",
        unbind(settings),
        {"seed": settings.boards.seed},
        state=settings.paths.state_folder(),
    ) as run:
        with output_folder(folder) as draft:
            manifest = write_dataset(task, dataset, settings.boards, draft)
        run.metrics({f"boards/{side}": n for side, n in manifest["examples"].items()})
        run.artifact(folder / "manifest.json")
    say(
        f"generate_boards: {len(dataset.train)} training and {len(dataset.heldout)} held-out examples, "
        f"no symmetry class in both"
    )


if __name__ == "__main__":
    main()
