"""How fast a batch is scored, forward and backward, beside the fastest matrix products of this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from benchmarks.pieces.counting import count
from benchmarks.pieces.opening import Settings, agent_of, boards_of, settings_of, task_of
from benchmarks.subject import Subject
from ninegrid.errors import NinegridError
from ninegrid.gspo.batch import RolloutBatch, make_batch
from ninegrid.policy.agent import Agent
from ninegrid.policy.rollout import Rollout
from ninegrid.progress import say
from ninegrid.tasks.protocol import Example

WARM_UP = 2


def rates(
    subject: Subject, start: str, shapes: list[tuple[int, int, int]], repetitions: int
) -> dict[str, Any]:
    """Matrix rates in FLOP/s before and after, the scoring's seconds, and what it worked on."""
    settings = settings_of(subject)
    task = task_of(settings)
    agent = agent_of(subject, start, task, settings)
    batch = _first_batch_that_teaches(agent, settings, boards_of(subject.train, task))
    before = [_matrix_rate(shape, repetitions) for shape in shapes]
    say(f"matmul: {start}: scoring {len(batch)} replies that reach the gradient")
    seconds, n_passes, n_run = _score(agent, settings, batch, repetitions)
    after = [_matrix_rate(shape, repetitions) for shape in shapes]
    tokens = count([r.prompt for r in batch], [r.completion.tokens for r in batch])
    return {
        "before": before,
        "after": after,
        "seconds": seconds,
        "passes": n_passes,
        "run": n_run,
        "replies": len(batch),
        "tokens": asdict(tokens),
        "parameters": _parameters(agent.policy.model),
    }


def _matrix_rate(shape: tuple[int, int, int], repetitions: int) -> float:
    """The best rate of a float32 product [m, k] x [k, n]."""
    m, k, n = shape
    left, right, out = torch.rand(m, k), torch.rand(k, n), torch.empty(m, n)
    seconds = _timed(lambda: torch.mm(left, right, out=out), repetitions)
    return 2 * m * k * n / min(seconds)


def _score(
    agent: Agent, settings: Settings, batch: Sequence[Rollout], repetitions: int
) -> tuple[list[float], int, int]:
    """Seconds of each repetition, and the passes and tokens of one."""
    prompts, completions = [r.prompt for r in batch], [r.completion.tokens for r in batch]
    budget, temperature = settings.train.max_tokens_per_pass, settings.decoding.temperature
    passes: list[range] = []
    run = 0

    def loss(members: range, logp_ST: Tensor) -> Tensor:
        passes.append(members)
        return logp_ST.sum()

    def forward_and_backward() -> None:
        nonlocal run
        passes.clear()
        agent.policy.model.zero_grad(set_to_none=True)
        run = agent.sampler.engine.backward(prompts, completions, temperature, budget, loss)

    seconds = _timed(forward_and_backward, repetitions)
    return seconds, len(passes), run


def _timed(work: Callable[[], object], repetitions: int) -> list[float]:
    seconds = []
    for _ in range(WARM_UP + repetitions):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return seconds[WARM_UP:]


def _first_batch_that_teaches(agent: Agent, settings: Settings, boards: Sequence[Example]) -> list[Rollout]:
    """The replies with an advantage in the first batch of boards that has any."""
    n_boards, n_samples = settings.train.n_boards, settings.train.n_samples
    for start in range(0, len(boards), n_boards):
        parts = agent.sampler.groups(boards[start : start + n_boards], n_samples, ("benchmark", start))
        batch = make_batch([group for part in parts for group in part], settings.reward, settings.train)
        if batch.informative.any():
            return _teaching(batch)
    raise NinegridError("no board has replies of different reward: there is nothing to score")


def _teaching(batch: RolloutBatch) -> list[Rollout]:
    """The rollouts with an advantage, in the order in which training hands them to the engine."""
    teaching: list[Rollout] = []
    for group, row in zip(batch.groups, batch.advantages, strict=True):
        chosen = [rollout for rollout, advantage in zip(group, row, strict=True) if advantage != 0]
        teaching += sorted(chosen, key=lambda r: r.completion.tokens)
    return teaching


def _parameters(model: Any) -> dict[str, int]:
    """All weights, those of the output layer, and those that are in neither embedding."""
    head, embedding = model.get_output_embeddings().weight, model.get_input_embeddings().weight
    total = sum(p.numel() for p in model.parameters())
    tables = embedding.numel() if head is embedding else embedding.numel() + head.numel()
    return {"all": total, "head": head.numel(), "body": total - tables}
