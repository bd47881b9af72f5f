"""Work out what the reward pays to policies that have learned nothing, before anything is trained.

Run by DVC, or as ``python -m stages.audit_reward [KEY=VALUE ...]``.  Its warnings stop nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from ninegrid.app import stage
from ninegrid.config import TaskSettings, unbind
from ninegrid.paths import PathSettings
from ninegrid.progress import say
from ninegrid.reward import RewardTable
from ninegrid.tasks.loading import load_task
from ninegrid.tracking import TrackingSettings, input_hashes, track


@dataclass(frozen=True)
class Settings:
    """What this stage reads."""

    task: TaskSettings
    reward: RewardTable
    paths: PathSettings
    tracking: TrackingSettings


@stage
def main(settings: Settings) -> None:
    """Work out what the reward pays to policies that have learned nothing."""
    task = load_task(settings.task)
    settings.reward.check(task)

    from ninegrid.audit.audit import HELDOUT, TRAIN, audit
    from ninegrid.outputs import output_folder, write_json
    from ninegrid.tasks.dataset import HELDOUT_FILE, TRAIN_FILE, read_examples

    paths, folder = settings.paths, settings.paths.folder("audit")
    boards = {
        TRAIN: paths.folder("boards") / TRAIN_FILE,
        HELDOUT: paths.folder("boards") / HELDOUT_FILE,
    }
    content = audit(task, settings.reward, {side: read_examples(task, boards[side]) for side in boards})
    tags = {**input_hashes(boards), "reward_table": unbind(settings.reward)}
    with track(settings.tracking, "audit_reward", unbind(settings), tags, state=paths.state_folder()) as run:
        with output_folder(folder) as draft:
            write_json(draft / "audit.json", content)
        for side, earned in content["earns"].items():
            run.metrics({f"audit/{side}/{name}": value for name, value in earned.items()})
        run.artifact(folder / "audit.json")
    for finding in content["findings"]:
        mark = "" if finding["level"] == "ok" else "warning: "
        say(f"audit_reward: {mark}{finding['text']}")


if __name__ == "__main__":
    main()
