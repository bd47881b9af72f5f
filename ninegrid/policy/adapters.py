"""Section ``adapter``: training few weights beside frozen ones (LoRA), and the folders that hold them.

The layers are peft's; where they go, what is saved and how they are merged is decided here.  Whether the
frozen weights are packed into few bits is `ninegrid.policy.quantization`'s to say.  Imports torch and peft
only when a model is at hand.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ninegrid.config import bind_recipe, require, unbind
from ninegrid.errors import DataError, SettingsError

if TYPE_CHECKING:
    from torch.nn import Parameter

WEIGHTS_FILE, CONFIG_FILE = "adapter_model.safetensors", "adapter_config.json"
"""Names by which peft and model servers know an adapter's files."""

NAME = "default"
"""peft's name for the one adapter of a model."""

PREFIX = "base_model.model."
"""What peft puts before the names of saved tensors."""


@dataclass(frozen=True)
class NoAdapter:
    """The model's own weights are trained."""

    method: Literal["none"]


@dataclass(frozen=True, kw_only=True)
class Lora:
    """The model's weights are frozen, and two thin matrices beside each chosen layer are trained.

    y = W x + alpha / rank * B A x (LoRA, Hu et al., arXiv 2106.09685, equation 3).

    Attributes:
        rank: columns of B and rows of A.
        alpha: scales what the adapter adds.
        targets: names of the linear layers that get one, such as q_proj; empty for all but the output head.
        merge: save the policy as a plain model with B A added to W.  Else the adapter alone is saved, which
            needs the model that it was trained on.
    """

    method: Literal["lora"]
    rank: int
    alpha: float
    targets: tuple[str, ...]
    merge: bool

    def __post_init__(self) -> None:
        require(self.rank >= 1, "rank", self.rank, ">= 1")
        require(self.alpha > 0, "alpha", self.alpha, "> 0")
        named = all(re.fullmatch(r"\w+(\.\w+)*", target) for target in self.targets)
        require(named, "targets", list(self.targets), "names of layers, such as [q_proj, v_proj]")


_RECIPES: Mapping[str, type] = {"none": NoAdapter, "lora": Lora}


@dataclass(frozen=True)
class AdapterSettings:
    """Section ``adapter``: one recipe, whose keys are those that its method reads."""

    recipe: NoAdapter | Lora = NoAdapter("none")

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> AdapterSettings:
        """Bind the recipe that ``raw["method"]`` names; see `ninegrid.config.bind_recipe`."""
        return cls(bind_recipe(_RECIPES, raw, "adapter"))

    def to_mapping(self) -> dict[str, Any]:
        return dict(unbind(self.recipe))

    @property
    def lora(self) -> Lora | None:
        """The adapter that is trained, if one is."""
        return self.recipe if isinstance(self.recipe, Lora) else None


def attach(model: Any, settings: Lora, seed: int) -> None:
    """Freeze the model's weights and put an adapter beside linear layers; it adds nothing as yet (B = 0).

    The adapter is float32 whatever the model is, and drops nothing out: what is sampled is what is scored.

    Args:
        model: changed in place.
        settings: which layers, and how thin.
        seed: of the first values of A.

    Raises:
        SettingsError: the model has no layer of such a name, or it is none that can have an adapter.
    """
    import torch
    from peft import LoraConfig, inject_adapter_in_model

    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,  # type: ignore[arg-type]  # declared whole, used as a number
        target_modules=list(settings.targets) or "all-linear",
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            inject_adapter_in_model(config, model, NAME)
        except ValueError as error:
            raise SettingsError(
                f"adapter.targets = {list(settings.targets)}: {error}",
                hint="name linear layers of the model, or leave adapter.targets empty for all of them",
            ) from error
    _refuse_embeddings(model, settings)
    _add_at_once(model)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    model.eval()


def is_adapted(model: Any) -> bool:
    """Whether the model has an adapter."""
    return next(_adapted_layers(model), None) is not None


def merge(model: Any) -> None:
    """Add the adapter to the weights beside it, and take it out.  The sum is rounded to the weights' format.

    Packed weights must have been unpacked: see `ninegrid.policy.quantization.unpack`.
    """
    import torch

    with torch.no_grad():
        for name, layer in list(_adapted_layers(model)):
            plain = layer.get_base_layer()
            total = plain.weight.float() + layer.get_delta_weight(NAME).float()
            plain.weight.copy_(total.to(plain.weight.dtype))
            model.set_submodule(name, plain)
    vars(model).pop("peft_config", None)
    model.requires_grad_(True)


def write_adapter(model: Any, folder: Path) -> None:
    """Write the model's adapter into an existing folder, as peft reads it.

    Raises:
        OSError: the folder cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        saved = {name: parameter.detach().cpu().contiguous() for name, parameter in _own(model).items()}
        save_file(saved, folder / WEIGHTS_FILE, metadata={"format": "pt"})
        config = model.peft_config[NAME]
        config.inference_mode = True
        # A set is written in another order each time.
        config.target_modules = sorted(config.target_modules)
        config.save_pretrained(folder)
    except SafetensorError as error:  # how its writer reports, for one, a full disk
        raise OSError(errno.EIO, str(error), str(folder)) from error


def read_adapter(model: Any, folder: Path) -> None:
    """Put the adapter in ``folder`` on the model that it was trained on.

    Raises:
        DataError: the adapter is not one of this model.
    """
    from peft import LoraConfig, inject_adapter_in_model
    from safetensors.torch import load_file

    config = LoraConfig.from_pretrained(str(folder))
    inject_adapter_in_model(config, model, NAME)
    kept = load_file(folder / WEIGHTS_FILE)
    mine = _own(model)
    wrong = sorted(
        name
        for name in mine.keys() | kept.keys()
        if name not in mine or name not in kept or kept[name].shape != mine[name].shape
    )
    if wrong:
        raise DataError(
            f"{folder / WEIGHTS_FILE} is no adapter of this model: {len(wrong)} tensors are missing or of "
            f"another shape, first {wrong[0]}",
            hint="train it again: dvc repro train_gspo",
        )
    for name, tensor in kept.items():
        mine[name].data = tensor.float().to(mine[name].device)
    _add_at_once(model)
    model.eval()


def _refuse_embeddings(model: Any, settings: Lora) -> None:
    """Both ends of a model may be one matrix, to which nothing could be merged at one end alone."""
    from peft.tuners.lora import LoraLayer

    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    if any(isinstance(end, LoraLayer) for end in ends):
        raise SettingsError(
            f"adapter.targets = {list(settings.targets)} names the embedding or the output head",
            hint="name linear layers of the decoder, or leave adapter.targets empty for all of them",
        )


def _add_at_once(model: Any) -> None:
    from ninegrid.policy.adapted_layer import add_at_once

    for _, layer in _adapted_layers(model):
        add_at_once(layer)


def _own(model: Any) -> dict[str, Parameter]:
    """The adapter's weights, by the names under which they are saved."""
    return {
        PREFIX + name.replace(f".{NAME}.", "."): parameter
        for name, parameter in model.named_parameters()
        if "lora_" in name
    }


def _adapted_layers(model: Any) -> Any:
    """Name and layer of everything that carries an adapter."""
    from peft.tuners.lora import LoraLayer

    return ((name, module) for name, module in model.named_modules() if isinstance(module, LoraLayer))
