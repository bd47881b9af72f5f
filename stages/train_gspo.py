"""Train the model on the training boards with GSPO, from where the warm start left it.

Run by DVC, or as ``python -m stages.train_gspo [KEY=VALUE ...]``.  A run that was killed goes on from its
last checkpoint and ends with the same policy as one that was not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ninegrid.app import stage
from ninegrid.chat.format import ChatSettings
from ninegrid.config import TaskSettings, unbind
from ninegrid.gspo.settings import TrainSettings
from ninegrid.paths import PathSettings
from ninegrid.policy.adapters import AdapterSettings
from ninegrid.policy.needs import check_trainable
from ninegrid.policy.settings import ModelSettings
from ninegrid.reward import RewardTable
from ninegrid.tasks.loading import load_task
from ninegrid.tracking import TrackingSettings, input_hashes, track
from ninegrid.tree.settings import DecodingSettings, EngineSettings
from ninegrid.warm_start.record import starting_model


@dataclass(frozen=True)
class Settings:
    """What this stage reads."""

    model: ModelSettings
    task: TaskSettings
    reward: RewardTable
    chat: ChatSettings
    decoding: DecodingSettings
    engine: EngineSettings
    adapter: AdapterSettings
    train: TrainSettings
    paths: PathSettings
    tracking: TrackingSettings


@stage
def main(settings: Settings) -> None:
    """Train the model on the training boards with GSPO."""
    check_trainable(settings.model, settings.adapter)
    task = load_task(settings.task)
    settings.reward.check(task)

    from ninegrid.gspo.checkpoint import Checkpoints
    from ninegrid.gspo.run import run_digest, train_policy, write_training
    from ninegrid.outputs import check_writable
    from ninegrid.plan.preflight import check_memory
    from ninegrid.tasks.dataset import read_examples

    paths, start = settings.paths, starting_model(settings.paths)
    for name in ("policy", "train"):
        check_writable(paths.folder(name))
    check_memory(settings)
    boards = paths.folder("boards") / "train.jsonl"
    examples = read_examples(task, boards)
    hashes = input_hashes({"model": start.folder, "train": boards})
    checkpoints = Checkpoints(paths.state_folder("checkpoints"), run_digest(_what_counts(settings), hashes))
    tags = {**hashes, "reward_table": unbind(settings.reward), "seed": settings.train.seed}
    with track(
        settings.tracking, "train_gspo", unbind(settings), tags, state=settings.paths.state_folder()
    ) as run:
        trained = train_policy(start, task, examples, settings, checkpoints, run)
        write_training(trained, settings, paths.folder("policy"), paths.folder("train"))
        run.artifact(paths.folder("train"), "train")
    checkpoints.clear()


def _what_counts(settings: Settings) -> dict[str, Any]:
    """The settings that a checkpoint depends on: not where files lie, nor how often they are saved."""
    counts = unbind(settings)
    del counts["paths"], counts["tracking"], counts["train"]["checkpoint_every"]
    return counts


if __name__ == "__main__":
    main()
