"""Measure the untrained model and the trained policy again, asked in other ways.

Run by DVC, or as ``python -m stages.perturb_retest [KEY=VALUE ...]``, for example with
``perturb.names=[letters,plays_o] perturb.boards=64``.  Without a name it writes an empty record.
"""

from __future__ import annotations

from dataclasses import dataclass

from ninegrid.app import stage
from ninegrid.chat.format import ChatSettings
from ninegrid.config import TaskSettings, unbind
from ninegrid.evaluation.settings import EvalSettings
from ninegrid.paths import PathSettings
from ninegrid.perturb.choice import chosen_perturbations
from ninegrid.perturb.outputs import write_nothing
from ninegrid.perturb.settings import PerturbSettings
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
    perturb: PerturbSettings
    paths: PathSettings
    tracking: TrackingSettings


@stage
def main(settings: Settings) -> None:
    """Measure the untrained model and the trained policy again, asked in other ways."""
    task = load_task(settings.task)
    chosen = chosen_perturbations(task, settings.perturb.names)
    folder = settings.paths.folder("perturbed")
    if not chosen:
        write_nothing(folder)
        say("perturb_retest: perturb.names is empty, nothing to measure; all of them: perturb=all")
        return

    from ninegrid.outputs import check_writable
    from ninegrid.perturb.retest import mirror_perturbed, read_inputs, retest_perturbed, say_perturbed

    check_writable(folder)
    paths = settings.paths
    inputs = read_inputs(paths, task)
    tags = {
        **input_hashes(
            {
                "model": paths.folder("model"),
                "policy": paths.folder("policy"),
                "heldout": paths.folder("boards") / "heldout.jsonl",
            }
        ),
        "score_table": dict(task.score),
        "seed": settings.eval.seed,
    }
    with track(
        settings.tracking, "perturb_retest", unbind(settings), tags, state=paths.state_folder()
    ) as run:
        found = retest_perturbed(task, chosen, inputs, settings)
        found.write(folder, settings.decoding.max_new_tokens)
        mirror_perturbed(run, found.record, folder)
    say_perturbed(found.record)


if __name__ == "__main__":
    main()
