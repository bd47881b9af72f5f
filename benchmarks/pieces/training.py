"""Steps of our trainer, each timed from outside: sampling, and all that follows it.

The sampler is watched, not changed: what goes through it is handed on, and what was sampled is noted.
Loading the model and counting tokens lie outside the times.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.pieces.counting import count, teaching_share
from benchmarks.pieces.opening import Settings, agent_of, boards_of, settings_of, sized, task_of
from benchmarks.subject import Subject
from ninegrid.gspo.checkpoint import Checkpoints
from ninegrid.gspo.trainer import Trainer
from ninegrid.policy.agent import Agent
from ninegrid.policy.rollout import Rollout
from ninegrid.policy.sampler import Sampler
from ninegrid.progress import say
from ninegrid.reward import RewardTable
from ninegrid.tasks.protocol import Example

Record = dict[str, Any]


class Watch:
    """Stands where the sampler stands, and keeps a record of every step.

    Args:
        sampler: what is watched.
        table: the reward in force.
    """

    def __init__(self, sampler: Sampler, table: RewardTable) -> None:
        self._sampler, self._table = sampler, table
        self.records: list[Record] = []
        self.restart()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)

    def restart(self) -> None:
        """Begin a step now."""
        self.rollouts: list[Rollout] = []
        self._sampling = 0.0
        self._start = time.perf_counter()

    def groups(self, *args: Any, **kwargs: Any) -> Iterator[list[list[Rollout]]]:
        """See `Sampler.groups`."""
        parts = self._sampler.groups(*args, **kwargs)
        while True:
            start = time.perf_counter()
            part = next(parts, None)
            self._sampling += time.perf_counter() - start
            if part is None:
                return
            self.rollouts += [rollout for group in part for rollout in group]
            yield part

    def on_step(self, row: dict[str, Any], costs: dict[str, float]) -> None:
        """End a step and begin the next one."""
        seconds = time.perf_counter() - self._start
        replies = self.rollouts
        lengths = [len(r.completion.tokens) for r in replies]
        tokens = count([r.prompt for r in replies], [r.completion.tokens for r in replies])
        rewards = [self._table.reward(r.judgement.outcome, n) for r, n in zip(replies, lengths, strict=True)]
        self.records.append(
            {
                "seconds": seconds,
                "sampling": self._sampling,
                "boards": list(dict.fromkeys(r.example.id for r in replies)),
                "reward": sum(rewards) / len(rewards),
                "teaching": teaching_share(rewards, [r.example.id for r in replies]),
                "length": sum(lengths) / len(lengths),
                "padded": tokens.padded,
                "distinct": tokens.distinct,
                "scored": row["train/distinct_tokens"],
            }
        )
        self.restart()


def steps(subject: Subject, start: str, n_boards: int, n_samples: int, steps: int) -> list[Record]:
    """Records of the first ``steps`` steps of a training."""
    settings = settings_of(subject, *sized(n_boards, n_samples, steps))
    task = task_of(settings)
    agent = agent_of(subject, start, task, settings)
    return _train(agent, settings, boards_of(subject.train, task))


def grid(subject: Subject, start: str, sizes: list[tuple[int, int]], steps: int) -> list[list[Record]]:
    """Records of one training for each size (boards, samples); each begins with the same weights."""
    settings = settings_of(subject)
    task = task_of(settings)
    agent = agent_of(subject, start, task, settings)
    boards = boards_of(subject.train, task)
    weights = {name: value.clone() for name, value in agent.policy.model.state_dict().items()}
    records = []
    for index, (n_boards, n_samples) in enumerate(sizes, start=1):
        say(f"scaling: {start}: size {index}/{len(sizes)}: {n_boards} boards x {n_samples} samples")
        agent.policy.model.load_state_dict(weights)
        records.append(_train(agent, settings_of(subject, *sized(n_boards, n_samples, steps)), boards))
    return records


def _train(agent: Agent, settings: Settings, boards: list[Example]) -> list[Record]:
    watch = Watch(agent.sampler, settings.reward)
    never = Checkpoints(Path("no-checkpoints-of-benchmarks"), "none")
    sampler: Any = watch
    trainer = Trainer(agent.policy, sampler, settings.reward, settings.train, never)
    watch.restart()
    trainer.run(boards, watch.on_step)
    return watch.records
