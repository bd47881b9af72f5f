"""Gradient checkpointing: decoder layers keep their input alone, and are run again in the backward pass.

One more forward pass through the layers is the price of not holding what they compute.  It acts on scoring
with gradients and on nothing else: a pass that samples fills a cache, which a second run would fill twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from ninegrid.errors import SettingsError


@contextmanager
def recomputed(model: Any, wanted: bool = True) -> Iterator[None]:
    """Within it, forward passes with gradients checkpoint the decoder layers of ``model``.

    Args:
        model: a transformers model; its layers are as before afterwards.
        wanted: False does nothing.

    Raises:
        SettingsError: the model has no layers that can be run again.
    """
    if not (wanted and torch.is_grad_enabled()):
        yield
        return
    layers = _layers(model)
    before = [layer.training for layer in layers]
    # No layer draws random numbers: the model is in evaluation mode.
    run: Any = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
    try:
        for layer in layers:
            # transformers asks the layer for its mode; what is inside it keeps its own, lest dropout starts.
            layer.training = layer.gradient_checkpointing = True
            layer._gradient_checkpointing_func = run
        yield
    finally:
        for layer, mode in zip(layers, before, strict=True):
            layer.training, layer.gradient_checkpointing = mode, False


def _layers(model: Any) -> list[Any]:
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise SettingsError(
            f"train.gradient_checkpointing = True, but {type(model).__name__} has no layers to run again",
            hint="set train.gradient_checkpointing=false",
        )
    return layers
