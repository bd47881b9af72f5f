"""What the play page reads of ``params.yaml``, and the task that it can play."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from omegaconf import OmegaConf

from ninegrid.app import read_sections
from ninegrid.chat.format import ChatSettings
from ninegrid.config import TaskSettings
from ninegrid.errors import SettingsError
from ninegrid.params import check_overrides, plain, read_params
from ninegrid.paths import PathSettings
from ninegrid.policy.settings import ModelSettings
from ninegrid.reward import RewardTable
from ninegrid.tasks.loading import load_task
from ninegrid.tasks.tictactoe import TicTacToe
from ninegrid.tree.settings import DecodingSettings, EngineSettings


@dataclass(frozen=True)
class PlaySettings:
    """The sections that the page reads: those of the retest, so that policies are asked in the same way."""

    model: ModelSettings
    task: TaskSettings
    reward: RewardTable
    chat: ChatSettings
    decoding: DecodingSettings
    engine: EngineSettings
    paths: PathSettings


def read_settings(overrides: Sequence[str]) -> PlaySettings:
    """The settings of ``params.yaml`` with ``KEY=VALUE`` overrides.

    Raises:
        SettingsError: an override is no setting that the page reads, or a value is wrong.
    """
    for override in overrides:
        if "=" not in override:
            raise SettingsError(
                f"{override!r} is no KEY=VALUE", hint="python -m ninegrid.play decoding.temperature=0.5"
            )
    params = read_params()
    check_overrides(overrides, params, [field.name for field in fields(PlaySettings)])
    merged = OmegaConf.merge(OmegaConf.create(params), OmegaConf.from_dotlist(list(overrides)))
    settings: PlaySettings = read_sections(PlaySettings, plain(merged))
    return settings


def play_task(settings: PlaySettings) -> TicTacToe:
    """The task of the settings, if it is one that can be played here.

    Raises:
        SettingsError: it is not tic-tac-toe, or the reward table does not fit it.
    """
    task = load_task(settings.task)
    if not isinstance(task, TicTacToe):
        raise SettingsError(
            f"task._target_ = {settings.task.target!r}: the play page plays tic-tac-toe",
            hint="python -m ninegrid.params task=tictactoe",
        )
    settings.reward.check(task)
    return task
