"""What is held however much is computed at once: libraries, weights, gradients, the optimiser's state."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from ninegrid.gspo.settings import TrainSettings
from ninegrid.plan.line import Line
from ninegrid.plan.model_sizes import ModelSizes
from ninegrid.policy.adapters import AdapterSettings, Lora
from ninegrid.policy.settings import ModelSettings
from ninegrid.tracking.settings import TrackingSettings

MB = 1_000_000
LIBRARIES = 490 * MB
"""The interpreter with torch, transformers, the tokenizer and this library: resident size after loading, less the
weights, measured with torch 2.13 for the CPU."""

MLFLOW = 115 * MB
"""What importing MLflow adds, measured."""

NF4_BYTES = 0.5 + 4 / 64
"""Of a packed weight: 4 bits, and a float32 scale for each 64."""

STATE_BYTES = {"adamw": 8.0, "paged_adamw": 8.0, "adamw_8bit": 2 + 8 / 256, "paged_adamw_8bit": 2 + 8 / 256}
"""Of the optimiser for a float32 weight: two float32 moments, or two bytes and two float32 scales for each 256."""


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
