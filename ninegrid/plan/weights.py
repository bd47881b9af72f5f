"""What is held however much is computed at once: libraries, weights, gradients, the optimiser's state."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol

from ninegrid.gspo.settings import TrainSettings
from ninegrid.plan.device import Device
from ninegrid.plan.line import Line
from ninegrid.plan.model_sizes import ModelSizes
from ninegrid.policy.adapters import AdapterSettings, Lora
from ninegrid.policy.settings import ModelSettings
from ninegrid.tracking.settings import TrackingSettings

MB = 1_000_000
LIBRARIES = 490 * MB
"""The interpreter with torch, transformers, the tokenizer and this library: what a process holds after
loading, less the weights, measured with torch 2.13 for the CPU."""

MLFLOW = 115 * MB
"""What importing MLflow adds, measured."""

ADAPTERS = 55 * MB
"""What importing peft with bitsandbytes adds, measured."""

STEP_COPIES = 5
"""float32 tensors as large as a weight that a step of bitsandbytes makes beside it on the CPU: 612 MB for
28.3 million weights, less their state, measured.  One block each, too large for what the heap has freed."""

NF4_BYTES = 0.5 + 4 / 64
"""Of a packed weight: 4 bits, and a float32 scale for each 64."""

STATE_BYTES = {"adamw": 8.0, "paged_adamw": 8.0, "adamw_8bit": 2 + 8 / 256, "paged_adamw_8bit": 2 + 8 / 256}
"""Of the optimiser for a weight: two float32 moments, or two bytes and two float32 scales for each 256."""


class WeightSettings(Protocol):
    """The sections that say what is held."""

    @property
    def model(self) -> ModelSettings: ...
    @property
    def adapter(self) -> AdapterSettings: ...
    @property
    def train(self) -> TrainSettings: ...
    @property
    def tracking(self) -> TrackingSettings: ...


@dataclass(frozen=True)
class Weights:
    """What is held however much is computed at once.

    Attributes:
        stored: the model's weights, and an adapter's beside them.
        state: of the optimiser, with the float32 copies that it moves.
        gradients: of all trained weights.
        step: what only the optimiser's step makes.
        file: bytes of a file that is read while weights are cast or packed.
        unpacked: bytes of packed weights once they are plain again, to be saved.
        scratch: bytes that a step makes in blocks too large to be found among what a pass has freed.
        adapted: bytes of the outputs of all adapted layers for a token, where the heap is cut up by them.
        trained_bytes: bytes of the trained weights.
        head_gradient: bytes of the gradient of the output head; 0 if that is frozen.
        vocabulary: words of the output.
        on_heap: it lies on the heap of the C library.
    """

    libraries: Line
    stored: Line
    state: tuple[Line, ...]
    gradients: Line
    step: tuple[Line, ...]
    file: int
    unpacked: int
    scratch: int
    adapted: int
    trained_bytes: int
    head_gradient: int
    vocabulary: int
    on_heap: bool


def weigh(sizes: ModelSizes, settings: WeightSettings, *, training: bool, device: Device) -> Weights:
    """Add up what is held.

    Args:
        training: something is trained; else the weights are only run.
        device: where.  What the CPU's heap and its optimisers need besides, a CUDA device does not.
    """
    on_heap = device.kind == "cpu"
    lora = settings.adapter.lora if training else None
    stored = _stored(sizes, settings.model)
    if lora is not None:
        count = adapter_weights(sizes, lora)
        beside = f" + {count:,} of the adapter x 4 B"
        stored = Line(stored.name, stored.n_bytes + 4 * count, stored.arithmetic + beside)
        counts = {4: count}
    else:
        counts = _by_bytes(sizes) if training else {}
    copies = {
        width: n for width, n in counts.items() if width < 4 and settings.train.weight_update != "nearest"
    }
    trained_bytes = sum(width * n for width, n in counts.items())
    return Weights(
        libraries=_libraries(settings) if device.holds_libraries else Line("libraries", 0, ""),
        stored=stored,
        state=_state(counts, copies, settings.train),
        gradients=Line("gradients", trained_bytes, _said(counts)),
        step=_step(sizes, copies, settings.train),
        file=_file(sizes, settings.model),
        unpacked=_packed_count(sizes) * _width(settings.model) if settings.model.quantization == "nf4" else 0,
        scratch=_scratch(sizes, settings) if training and lora is None and on_heap else 0,
        adapted=_adapted_outputs(sizes, settings, lora) if lora is not None and on_heap else 0,
        trained_bytes=trained_bytes,
        head_gradient=sizes.head * _width(settings.model) if training and lora is None else 0,
        vocabulary=sizes.vocabulary,
        on_heap=on_heap,
    )


def adapter_weights(sizes: ModelSizes, lora: Lora) -> int:
    """Weights of an adapter: rank times rows and columns of each layer that gets one."""
    return sum(lora.rank * (x.in_features + x.out_features) for x in _adapted_layers(sizes, lora))


def _adapted_layers(sizes: ModelSizes, lora: Lora) -> list[Any]:
    return [
        layer
        for name, layer in sizes.linear_layers()
        if not lora.targets or any(re.search(rf"(^|\.){re.escape(t)}$", name) for t in lora.targets)
    ]


def _adapted_outputs(sizes: ModelSizes, settings: WeightSettings, lora: Lora) -> int:
    return _width(settings.model) * sum(layer.out_features for layer in _adapted_layers(sizes, lora))


def _libraries(settings: WeightSettings) -> Line:
    n_bytes, said = LIBRARIES, "interpreter, torch, transformers: measured"
    if settings.tracking.enabled:
        n_bytes, said = n_bytes + MLFLOW, said.replace(":", ", MLflow:")
    if settings.adapter.lora or settings.model.quantization != "none" or settings.train.optimizer != "adamw":
        n_bytes, said = n_bytes + ADAPTERS, said.replace(":", ", peft, bitsandbytes:")
    return Line("libraries", n_bytes, said)


def _stored(sizes: ModelSizes, model: ModelSettings) -> Line:
    if model.quantization != "nf4":
        return Line("weights", sizes.weight_bytes, _said(_by_bytes(sizes)))
    packed = _packed_count(sizes)
    plain = sizes.weight_bytes - packed * _width(model)
    said = f"{packed:,} packed x {NF4_BYTES:g} B + {plain:,} B of others"
    return Line("weights", round(packed * NF4_BYTES) + plain, said)


def _state(counts: dict[int, int], copies: dict[int, int], train: TrainSettings) -> tuple[Line, ...]:
    """Moments have the number format of what is moved: float32, or the weights' own."""
    lines = []
    if copies and train.weight_update == "master":
        n = sum(copies.values())
        lines.append(Line("float32 copies", 4 * n, f"{n:,} weights x 4 B"))
    moved = {4 if width in copies else width: 0 for width in counts}
    for width, n in counts.items():
        moved[4 if width in copies else width] += n
    per = STATE_BYTES[train.optimizer]
    n_bytes, said = 0, []
    for width, n in moved.items():
        each = per * width / 4 if train.optimizer == "adamw" else per
        n_bytes += round(n * each)
        said.append(f"{n:,} weights x {each:g} B")
    if counts:
        lines.append(Line(train.optimizer, n_bytes, " + ".join(said)))
    return tuple(lines)


