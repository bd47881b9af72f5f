"""Steps of TRL's GRPOTrainer on the same model, prompts, boards, rewards and optimiser as ours.

It is set to GSPO: sequence-level ratios, advantages that are not scaled, no KL term.  Generation is
transformers' own, as vLLM wants a GPU.  Rewards go through our parser and judge, on the sampled ids.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from benchmarks.pieces.counting import teaching_share
from benchmarks.pieces.opening import Settings, boards_of, settings_of, sized, task_of
from benchmarks.subject import Subject
from ninegrid.chat.format import ChatFormat
from ninegrid.chat.judging import judge_reply
from ninegrid.errors import NinegridError
from ninegrid.policy.loading import Policy, load_policy
from ninegrid.progress import Progress
from ninegrid.tasks.protocol import Example, Task

Record = dict[str, Any]


def steps(
    subject: Subject,
    start: str,
    boards: list[list[str]],
    n_samples: int,
    checkpointing: bool,
    micro_batch: int,
) -> list[Record]:
    """Records of one step for each list of board ids.

    Args:
        checkpointing: recompute activations in the backward pass, which is TRL's default.
        micro_batch: sequences in one forward and backward pass; must divide the batch.
    """
    settings = settings_of(subject, *sized(len(boards[0]), n_samples, len(boards)))
    task = task_of(settings)
    by_id = {example.id: example for example in boards_of(subject.train, task)}
    asked = [by_id[name] for step in boards for name in step]
    policy = load_policy(Path(subject.starts[start]), settings.model)
    chat = ChatFormat(policy.tokenizer, settings.chat, task)
    clock = _Clock(len(boards))
    with tempfile.TemporaryDirectory() as folder:
        config = _config(settings, folder, checkpointing, micro_batch)
        reward = _reward(settings, task, chat, asked, clock)
        _trainer(policy, chat, config, reward, asked, clock).train()
    return clock.records


class _Clock(TrainerCallback):
    """Notes when steps end and what was sampled in them."""

    def __init__(self, total: int) -> None:
        self.records: list[Record] = []
        self._progress = Progress("step: TRL: step", total)
        self._restart()

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        self._restart()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        seconds = time.perf_counter() - self._start
        lengths, rewards = self.lengths, self.rewards
        self.records.append(
            {
                "seconds": seconds,
                "sampling": self.sampling,
                "reward": sum(rewards) / len(rewards),
                "teaching": teaching_share(rewards, self.boards),
                "length": sum(lengths) / len(lengths),
            }
        )
        self._progress.advance(f"{seconds:.1f} s")
        self._restart()

    def _restart(self) -> None:
        self.sampling = 0.0
        self.lengths: list[int] = []
        self.rewards: list[float] = []
        self.boards: list[str] = []
        self._start = time.perf_counter()


def _config(settings: Settings, folder: str, checkpointing: bool, micro_batch: int) -> Any:
    train, decoding = settings.train, settings.decoding
    batch = train.n_boards * train.n_samples
    return import_module("trl").GRPOConfig(
        output_dir=folder,
        use_cpu=True,
        bf16=False,
        fp16=False,
        importance_sampling_level="sequence",
        loss_type="grpo",
        scale_rewards="none",
        beta=0.0,
        epsilon=train.clip_low,
        epsilon_high=train.clip_high,
        num_generations=train.n_samples,
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=batch // micro_batch,
        gradient_checkpointing=checkpointing,
        max_completion_length=decoding.max_new_tokens,
        temperature=decoding.temperature,
        max_steps=train.steps,
        shuffle_dataset=False,
        optim="adamw_torch_fused",
        learning_rate=train.learning_rate,
        lr_scheduler_type="constant",
        adam_beta1=train.beta1,
        adam_beta2=train.beta2,
        weight_decay=train.weight_decay,
        max_grad_norm=train.max_grad_norm,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def _reward(settings: Settings, task: Task, chat: ChatFormat, asked: Sequence[Example], clock: _Clock) -> Any:
    def reward(completion_ids: list[list[int]], row: list[int], **_: Any) -> list[float]:
        outcomes = [
            judge_reply(task, asked[i], chat.decode(ids)).outcome
            for i, ids in zip(row, completion_ids, strict=True)
        ]
        lengths = [len(ids) for ids in completion_ids]
        rewards = [settings.reward.reward(o, n) for o, n in zip(outcomes, lengths, strict=True)]
        clock.lengths += lengths
        clock.rewards += rewards
        clock.boards += [asked[i].id for i in row]
        return rewards

    return reward


def _trainer(
    policy: Policy, chat: ChatFormat, config: Any, reward: Any, asked: Sequence[Example], clock: _Clock
) -> Any:
    tokenizer = chat.saved_tokenizer()
    rows = [{"prompt": chat.render(example), "row": index} for index, example in enumerate(asked)]
    _check_prompts(tokenizer, chat, asked, rows)
    return _timed(import_module("trl").GRPOTrainer, clock)(
        model=policy.model,
        reward_funcs=reward,
        args=config,
        train_dataset=import_module("datasets").Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[clock],
    )


def _timed(base: Any, clock: _Clock) -> Any:
    class Timed(base):
        """Samples and rewards where it prepares the inputs of a step, as TRL does."""

        def _prepare_inputs(self, batch: Any) -> Any:
            start = time.perf_counter()
            inputs = super()._prepare_inputs(batch)
            clock.sampling += time.perf_counter() - start
            return inputs

    return Timed


def _check_prompts(
    tokenizer: Any, chat: ChatFormat, asked: Sequence[Example], rows: Sequence[dict[str, Any]]
) -> None:
    """Both sides must be asked the same, to the token."""
    for example, row in zip(asked, rows, strict=True):
        if tokenizer(text=[row["prompt"]])["input_ids"][0] != chat.encode(example):
            raise NinegridError(f"TRL would be given other prompt tokens for {example.id} than our trainer")
