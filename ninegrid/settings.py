"""All settings at once, for checking a whole ``params.yaml`` before anything runs.

Stages read only their own sections; this is what `python -m ninegrid.params` validates with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ninegrid.app import read_sections
from ninegrid.chat.format import ChatSettings
from ninegrid.config import TaskSettings
from ninegrid.evaluation.alternative_settings import AlternativeSettings
from ninegrid.evaluation.settings import EvalSettings
from ninegrid.gspo.settings import TrainSettings
from ninegrid.paths import PathSettings
from ninegrid.perturb.choice import chosen_perturbations
from ninegrid.perturb.settings import PerturbSettings
from ninegrid.policy.adapters import AdapterSettings
from ninegrid.policy.needs import check_trainable
from ninegrid.policy.settings import ModelSettings
from ninegrid.reward import RewardTable
from ninegrid.tasks.dataset import BoardSettings, check_enough
from ninegrid.tasks.loading import load_task
from ninegrid.tracking.settings import TrackingSettings
from ninegrid.tree.settings import DecodingSettings, EngineSettings
from ninegrid.warm_start.settings import WarmStartSettings


@dataclass(frozen=True)
class Settings:
    """Every section of ``params.yaml``."""

    model: ModelSettings
    task: TaskSettings
    reward: RewardTable
    boards: BoardSettings
    chat: ChatSettings
    decoding: DecodingSettings
    engine: EngineSettings
    warm_start: WarmStartSettings
    adapter: AdapterSettings
    train: TrainSettings
    eval: EvalSettings
    perturb: PerturbSettings
    alternatives: AlternativeSettings
    tracking: TrackingSettings
    paths: PathSettings


def validate(params: Mapping[str, Any]) -> Settings:
    """Check every section, and what sections must know of each other.

    Raises:
        SettingsError: for the first thing that is wrong.
    """
    settings: Settings = read_sections(Settings, params)
    check_trainable(settings.model, settings.adapter)
    task = load_task(settings.task)
    settings.reward.check(task)
    check_enough(task, settings.boards)
    chosen_perturbations(task, settings.perturb.names)
    settings.alternatives.shown(task)
    return settings
