"""Weights of few bits: packed by us when a model is loaded (NF4), or by those who published it (FP8, INT4).

Packed weights cannot be trained, only run: what is trained beside them is
`ninegrid.policy.adapters`.  Published FP8 and INT4 files are unpacked when they are loaded, into the number
format of ``model.dtype``: they are smaller to fetch and to keep, not to train.  bitsandbytes' NF4 layers
stay packed while they are trained beside.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, Literal

from ninegrid.errors import DataError

Quantization = Literal["none", "nf4"]


def still_advice() -> None:
    """Keep bitsandbytes, whoever imports it, from advising kernels that come out of a hub."""
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)


still_advice()

UNPACKED = {"fp8": "FineGrainedFP8Config", "compressed-tensors": "CompressedTensorsConfig"}
"""``quant_method`` of published weights that are unpacked when loaded -> transformers' class for it."""


def loading_config(quantization: Quantization, dtype: Any) -> Any:
    """What makes transformers pack the weights of linear layers as it loads them; None for ``none``.

    NF4 with blocks of 64 weights that share a scale (QLoRA, Dettmers et al., arXiv 2305.14314, section 3);
    the scales stay float32.  Matrix products run in ``dtype``.
    """
    if quantization == "none":
        return None
    from transformers import BitsAndBytesConfig

    make: Any = BitsAndBytesConfig  # not annotated there
    return make(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)


def unpacking_config(folder: Path) -> Any:
    """What makes transformers unpack the published weights in ``folder``; None if they are not packed.

    Raises:
        DataError: they are packed in another way.
    """
    method, fields = _published(folder)
    if method is None:
        return None
    if method not in UNPACKED:
        raise DataError(
            f"{folder / 'config.json'}: quantization_config.quant_method = {method!r}, "
            f"expected one of {', '.join(UNPACKED)}",
            hint="choose a model with plain weights; model.quantization=nf4 packs them here",
        )
    import transformers

    return getattr(transformers, UNPACKED[method])(**{**fields, "dequantize": True})


def run_unpacked(model: Any) -> None:
    """Let packed layers unpack their weights for each product, whether or not it is to have a gradient.

    bitsandbytes' own layers take another kernel where nothing is to have a gradient, and on some CPUs turn
    the weights for good into a form that rounds its scales and hands no gradient back: what was sampled
    would not be what is scored.
    """
    from ninegrid.policy.packed_layer import PackedLinear

    for _, layer in _packed_layers(model):
        layer.__class__ = PackedLinear


def is_packed(model: Any) -> bool:
    """Whether some of the model's weights are packed."""
    return next(_packed_layers(model), None) is not None


def weights_count(model: Any) -> int:
    """Weights of the model, those of packed layers counted as what they stand for."""
    layers = [layer for _, layer in _packed_layers(model)]
    packed = sum(layer.weight.numel() for layer in layers)
    stand_for = sum(layer.in_features * layer.out_features for layer in layers)
    return sum(p.numel() for p in model.parameters()) - packed + stand_for


def unpack(model: Any) -> None:
    """Replace packed layers by plain ones that compute the same, in the model's number format."""
    import torch

    from ninegrid.policy.packed_layer import unpacked

    for name, packed in list(_packed_layers(model)):
        weight = unpacked(packed, model.dtype)
        plain = torch.nn.Linear(
            weight.shape[1], weight.shape[0], packed.bias is not None, device="meta", dtype=model.dtype
        )
        plain.weight = torch.nn.Parameter(weight)
        plain.bias = packed.bias
        model.set_submodule(name, plain)
    forget_packing(model)


def forget_packing(model: Any) -> None:
    """Drop what transformers remembers of how the weights were packed, and refuses to save them for."""
    for name in ("quantization_config", "_pre_quantization_dtype"):
        vars(model.config).pop(name, None)
    for name in ("hf_quantizer", "quantization_method", "is_loaded_in_4bit", "is_quantized"):
        vars(model).pop(name, None)


def _published(folder: Path) -> tuple[str | None, dict[str, Any]]:
    """``quant_method`` and the other fields of the configuration in ``folder``."""
    path = folder / "config.json"
    if not path.exists():
        return None, {}
    fields = json.loads(path.read_text(encoding="utf-8")).get("quantization_config") or {}
    return fields.get("quant_method"), {k: v for k, v in fields.items() if k != "quant_method"}


def _packed_layers(model: Any) -> Any:
    """Name and layer of everything packed by bitsandbytes."""
    import sys

    bitsandbytes = sys.modules.get("bitsandbytes")
    if bitsandbytes is None:  # nothing can have been packed by it
        return iter(())
    layer = bitsandbytes.nn.Linear4bit
    return ((name, module) for name, module in model.named_modules() if isinstance(module, layer))
