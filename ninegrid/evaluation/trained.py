"""What training left beside the policy, and whether a policy is the one that it ended with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ninegrid.errors import DataError
from ninegrid.outputs import read_json
from ninegrid.paths import PathSettings
from ninegrid.policy.agent import Agent
from ninegrid.policy.loading import weights_sha256

TRAINING_KEYS = (
    *("algorithm", "model", "warm_start", "seed"),
    *("steps", "n_boards", "n_samples", "weights_sha256"),
)


def read_training(paths: PathSettings) -> dict[str, Any]:
    """The training's ``metrics.json``.

    Raises:
        DataError: it is missing or damaged.
    """
    return read_json(paths.folder("train") / "metrics.json", "train_gspo", TRAINING_KEYS)


def check_trained(agent: Agent, training: Mapping[str, Any]) -> None:
    """Make sure that the loaded weights are those that the training ended with.

    Raises:
        DataError: they are not.
    """
    actual, expected = weights_sha256(agent.policy.model), training["weights_sha256"]
    if actual != expected:
        raise DataError(
            f"the policy's weights have sha256 {actual[:12]}..., training ended with {expected[:12]}...",
            hint="get the trained policy back with dvc checkout, or train again: dvc repro -f train_gspo",
        )