def _step(sizes: ModelSizes, copies: dict[int, int], train: TrainSettings) -> tuple[Line, ...]:
    if not copies:
        return ()
    largest = max(p.numel() for p in sizes.model.parameters())
    if train.weight_update == "master":
        return (Line("one gradient as float32", 4 * largest, f"{largest:,} numbers x 4 B"),)
    return (Line("one weight as float32", 8 * largest, f"{largest:,} numbers and gradients x 8 B"),)


def _scratch(sizes: ModelSizes, settings: WeightSettings) -> int:
    if settings.train.optimizer == "adamw":
        return 0
    return STEP_COPIES * 4 * max(p.numel() for p in sizes.model.parameters())


def _by_bytes(sizes: ModelSizes) -> dict[int, int]:
    """Weights by the bytes of one."""
    counts: dict[int, int] = {}
    for parameter in sizes.model.parameters():
        counts[parameter.element_size()] = counts.get(parameter.element_size(), 0) + parameter.numel()
    return counts


def _said(counts: dict[int, int]) -> str:
    return " + ".join(f"{n:,} x {width} B" for width, n in sorted(counts.items()))


def _packed_count(sizes: ModelSizes) -> int:
    return sum(layer.weight.numel() for _, layer in sizes.linear_layers())


def _width(model: ModelSettings) -> int:
    return 4 if model.dtype == "float32" else 2


def _file(sizes: ModelSizes, model: ModelSettings) -> int:
    """Weights that are used as they lie in the file are mapped, and the system counts their pages once."""
    stored = getattr(sizes.architecture.config, "dtype", None)
    width = stored.itemsize if stored is not None else _width(model)
    if width == _width(model) and model.quantization == "none":
        return 0
    return int(sizes.parameters * width)
