"""What a trained policy needs to be what it was when it was trained: ``needs.json`` in its folder.

A policy saved whole needs nothing but its number format.  One saved as an adapter needs the very model that
it was trained on, packed as it was then.  Imports no torch.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ninegrid.config import bind, unbind
from ninegrid.errors import DataError, SettingsError
from ninegrid.policy.adapters import CONFIG_FILE, WEIGHTS_FILE, AdapterSettings
from ninegrid.policy.files import NEEDS, find_problem, sha256_of
from ninegrid.policy.quantization import Quantization
from ninegrid.policy.settings import ModelSettings

DECODING = "generation_config.json"
"""What a server draws replies by; a trained policy has its own."""


@dataclass(frozen=True)
class Base:
    """The model that an adapter was trained on.

    Attributes:
        folder: where it lies, from the policy's folder.
        files: name -> sha256 of its weights.
    """

    folder: str
    files: dict[str, str]


@dataclass(frozen=True)
class Needs:
    """What loading a trained policy takes.

    Attributes:
        dtype: number format of its weights in training.
        quantization: how the weights are packed when loaded.
        adapter: it is an adapter; else it is whole.
        base: of an adapter.
    """

    dtype: Literal["float32", "bfloat16", "float16"]
    quantization: Quantization = "none"
    adapter: bool = False
    base: Base | None = None

    def base_folder(self, folder: Path) -> Path:
        """The folder whose weights are loaded first: the base's, or the policy's own ``folder``."""
        return folder if self.base is None else Path(os.path.normpath(folder / self.base.folder))


def write_needs(folder: Path, needs: Needs) -> None:
    """Write ``needs.json`` into an existing folder."""
    text = json.dumps(unbind(needs), indent=2, sort_keys=True) + "\n"
    (folder / NEEDS).write_text(text, encoding="utf-8")


def read_needs(folder: Path) -> Needs | None:
    """What the policy in ``folder`` needs; None if nobody wrote that down, as for a model not trained here.

    Raises:
        DataError: the file cannot be read.
    """
    path = folder / NEEDS
    if not path.exists():
        return None
    try:
        return bind(Needs, json.loads(path.read_text(encoding="utf-8")), NEEDS)
    except (ValueError, SettingsError) as error:
        raise DataError(f"{path} is damaged: {error}", hint="train it again: dvc repro train_gspo") from error


def check_trainable(model: ModelSettings, adapter: AdapterSettings) -> None:
    """Refuse to train weights that are packed.

    Raises:
        SettingsError: ``model.quantization`` packs them, and there is no adapter.
    """
    if model.quantization != "none" and adapter.lora is None:
        raise SettingsError(
            f"model.quantization = {model.quantization!r} packs the weights, which cannot be trained then",
            hint="train an adapter beside them: adapter=lora (experiment=qlora sets both)",
        )


def base_of(model: Path, policy: Path) -> Base:
    """The base of a policy that is saved in the folder ``policy``, trained on the one in ``model``."""
    files = {path.name: sha256_of(path) for path in sorted(model.glob("*.safetensors"))}
    return Base(os.path.relpath(model, policy), files)


def find_policy_problem(folder: Path) -> str | None:
    """The first reason why the policy in ``folder`` cannot be loaded, or its base; None if it looks whole."""
    if not (folder / CONFIG_FILE).exists():
        return find_problem(folder)
    for name in (WEIGHTS_FILE, DECODING):
        if not (folder / name).exists():
            return f"{folder / name} is missing"
    needs = read_needs(folder)
    if needs is None or needs.base is None:
        return f"{folder} holds an adapter, and no {NEEDS} that says of which model"
    base = needs.base_folder(folder)
    problem = find_problem(base)
    if problem is not None:
        return f"{folder} is an adapter of the model in {base}: {problem}"
    return _find_other_weights(needs.base, base, folder)


def _find_other_weights(expected: Base, base: Path, folder: Path) -> str | None:
    for name, sha256 in expected.files.items():
        path = base / name
        actual: Any = sha256_of(path) if path.exists() else "missing"
        if actual != sha256:
            return f"{folder} is an adapter of another model: {path} is {actual}, expected sha256 {sha256}"
    return None
