"""What is measured: the model before and after training, the boards, and the settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ninegrid.config import bind
from ninegrid.errors import DataError, SettingsError
from ninegrid.outputs import read_json
from ninegrid.params import compose, describe_changes, read_params
from ninegrid.paths import PathSettings

UNTRAINED, LEARNED = "untrained", "learned"

OBJECTIVE = "train=gspo"
"""What is timed: one advantage for each reply, which TRL's trainer can do too."""


@dataclass(frozen=True)
class Subject:
    """What every piece is given.

    Attributes:
        starts: folder of the policy from which a measurement starts, by label.
        train, heldout: files of boards.
        overrides: of ``conf/``, for all benchmarks.
        quick: a smoke run with a tiny model and tiny counts.
        gpu: pieces may see a GPU; else they run on the CPU wherever they run.
    """

    starts: Mapping[str, str]
    train: str
    heldout: str
    overrides: tuple[str, ...] = ()
    quick: bool = False
    gpu: bool = False

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Subject:
        return cls(**{**raw, "overrides": tuple(raw["overrides"])})


def describe_starts(starts: Iterable[str], steps: Mapping[str, tuple[int, int]]) -> str:
    """From where training starts, and which of its steps are measured.

    Args:
        steps: warm-up and measured steps of each start.
    """
    words = {
        UNTRAINED: "untrained, the base model, the first {measured} steps",
        LEARNED: "learned, the trained policy, {measured} steps after {warm_up} of warm-up",
    }
    said = []
    for start in starts:
        warm_up, measured = steps[start]
        said.append(words[start].format(warm_up=warm_up, measured=measured))
    return "; ".join(said)


def of_project() -> Subject:
    """The outputs of the project's own loop, under the default settings.

    Raises:
        DataError: an output is missing, or made from another model.
        SettingsError: the loop is set up for another model.
    """
    changes = describe_changes({"model": compose([])["model"]}, {"model": read_params()["model"]})
    if changes:
        raise SettingsError(
            f"the default model is measured, but params.yaml names another: {changes[0]}",
            hint="python -m ninegrid.params && make repro",
        )
    paths = bind(PathSettings, compose([])["paths"], "paths")
    boards = paths.folder("boards")
    subject = Subject(
        starts={UNTRAINED: str(paths.folder("model")), LEARNED: str(paths.folder("policy"))},
        train=str(boards / "train.jsonl"),
        heldout=str(boards / "heldout.jsonl"),
        overrides=(OBJECTIVE,),
    )
    needed = [*(f"{folder}/model.safetensors" for folder in subject.starts.values())]
    for path in (*needed, subject.train, subject.heldout):
        if not Path(path).is_file():
            raise DataError(f"{path} is missing: the loop has not run", hint="make repro")
    trained = read_json(paths.folder("train") / "metrics.json", "train_gspo", ("model",))["model"]
    if trained != compose([])["model"]["name"]:
        raise DataError(
            f"data/policy was trained from {trained}, not from the default model", hint="make repro"
        )
    return subject


def tiny(folder: Path) -> Subject:
    """A subject of ten thousand weights; the piece ``tiny:prepare`` writes it into ``folder``.

    It stands for the learned policy: its replies are of all kinds, so that every board teaches something.
    """
    return Subject(
        starts={LEARNED: str(folder / "model")},
        train=str(folder / "train.jsonl"),
        heldout=str(folder / "heldout.jsonl"),
        overrides=(OBJECTIVE, "model=tiny_random", "chat.worked_examples=1", "decoding.max_new_tokens=4"),
        quick=True,
    )
