"""Measure the trained policy exactly like the baseline, and say what changed.

Run by DVC, or as ``python -m stages.retest [KEY=VALUE ...]``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
    reward: RewardTable
    chat: ChatSettings
    decoding: DecodingSettings
    engine: EngineSettings
    eval: EvalSettings
    paths: PathSettings
    tracking: TrackingSettings


@stage
def main(settings: Settings) -> None:
    """Measure the trained policy exactly like the baseline, and say what changed."""
    task = load_task(settings.task)
    settings.reward.check(task)

    from ninegrid.evaluation import alternatives
    from ninegrid.evaluation.conditions import check_conditions
    from ninegrid.evaluation.measure import measure
    from ninegrid.evaluation.retest import (
        compare_with_baseline,
        mirror_retest,
        read_inputs,
        say_change,
        write_retest,
    )
    from ninegrid.evaluation.trained import check_trained
    from ninegrid.outputs import check_writable
    from ninegrid.policy.agent import Agent

    paths, folder = settings.paths, settings.paths.folder("retest")
    baseline, policy = paths.folder("baseline"), paths.folder("policy")
    boards = paths.folder("boards") / "heldout.jsonl"
    check_writable(folder)
    inputs = read_inputs(paths, task, settings.reward)

    def check(agent: Agent, conditions: dict[str, Any]) -> None:
        check_conditions(baseline, conditions)
        alternatives.check_conditions(inputs.alternatives, conditions)
        check_trained(agent, inputs.training)

    tags = {
        **input_hashes({"policy": policy, "heldout": boards, "baseline": baseline / "episodes.jsonl"}),
        "reward_table": unbind(settings.reward),
        "score_table": dict(task.score),
        "seed": settings.eval.seed,
    }
    with track(
        settings.tracking, "retest", unbind(settings), tags, state=settings.paths.state_folder()
    ) as run:
        measurement = measure(
            policy,
            boards,
            task,
            settings.reward,
            settings,
            label="retest",
            before=check,
        )
        result = compare_with_baseline(inputs, measurement, task, settings.reward, settings.eval)
        write_retest(folder, result)
        mirror_retest(run, result, folder)
    say_change(result)


if __name__ == "__main__":
    main()
