"""How many tokens a run has in memory at once, by its settings alone.

An upper bound, that is reached while a policy still says something else each time.

No model is known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ninegrid.gspo.settings import TrainSettings
from ninegrid.policy.agent import AgentSettings


@dataclass(frozen=True)
class PromptLengths:
    """Tokens of the prompts of a batch.

    Attributes:
        shared: at the beginning of all of them.
        own: of the longest beyond that.
        measured: counted with the model's tokenizer, instead of guessed from the characters.
    """

    shared: int
    own: int
    measured: bool

    @property
    def longest(self) -> int:
        return self.shared + self.own


class WorkSettings(AgentSettings, Protocol):
    """The sections that say how much is done at once."""

    @property
    def train(self) -> TrainSettings: ...


@dataclass(frozen=True)
class Workload:
    """A batch of boards with replies.

    Attributes:
        prompt: tokens of a prompt.
        reply: the longest reply, with whatever comes back within a conversation.
        boards: whose replies are drawn at once.
        samples: replies to a board.
        step_boards: boards that one optimiser step learns from.
        pass_tokens: at most so many tokens in one forward and backward pass.
    """

    prompt: PromptLengths
    reply: int
    boards: int
    samples: int
    step_boards: int
    pass_tokens: int

    @property
    def sequence(self) -> int:
        """Tokens of the longest prompt with its reply."""
        return self.prompt.longest + self.reply

    def cached(self, path: str) -> int:
        """Tokens whose keys and values a sampling batch keeps."""
        if path == "padded":
            return self.boards * self.samples * self.sequence
        return self.prompt.shared + self.boards * (self.prompt.own + self.samples * self.reply)

    def scored(self, path: str) -> int:
        """Tokens that go through the model for one optimiser step, if no two replies begin alike."""
        if path == "padded":
            return self.step_boards * self.samples * self.sequence
        return self.prompt.shared + self.step_boards * (self.prompt.own + self.samples * self.reply)

    def at_once(self, path: str) -> int:
        """Tokens of the largest pass: as many as the settings allow, and one sequence at the least."""
        if path == "padded":
            rows = min(self.step_boards * self.samples, max(1, self.pass_tokens // self.sequence))
            return rows * self.sequence
        return min(self.scored(path), max(self.pass_tokens, self.sequence))

    def several_passes(self, path: str) -> bool:
        """Whether gradients of one pass are there when the next begins."""
        return self.scored(path) > self.at_once(path)


def training_load(settings: WorkSettings, prompt: PromptLengths, turns: int, path: str) -> Workload:
    """What a training step has in memory.

    Args:
        turns: replies of a conversation; what comes between two is counted like a reply.
    """
    train = settings.train
    reply = settings.decoding.max_new_tokens * (2 * turns - 1)
    boards = _batch(
        train.n_boards, train.n_samples, prompt, reply, settings.engine.max_tokens_per_batch, path
    )
    step_boards = -(-train.n_boards // train.minibatches)
    return Workload(prompt, reply, boards, train.n_samples, step_boards, max(1, train.max_tokens_per_pass))


def evaluation_load(
    settings: WorkSettings, prompt: PromptLengths, turns: int, path: str, boards: int, samples: int
) -> Workload:
    """What an evaluation of so many boards has in memory: as many at once as may be, no gradients."""
    reply = settings.decoding.max_new_tokens * (2 * turns - 1)
    at_once = _batch(boards, samples, prompt, reply, settings.engine.max_tokens_per_batch, path)
    return Workload(prompt, reply, at_once, samples, 0, 1)


def _batch(boards: int, samples: int, prompt: PromptLengths, reply: int, budget: int, path: str) -> int:
    """Boards that one call of the sampler takes; see `Engine.batches`."""
    first = prompt.longest + samples * reply
    each = prompt.own + samples * reply
    if path == "padded":
        first = each = samples * (prompt.longest + reply)
    return max(1, min(boards, 1 + (budget - first) // each))


def fill_pass(load: Workload, tokens: int, path: str, limit: int) -> tuple[list[list[int]], list[list[int]]]:
    """Prompts and completions whose one pass has about ``tokens`` tokens, for a dry run.

    A completion is one token, and all that may be sampled stands in the prompt: the pass is the same, and the
    output head, which is counted apart, has little to do.

    Args:
        limit: sequences at most.
    """
    prompts: list[list[int]] = []
    board: list[int] = []
    used = load.prompt.shared if path == "tree" else 0
    fresh = _Counter(load.prompt.shared)
    trunk = list(range(load.prompt.shared))
    for sequence in range(limit):
        if sequence % load.samples == 0:
            board = fresh.take(load.prompt.own)
            used += len(board) if path == "tree" else 0
        reply = fresh.take(load.reply)
        size = len(reply) if path == "tree" else load.sequence
        if prompts and used + size > tokens:
            break
        used += size
        prompts.append([*trunk, *board, *reply[:-1]])
    return prompts, [[0] for _ in prompts]


class _Counter:
    """Token ids that were not taken before."""

    def __init__(self, start: int) -> None:
        self._next = start

    def take(self, count: int) -> list[int]:
        self._next += count
        return list(range(self._next - count, self._next))
