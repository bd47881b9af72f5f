"""How large a model is: counted on torch's meta device, where tensors have shapes and no memory.

Whatever architecture transformers can build is counted exactly; nothing is computed, no weights are read.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from ninegrid.config import unbind
from ninegrid.errors import NinegridError
from ninegrid.plan.known import KNOWN
from ninegrid.policy.files import MANIFEST
from ninegrid.policy.settings import ModelSettings, RandomSource, WheelSource


class CannotPlanError(NinegridError):
    """The model's architecture is not known, so nothing can be predicted."""


@dataclass(frozen=True)
class Architecture:
    """A transformers configuration and where it comes from.

    Attributes:
        fetched: from the files of the model, its tokenizer among them.
    """

    config: Any
    origin: str
    fetched: bool = False


@dataclass(frozen=True)
class ModelSizes:
    """A model without memory.

    Attributes:
        model: on the meta device, in the number format in which it will be loaded.
        architecture: that it was made from.
    """

    model: Any
    architecture: Architecture

    @cached_property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    @cached_property
    def weight_bytes(self) -> int:
        return sum(p.numel() * p.element_size() for p in self.model.parameters())

    @cached_property
    def head(self) -> int:
        """Weights of the output head."""
        return int(self.model.get_output_embeddings().weight.numel())

    @property
    def vocabulary(self) -> int:
        return int(self.model.get_output_embeddings().weight.shape[0])

    def linear_layers(self) -> Iterator[tuple[str, nn.Linear]]:
        """The linear layers that can be packed or adapted: all but the output head."""
        head = self.model.get_output_embeddings()
        for name, module in self.model.named_modules():
            if isinstance(module, nn.Linear) and module is not head:
                yield name, module


def find_architecture(settings: ModelSettings, folder: Path) -> Architecture:
    """The configuration of the model that ``settings`` name: the fetched one, else the one that is known.

    Args:
        folder: of the fetched model; it need not be there, and may hold another one.

    Raises:
        CannotPlanError: it is not fetched, and its shape is not known.
    """
    if _fetched(settings, folder) and (folder / "config.json").exists():
        return Architecture(_built(_read(folder / "config.json")), f"{folder.name}/config.json", fetched=True)
    if isinstance(settings.source, RandomSource):
        return Architecture(_built(_with_vocabulary(settings.source)), "model.source.architecture")
    source = settings.source
    name = source.package if isinstance(source, WheelSource) else getattr(source, "repo", source)
    if not isinstance(name, str) or name not in KNOWN:
        raise CannotPlanError(
            f"the shape of {settings.name} is not known before its files are here",
            hint="fetch it first: python -m stages.fetch_model",
        )
    return Architecture(_built(KNOWN[name].config), KNOWN[name].origin)


def measure_model(architecture: Architecture, dtype: str) -> ModelSizes:
    """Build the model on the meta device.

    Raises:
        CannotPlanError: transformers cannot build it.
    """
    auto: Any = AutoModelForCausalLM
    try:
        with torch.device("meta"):
            # A copy: building notes the number format in the configuration, which says what the files hold.
            model = auto.from_config(copy.deepcopy(architecture.config), dtype=getattr(torch, dtype))
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        AssertionError,
        RuntimeError,
        ImportError,
    ) as error:
        raise CannotPlanError(f"architecture {architecture.config.model_type}: {error}") from error
    return ModelSizes(model.eval(), architecture)


def _fetched(settings: ModelSettings, folder: Path) -> bool:
    """Whether the model in ``folder`` is the one of the settings, by the manifest beside it."""
    manifest = folder / MANIFEST
    if not manifest.exists():
        return False
    said, wanted = _read(manifest).get("source", {}), unbind(settings.source)
    return bool(said) and all(wanted[key] == value for key, value in said.items() if key in wanted)


def _read(path: Path) -> dict[str, Any]:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CannotPlanError(f"{path} cannot be read: {error}") from error
    return raw if isinstance(raw, dict) else {}


def _with_vocabulary(source: RandomSource) -> Mapping[str, Any]:
    """The architecture, with the vocabulary of a known tokenizer, as `fetch` would give it."""
    known = KNOWN.get(getattr(source.tokenizer, "package", ""))
    vocabulary = {} if known is None else {"vocab_size": known.config["vocab_size"]}
    return {**vocabulary, **source.architecture}


def _built(raw: Mapping[str, Any]) -> Any:
    fields = {key: value for key, value in raw.items() if key not in ("quantization_config", "auto_map")}
    try:
        return AutoConfig.for_model(**fields)
    except (ValueError, TypeError, KeyError, StrictDataclassError) as error:
        raise CannotPlanError(f"architecture {raw.get('model_type')!r} cannot be built: {error}") from error
