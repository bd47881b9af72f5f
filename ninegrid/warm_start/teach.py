"""SFT and DPO through TRL's trainers, on token ids that are ours.

TRL's own preparation of data sets, which would tokenise texts anew, is passed by.  It cannot share the
beginning that all prompts have in common, so a board costs its whole prompt (a pair twice, and once more for
the reference).
"""

from __future__ import annotations

import importlib
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from transformers import PrinterCallback, TrainerCallback

from ninegrid.errors import NinegridError, SettingsError, TrainingError
from ninegrid.policy.loading import Policy
from ninegrid.progress import Progress
from ninegrid.tracking.usage import Stopwatch, peak_memory
from ninegrid.warm_start.lessons import Lesson
from ninegrid.warm_start.quiet import quiet
from ninegrid.warm_start.settings import DpoRecipe, Taught

Row = dict[str, float]
OnStep = Callable[[Row, dict[str, float]], None]
"""Called after each optimiser step with its figures, and with what it took (seconds, GB)."""

IGNORED = -100
"""The label of a token that is not learned."""

FIGURES = {
    "loss": "train/loss",
    "grad_norm": "train/grad_norm",
    "learning_rate": "train/learning_rate",
    "mean_token_accuracy": "train/token_accuracy",
    "rewards/accuracies": "train/preferred",
    "rewards/margins": "train/margin",
}
"""TRL's names -> ours.  The last two are DPO's: the share of pairs whose chosen reply has gained more
log-prob than the rejected one since the start, and beta times by how much."""


def require_trl() -> Any:
    """The library.

    Raises:
        NinegridError: it is not installed.
    """
    try:
        return importlib.import_module("trl")
    except ImportError as error:
        raise NinegridError(
            f"warm starts need TRL, which cannot be imported: {error}",
            hint='pip install "trl>=1.16,<2" (make setup does), or go without: '
            "python -m ninegrid.params warm_start=none",
        ) from error


def teach(
    policy: Policy, tokenizer: Any, lessons: Sequence[Lesson], recipe: Taught, on_step: OnStep
) -> list[Row]:
    """Train the policy's model in place and return a row for each optimiser step.

    Args:
        tokenizer: a copy that the trainer may change.

    Raises:
        NinegridError: TRL is not installed.
        SettingsError: the device is one of several GPUs, which TRL's trainers would all use.
        TrainingError: a loss or a gradient is not finite.
    """
    trl = require_trl()
    _require_one_gpu(policy.device)
    total = math.ceil(len(lessons) / recipe.batch_size) * recipe.epochs
    steps = _Steps(total, recipe.learning_rate, on_step)
    with quiet(), tempfile.TemporaryDirectory() as folder:
        if isinstance(recipe, DpoRecipe):
            trainer = _dpo(trl, policy, tokenizer, lessons, recipe, folder)
        else:
            trainer = _sft(trl, policy, tokenizer, lessons, recipe, folder)
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(steps)
        trainer.train()
    policy.model.eval()
    return steps.rows


def _sft(
    trl: Any, policy: Policy, tokenizer: Any, lessons: Sequence[Lesson], recipe: Taught, folder: str
) -> Any:
    prepared = {"skip_prepare_dataset": True}
    config = trl.SFTConfig(**_arguments(policy, recipe, folder), dataset_kwargs=prepared)
    rows = [_demonstration(lesson) for lesson in lessons]
    return trl.SFTTrainer(policy.model, config, train_dataset=_data(rows), processing_class=tokenizer)


def _dpo(
    trl: Any, policy: Policy, tokenizer: Any, lessons: Sequence[Lesson], recipe: DpoRecipe, folder: str
) -> Any:
    progress = Progress("warm_start: reference of pair", len(lessons), every=10.0)

    class Prepared(trl.DPOTrainer):
        """Takes pairs of token ids as they are, and shows how far the reference is."""

        def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
            return dataset

        def compute_ref_log_probs(self, model: Any, inputs: Mapping[str, Any]) -> Any:
            found = super().compute_ref_log_probs(model, inputs)
            progress.advance(units=len(inputs["input_ids"]) // 2)
            return found

    reference = {"precompute_ref_log_probs": True, "precompute_ref_batch_size": recipe.batch_size}
    config = trl.DPOConfig(**_arguments(policy, recipe, folder), **reference, beta=recipe.beta)
    rows = [_pair(lesson) for lesson in lessons]
    return Prepared(policy.model, args=config, train_dataset=_data(rows), processing_class=tokenizer)


def _arguments(policy: Policy, recipe: Taught, folder: str) -> dict[str, Any]:
    """What both trainers are told: the recipe, plain precision, and to leave nothing anywhere."""
    return {
        "output_dir": folder,
        "num_train_epochs": recipe.epochs,
        "per_device_train_batch_size": recipe.batch_size,
        "learning_rate": recipe.learning_rate,
        "lr_scheduler_type": "linear",
        "optim": "adamw_torch_fused",
        "seed": recipe.seed,
        "data_seed": recipe.seed,
        "max_length": None,
        "use_cpu": policy.device.type == "cpu",
        "bf16": False,  # TRL's default would be mixed precision
        "fp16": False,
        "gradient_checkpointing": False,  # a third of the time, and small models have the memory
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }


def _demonstration(lesson: Lesson) -> dict[str, list[int]]:
    reply = list(lesson.chosen.ids)
    return {"input_ids": [*lesson.prompt, *reply], "labels": [IGNORED] * len(lesson.prompt) + reply}


def _pair(lesson: Lesson) -> dict[str, list[int]]:
    assert lesson.rejected is not None
    return {
        "prompt_ids": list(lesson.prompt),
        "chosen_ids": list(lesson.chosen.ids),
        "rejected_ids": list(lesson.rejected.ids),
    }


def _data(rows: list[dict[str, list[int]]]) -> Any:
    from datasets import Dataset

    return Dataset.from_list(rows)


def _require_one_gpu(device: torch.device) -> None:
    if device.type == "cuda" and torch.cuda.device_count() > 1:
        raise SettingsError(
            f"model.device = {device}, but TRL would use all {torch.cuda.device_count()} GPUs that it sees",
            hint="show the process one, such as with CUDA_VISIBLE_DEVICES=0",
        )


class _Steps(TrainerCallback):
    """Keeps the figures of every optimiser step, shows them, and stops at one that is not finite."""

    def __init__(self, total: int, learning_rate: float, on_step: OnStep) -> None:
        self.rows: list[Row] = []
        self._total, self._learning_rate, self._on_step = total, learning_rate, on_step

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._progress = Progress("warm_start: step", self._total)
        self._watch = Stopwatch()

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Called after each step, and once more at the end, without a loss."""
        logs = kwargs["logs"]
        if "loss" not in logs:
            return
        row = {"step": state.global_step} | {
            ours: logs[name] for name, ours in FIGURES.items() if name in logs
        }
        self._check(row)
        self.rows.append(row)
        self._on_step(row, {"time/step_seconds": self._watch.lap(), **peak_memory()})
        self._progress.advance(f"loss {row['train/loss']:.4f}")

    def _check(self, row: Row) -> None:
        for name, value in row.items():
            if not math.isfinite(value):
                raise TrainingError(
                    f"{name} = {value} in step {row['step']} of the warm start, expected a finite number; "
                    "nothing is written",
                    hint="try again with a learning rate below "
                    f"warm_start.learning_rate = {self._learning_rate:g}",
                )
