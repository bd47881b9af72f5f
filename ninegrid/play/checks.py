"""Whether a policy is asked here as it was in training and evaluation, byte for byte.

The prompts' makers are compared by hash with what the stages wrote down; nothing is taken on trust.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ninegrid.errors import DataError
from ninegrid.evaluation.conditions import FILE, differences
from ninegrid.outputs import read_json
from ninegrid.paths import PathSettings
from ninegrid.play.settings import PlaySettings
from ninegrid.policy.agent import PROMPT_FILE
from ninegrid.tasks.dataset import read_examples
from ninegrid.tasks.protocol import Example, Task

if TYPE_CHECKING:
    from ninegrid.play.policies import PolicyPlayer

EVALUATIONS = {"baseline": "baseline_eval", "retest": "retest"}
"""Folder among the paths -> the stage that fills it."""

FREE_TO_DIFFER = ("seed", "n_samples", "max_tokens_per_batch", "threads")
"""Conditions of a measurement that do not shape what a policy is asked or how it may reply."""


@dataclass(frozen=True)
class PromptCheck:
    """What was found, in words.

    Attributes:
        same: what is equal to the page's own.
        differs: what is not, with both values.
        missing: what there was nothing to compare with.
        prompts: how many held-out prompts are known to be those of the evaluation.
    """

    same: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    prompts: int = 0

    @property
    def verified(self) -> bool:
        return bool(self.same) and not self.differs


def check_prompts(player: PolicyPlayer, task: Task, settings: PlaySettings) -> PromptCheck:
    """Compare the player's prompts with those of training, baseline and retest."""
    same, differs, missing = [], [], []
    heldout, problem = _examples(task, settings.paths, "heldout")
    missing += problem
    conditions = player.agent.conditions(heldout, settings.engine)
    for name, stage in EVALUATIONS.items():
        try:
            saved = read_json(settings.paths.folder(name) / FILE, stage)
        except DataError as error:
            missing.append(f"{name}: {error.message}")
            continue
        found = _compare(saved, conditions, name, len(heldout))
        differs += found
        same += [] if found else [f"{name}: template, tools, decoding and {len(heldout)} prompts are equal"]
    for text, equal in _training(player, task, settings.paths, missing):
        (same if equal else differs).append(text)
    every = len(heldout) if any("prompts are equal" in line for line in same) else 0
    return PromptCheck(tuple(same), tuple(differs), tuple(missing), every)


def _compare(saved: dict[str, Any], conditions: dict[str, Any], name: str, heldout: int) -> list[str]:
    """What differs from a saved measurement; without held-out boards their prompts are left out."""
    unknown = () if heldout else ("examples", "prompts_sha256")
    return differences(saved, conditions, (name, "this page"), (*FREE_TO_DIFFER, *unknown))


def _training(
    player: PolicyPlayer, task: Task, paths: PathSettings, missing: list[str]
) -> list[tuple[str, bool]]:
    """The prompt that training wrote down, and the weights that it ended with."""
    found = []
    train, problem = _examples(task, paths, "train")
    prompt = paths.folder("train") / PROMPT_FILE
    if train and prompt.exists():
        equal = prompt.read_bytes() == player.agent.chat.render(train[0]).encode()
        text = f"training: {prompt.name} {'is' if equal else 'is not'} this page's, byte for byte"
        found.append((text, equal))
    else:
        missing += problem or [f"training: {prompt} does not exist"]
    if player.name == "trained":
        found += _weights(player, paths.folder("train"), missing)
    return found


def _weights(player: PolicyPlayer, folder: Path, missing: list[str]) -> list[tuple[str, bool]]:
    try:
        ended = read_json(folder / "metrics.json", "train_gspo", ["weights_sha256"])["weights_sha256"]
    except DataError as error:
        missing.append(f"weights: {error.message}")
        return []
    equal = ended == player.weights
    return [(f"weights: {'those' if equal else 'not those'} that training ended with", equal)]


def _examples(task: Task, paths: PathSettings, part: str) -> tuple[Sequence[Example], list[str]]:
    try:
        return read_examples(task, paths.folder("boards") / f"{part}.jsonl"), []
    except DataError as error:
        return [], [f"boards: {error.message}"]
