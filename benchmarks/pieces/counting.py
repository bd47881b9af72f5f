"""Figures of a batch, counted here and not by the engine that is being measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Tokens = Sequence[int]


@dataclass(frozen=True)
class Counts:
    """Tokens of a batch of prompts with their completions.

    Attributes:
        padded: of a rectangle that holds all of it, prompts padded to the longest prompt and
            completions to the longest completion.
        distinct: a token together with all that comes before it counts once.
        logits: distinct positions from which a token of a completion was predicted.
    """

    padded: int
    distinct: int
    logits: int


def count(prompts: Sequence[Tokens], completions: Sequence[Tokens]) -> Counts:
    """Count the tokens of a batch that is not empty."""
    nodes: dict[tuple[int, int], int] = {}
    predicts: set[int] = set()
    for prompt, completion in zip(prompts, completions, strict=True):
        node = _walk(nodes, -1, prompt)[-1]
        predicts.update([node, *_walk(nodes, node, completion)][: len(completion)])
    width = max(map(len, prompts)) + max(map(len, completions))
    return Counts(len(prompts) * width, len(nodes), len(predicts))


def teaching_share(rewards: Sequence[float], boards: Sequence[str]) -> float:
    """The share of boards whose replies differ in reward; the others give no gradient."""
    seen: dict[str, set[float]] = {}
    for reward, board in zip(rewards, boards, strict=True):
        seen.setdefault(board, set()).add(reward)
    return sum(len(values) > 1 for values in seen.values()) / len(seen)


def _walk(nodes: dict[tuple[int, int], int], node: int, tokens: Tokens) -> list[int]:
    path = []
    for token in tokens:
        node = nodes.setdefault((node, token), len(nodes))
        path.append(node)
    return path
