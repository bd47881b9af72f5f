"""A plan: the phases of a run with their memory, on a device, for settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ninegrid.config import TaskSettings
from ninegrid.gspo.precision import has_router
from ninegrid.paths import PathSettings
from ninegrid.plan import phases
from ninegrid.plan.device import Device, find_device
from ninegrid.plan.dry_run import Cached, Kept, Sample, count_cached, count_kept, sample_layers
from ninegrid.plan.line import Phase
from ninegrid.plan.model_sizes import (
    CannotPlanError,
    ModelSizes,
    find_architecture,
    measure_model,
)
from ninegrid.plan.prompts import count_prompts, turns_of
from ninegrid.plan.weights import Weights, WeightSettings, weigh
from ninegrid.plan.workload import (
    Workload,
    WorkSettings,
    evaluation_load,
    fill_pass,
    training_load,
)
from ninegrid.policy.adapters import attach
from ninegrid.tasks.loading import load_task
from ninegrid.tree.choice import TREE_ARCHITECTURES, choose_engine

AMPLE = 8
"""float32 numbers to each output of a linear layer: more than a pass keeps of a token (SmolLM2 keeps 2.7)."""

DRY_TOKENS = 2048
"""Of a dry run: of more, what is kept grows with the tokens."""

MOST_SEQUENCES = 256
"""Of a dry run: as many positions as are scored without recomputing logits, which fake tensors cannot do."""


class PlanSettings(WeightSettings, WorkSettings, Protocol):
    """The sections that a plan is made from; those of ``train_gspo`` have them."""

    @property
    def task(self) -> TaskSettings: ...
    @property
    def paths(self) -> PathSettings: ...


@dataclass(frozen=True)
class Plan:
    """What a run will hold.

    Attributes:
        title: the command it is for.
        phases: in the order in which they happen; memory that one has freed is used again by the next.
        device: where.
        facts: what the figures rest on, a line each.
    """

    title: str
    phases: tuple[Phase, ...]
    device: Device
    facts: tuple[str, ...]

    @property
    def peak(self) -> Phase:
        """The phase that needs most."""
        return max(self.phases, key=lambda phase: phase.total)

    @property
    def fits(self) -> bool:
        return self.peak.total <= self.device.available


class Planner:
    """Makes plans for settings that differ in numbers, not in model or task.

    Args:
        settings: the model and the task.
        measure_prompts: count the prompts' tokens where the tokenizer is here.  It takes a second or two.

    Raises:
        CannotPlanError: the model's shape is not known.
    """

    def __init__(self, settings: PlanSettings, *, measure_prompts: bool) -> None:
        folder = settings.paths.folder("model")
        self._architecture = find_architecture(settings.model, folder)
        self._task = load_task(settings.task)
        here = measure_prompts and self._architecture.fetched
        self._prompt = count_prompts(self._task, settings.chat, folder if here else None)
        self._sizes: dict[str, ModelSizes] = {}
        self._passes: dict[tuple[object, ...], Kept] = {}
        self._samples: dict[tuple[str, object], tuple[Sample, Cached]] = {}

    def training(self, settings: PlanSettings) -> Plan:
        """The plan of ``train_gspo``."""
        device = find_device(settings.model.device)
        sizes = self._sized(settings.model.dtype)
        weights = weigh(sizes, settings, training=True, device=device)
        counted, path = self._counted(settings, lambda path: self._training_load(settings, path))
        found = [
            phases.loading(weights),
            phases.sampling(weights, counted, training=True),
            phases.backward(weights, counted),
            phases.step(weights),
        ]
        if weights.unpacked:
            found.append(phases.merging(weights))
        return Plan("train_gspo", tuple(found), device, self._facts(settings, sizes, path))

    def evaluation(self, settings: PlanSettings, boards: int, samples: int) -> Plan:
        """The plan of ``baseline_eval``."""
        device = find_device(settings.model.device)
        sizes = self._sized(settings.model.dtype)
        weights = weigh(sizes, settings, training=False, device=device)

        def load(path: str) -> Workload:
            return evaluation_load(settings, self._prompt, turns_of(self._task), path, boards, samples)

        counted, path = self._counted(settings, load)
        found = (phases.loading(weights), phases.sampling(weights, counted, training=False))
        return Plan("baseline_eval", found, device, self._facts(settings, sizes, path))

    def weights(self, settings: PlanSettings) -> Weights:
        """What a training holds however much is computed at once."""
        return weigh(
            self._sized(settings.model.dtype),
            settings,
            training=True,
            device=find_device(settings.model.device),
        )

    def surely_fits(self, settings: PlanSettings) -> bool:
        """Whether a training needs so little that no dry run is called for; only for plain layers."""
        sizes = self._sized(settings.model.dtype)
        if self._architecture.config.model_type not in TREE_ARCHITECTURES:
            return False
        device = find_device(settings.model.device)
        weights = self.weights(settings)
        held = phases.step(weights).total + weights.file
        outputs = sum(layer.out_features for _, layer in sizes.linear_layers())
        tokens = max(self._training_load(settings, path).at_once(path) for path in ("tree", "padded"))
        tokens += self._training_load(settings, "padded").cached("padded")
        return held + AMPLE * tokens * outputs * 4 + phases.most_logits(weights) < device.available

    def _training_load(self, settings: PlanSettings, path: str) -> Workload:
        return training_load(settings, self._prompt, turns_of(self._task), path)

    def _counted(
        self, settings: PlanSettings, load_on: Callable[[str], Workload]
    ) -> tuple[phases.Counted, str]:
        """Dry-run one pass of the work."""
        try:
            sample, cached = self._sample(settings)
            engine = choose_engine(sample.model, settings.engine)
            load = load_on(engine.name)
            kept = self._kept(settings, sample, engine, load)
        except Exception as error:  # whatever an architecture does that fake tensors cannot follow
            kind = self._architecture.config.model_type
            raise CannotPlanError(f"a dry run of architecture {kind} failed: {error}") from error
        checkpointing = settings.train.gradient_checkpointing
        return phases.Counted(engine.name, load, kept, cached, checkpointing), engine.name

    def _sample(self, settings: PlanSettings) -> tuple[Sample, Cached]:
        key = (settings.model.dtype, settings.adapter)
        if key not in self._samples:
            dtype, larger = self._dry_format(settings.model.dtype)
            sample = sample_layers(self._architecture, dtype, _prepare(settings))
            self._samples[key] = sample, count_cached(sample).times(larger)
        return self._samples[key]

    def _dry_format(self, dtype: str) -> tuple[str, int]:
        """The number format of a dry run, and how many times as large the real one's numbers are.

        The product of grouped experts has a rule for fake tensors in bfloat16 only.
        """
        if dtype == "float32" and has_router(self._architecture.config):
            return "bfloat16", 2
        return dtype, 1

    def _kept(self, settings: PlanSettings, sample: Sample, engine: Any, load: Workload) -> Kept:
        tokens = min(load.at_once(engine.name), DRY_TOKENS)
        key = (settings.model.dtype, settings.adapter, engine.name, tokens, load.reply, load.samples)
        if key not in self._passes:
            prompts, completions = fill_pass(load, tokens, engine.name, MOST_SEQUENCES)
            kept = count_kept(sample, engine, prompts, completions)
            self._passes[key] = kept.times(self._dry_format(settings.model.dtype)[1])
        return self._passes[key]

    def _sized(self, dtype: str) -> ModelSizes:
        if dtype not in self._sizes:
            self._sizes[dtype] = measure_model(self._architecture, dtype)
        return self._sizes[dtype]

    def _facts(self, settings: PlanSettings, sizes: ModelSizes, path: str) -> tuple[str, ...]:
        prompt = self._prompt
        how = "counted with its tokenizer" if prompt.measured else "guessed from its characters"
        return (
            f"{settings.model.name}: {sizes.parameters:,} weights; {self._architecture.origin}",
            f"{path} engine; a prompt has {prompt.longest:,} tokens, {prompt.shared:,} of them shared; {how}",
        )


def _prepare(settings: PlanSettings) -> Callable[[Any], None]:
    lora = settings.adapter.lora
    return (lambda model: None) if lora is None else (lambda model: attach(model, lora, settings.train.seed))
