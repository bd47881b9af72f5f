"""A forward pass without numbers: which bytes it would keep for the backward pass, and what it would cache.

torch's fake tensors have shapes and storages, and follow the same kernels' rules as real ones on the CPU: so
the engine's own code is counted, whatever the architecture.  One layer of each kind is run, and counted as
often as the model has it.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from ninegrid.plan.model_sizes import Architecture, CannotPlanError, measure_model

OUTSIDE = -1
"""Everything that is not a decoder layer: embeddings, positions, the last norm, the choice of logits."""


@dataclass(frozen=True)
class Kept:
    """Bytes that one pass keeps for the backward pass.

    Attributes:
        tokens: that went through the model.
        layers: of all decoder layers.
        widest: of the layer that keeps most.
        inputs: of what goes into each layer: all that is kept of the layers if they are run again.
        rest: outside the layers.
    """

    tokens: int
    layers: int
    widest: int
    inputs: int
    rest: int

    def times(self, larger: int) -> Kept:
        """The same with numbers so many times as large."""
        sizes = (self.layers, self.widest, self.inputs, self.rest)
        return Kept(self.tokens, *(size * larger for size in sizes))


@dataclass(frozen=True)
class Cached:
    """Bytes that sampling keeps of what was run, in all layers.

    Attributes:
        token: for each token of a sequence: keys and values.
        sequence: for each sequence: recurrent states.
    """

    token: int
    sequence: int

    def times(self, larger: int) -> Cached:
        """The same with numbers so many times as large."""
        return Cached(self.token * larger, self.sequence * larger)


@dataclass(frozen=True)
class Sample:
    """A model of one layer of each kind.

    Attributes:
        model: on fake tensors.
        counts: how often the whole model has each of the layers.
        mode: in which it runs.
    """

    model: Any
    counts: tuple[int, ...]
    mode: Any


def sample_layers(architecture: Architecture, dtype: str, prepare: Callable[[Any], None]) -> Sample:
    """Build a model with one layer of each kind, on fake tensors.

    Args:
        prepare: what is done to the loaded model before it is run, such as attaching an adapter.

    Raises:
        CannotPlanError: transformers cannot build it.
    """
    config = copy.deepcopy(architecture.config)
    kinds = _kinds(config)
    chosen = [kinds.index(kind) for kind in dict.fromkeys(kinds)]
    for name in ("layer_types", "mlp_layer_types"):
        if getattr(config, name, None):
            setattr(config, name, [getattr(config, name)[i] for i in chosen])
    config.num_hidden_layers = len(chosen)
    model = measure_model(Architecture(config, architecture.origin), dtype).model
    prepare(model)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        model.to_empty(device="cpu")
    counts = Counter(kinds)
    return Sample(model, tuple(counts[kind] for kind in dict.fromkeys(kinds)), mode)


def count_kept(
    sample: Sample, engine: Any, prompts: Sequence[list[int]], completions: list[list[int]]
) -> Kept:
    """Run one pass of scoring and count what it keeps."""
    layers = list(sample.model.base_model.layers)
    seen: dict[int, Tensor] = {}
    by_layer: Counter[int] = Counter()
    inputs: Counter[int] = Counter()
    tokens = Counter[int]()
    weights = {p.untyped_storage()._cdata for p in (*sample.model.parameters(), *sample.model.buffers())}
    now = [OUTSIDE]

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights and storage._cdata not in seen:
            seen[storage._cdata] = tensor  # held, so that its place is not used again
            by_layer[now[0]] += storage.nbytes()
        return tensor

    def enter(index: int) -> Callable[..., None]:
        def hook(module: Any, args: Any, kwargs: Any) -> None:
            hidden = args[0] if args else kwargs["hidden_states"]
            now[0] = index
            inputs[index] += hidden.numel() * hidden.element_size()
            tokens[index] += hidden.shape[0] * hidden.shape[1]

        return hook

    def leave(*_: Any) -> None:
        now[0] = OUTSIDE

    hooks = [layer.register_forward_pre_hook(enter(i), with_kwargs=True) for i, layer in enumerate(layers)]
    hooks += [layer.register_forward_hook(leave) for layer in layers]
    try:
        with _quietly(), sample.mode, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            engine.logprobs(prompts, completions, 1.0)
    finally:
        for hook in hooks:
            hook.remove()
    times = dict(enumerate(sample.counts))
    return Kept(
        tokens=tokens[0],
        layers=sum(times[i] * by_layer[i] for i in times),
        widest=max(by_layer[i] for i in times),
        inputs=sum(times[i] * inputs[i] for i in times),
        rest=by_layer[OUTSIDE],
    )


def count_cached(sample: Sample) -> Cached:
    """Run a few tokens with a cache and count what it holds."""
    length = 4
    with _quietly(), sample.mode, torch.no_grad():
        ids = torch.zeros(1, length, dtype=torch.long)
        cache: Any = sample.model.base_model(input_ids=ids, use_cache=True).cache
    token = sequence = 0
    for count, layer in zip(sample.counts, cache.layers, strict=True):
        for tensor in _tensors(vars(layer)):
            size = tensor.numel() * tensor.element_size()
            if tensor.dim() == 4 and tensor.shape[2] == length:
                token += count * size // length
            else:
                sequence += count * size
    return Cached(token, sequence)


def _kinds(config: Any) -> list[tuple[Any, ...]]:
    """What tells each layer from others, by the configuration."""
    count = config.num_hidden_layers
    lists = [getattr(config, name, None) or [None] * count for name in ("layer_types", "mlp_layer_types")]
    return list(zip(*(values[:count] for values in lists), strict=True))


def _tensors(value: Any) -> Iterator[Tensor]:
    """All tensors with numbers of a cache layer's attributes."""
    if isinstance(value, Tensor):
        if value.numel() and value.is_floating_point():
            yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


@contextmanager
def _quietly() -> Iterator[None]:
    """Without advice on kernels that a dry run does not need, and torch's own account of a failure."""
    from transformers.utils import logging as transformers_logging

    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity(logging.ERROR)
    torch_log = logging.getLogger("torch._subclasses.fake_tensor")
    torch_level = torch_log.level
    torch_log.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers_logging.set_verbosity(level)
        torch_log.setLevel(torch_level)


__all__ = ["Cached", "CannotPlanError", "Kept", "Sample", "count_cached", "count_kept", "sample_layers"]
