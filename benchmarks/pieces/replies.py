"""The held-out evaluation: each board once sampled and once greedy, from a cold start."""

from __future__ import annotations

import time
from typing import Any

import torch

from benchmarks.pieces.opening import agent_of, boards_of, settings_of, task_of
from benchmarks.subject import Subject
from ninegrid.policy.agent import Agent
from ninegrid.policy.rollout import Rollout
from ninegrid.progress import Progress
from ninegrid.tasks.protocol import Task


def evaluation(subject: Subject, start: str, n_boards: int, repetitions: int) -> dict[str, Any]:
    """Seconds of each repetition, and what the replies of the last one were like."""
    settings = settings_of(subject)
    task = task_of(settings)
    agent = agent_of(subject, start, task, settings)
    boards = boards_of(subject.heldout, task)[:n_boards]
    progress = Progress(f"evaluation: {start}: repetition", repetitions)
    seconds = []
    for _ in range(repetitions):
        _forget(agent)
        begin = time.perf_counter()
        with torch.no_grad():
            parts = list(agent.sampler.groups(boards, 1, ("benchmark",), greedy=True))
        seconds.append(time.perf_counter() - begin)
        progress.advance()
    replies = [rollout for part in parts for group in part for rollout in group]
    return {
        "boards": len(boards),
        "seconds": seconds,
        "sampled": _score([r for r in replies if not r.greedy], task),
        "greedy": _score([r for r in replies if r.greedy], task),
        "length": sum(len(r.completion.tokens) for r in replies) / len(replies),
    }


def _forget(agent: Agent) -> None:
    """Let the engine begin anew: without guesses, and without what it computed under these weights."""
    agent.sampler.engine.load([])
    agent.sampler.engine.release()


def _score(replies: list[Rollout], task: Task) -> float:
    return sum(task.score[r.judgement.outcome] for r in replies) / len(replies)
