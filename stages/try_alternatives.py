"""Measure what could be done instead of training, on the held-out boards and the baseline's draws.

Run by DVC, or as ``python -m stages.try_alternatives [KEY=VALUE ...]``.  The model is the untrained one: with
more worked examples, with the format of the call forced, or both.  Without a name nothing is measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from ninegrid.app import stage
from ninegrid.chat.format import ChatSettings
from ninegrid.config import TaskSettings, unbind
from ninegrid.evaluation.alternative_files import write_nothing
from ninegrid.evaluation.alternative_settings import AlternativeSettings
from ninegrid.evaluation.settings import EvalSettings
from ninegrid.paths import PathSettings
from ninegrid.policy.settings import ModelSettings
from ninegrid.progress import say
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
    alternatives: AlternativeSettings
    paths: PathSettings
    tracking: TrackingSettings


@stage
def main(settings: Settings) -> None:
    """Measure what could be done instead of training: the untrained model, used better."""
    task = load_task(settings.task)
    settings.alternatives.shown(task)
    paths, folder = settings.paths, settings.paths.folder("alternatives")
    if not settings.alternatives.names:
        write_nothing(folder)
        say("try_alternatives: alternatives.names is empty, nothing to measure")
        return

    from ninegrid.evaluation.alternatives import mirror_alternatives, try_alternatives, write_alternatives
    from ninegrid.outputs import check_writable

    check_writable(folder)
    model, boards = paths.folder("model"), paths.folder("boards") / "heldout.jsonl"
    tags = {
        **input_hashes({"model": model, "heldout": boards}),
        "score_table": dict(task.score),
        "seed": settings.eval.seed,
    }
    with track(
        settings.tracking, "try_alternatives", unbind(settings), tags, state=paths.state_folder()
    ) as run:
        attempts = try_alternatives(model, boards, task, settings)
        write_alternatives(folder, attempts)
        mirror_alternatives(run, attempts, folder)


if __name__ == "__main__":
    main()
