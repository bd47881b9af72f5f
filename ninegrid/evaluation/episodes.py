"""Episodes: one judged reply each, as stored in ``episodes.jsonl``.

An episode holds all that is needed to judge the reply again: the example, the raw text, and the
outcome that was found.  Rewards stand beside the outcome, never instead of it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ninegrid.errors import DataError
from ninegrid.reward import RewardTable
from ninegrid.tasks.protocol import Example, Interactive, Task, ToolCall

if TYPE_CHECKING:
    from ninegrid.policy.rollout import Rollout

SAMPLED, GREEDY = "sampled", "greedy"


@dataclass(frozen=True)
class Episode:
    """One reply to one held-out example.

    Attributes:
        example: the example's line (``id`` and the task's fields).
        group: its symmetry class.
        decoding: "sampled" or "greedy".
        sample: number of the reply among those to this example.
        reply: raw text, without the stop token; of a conversation everything behind the first prompt.
        n_tokens: sampled tokens, stop tokens included.
        finish: "stop", or "length" when cut.
        outcome, truncated, call, facts: the judgement.
        score: by the task's fixed table.
        reward: by the table in force.
    """

    example: dict[str, Any]
    group: str
    decoding: str
    sample: int
    reply: str
    n_tokens: int
    finish: str
    outcome: str
    truncated: bool
    call: dict[str, Any] | None
    facts: dict[str, Any]
    score: float
    reward: float

    @property
    def key(self) -> tuple[str, str, int]:
        """What pairs an episode with its counterpart in another evaluation."""
        return self.decoding, self.example["id"], self.sample


def make_episode(rollout: Rollout, decoding: str, score: Mapping[str, float], table: RewardTable) -> Episode:
    """Write down a rollout with both rewards."""
    judgement, call = rollout.judgement, rollout.judgement.call
    return Episode(
        example=rollout.example.line(),
        group=rollout.example.group,
        decoding=decoding,
        sample=rollout.sample,
        reply=rollout.text,
        n_tokens=rollout.n_sampled,
        finish=rollout.completion.finish,
        outcome=str(judgement.outcome),
        truncated=rollout.truncated,
        call=None if call is None else {"name": call.name, "arguments": dict(call.arguments)},
        facts=dict(judgement.facts),
        score=score[judgement.outcome],
        reward=table.reward(judgement.outcome, rollout.n_sampled),
    )


def draw_replies(task: Task, example: Example, episodes: Mapping[str, Mapping[str, Any]]) -> str:
    """The task's drawing of ``example`` with what was replied, or with the whole runs of a multi-step task.

    Args:
        episodes: the fields of named episodes, all of that example.
    """
    if isinstance(task, Interactive):
        return task.draw_runs(example, {name: episode["facts"] for name, episode in episodes.items()})
    calls = {name: episode["call"] for name, episode in episodes.items()}
    return task.draw(
        example,
        {name: None if c is None else ToolCall(c["name"], c["arguments"]) for name, c in calls.items()},
    )


def write_episodes(path: Path, episodes: Iterable[Episode]) -> None:
    """One JSON object a line."""
    lines = (json.dumps(asdict(episode), ensure_ascii=True) for episode in episodes)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read_episodes(path: Path, outcomes: Collection[str], stage: str = "baseline_eval") -> list[Episode]:
    """Read what `write_episodes` wrote in ``stage``, with the outcomes that the task knows.

    Raises:
        DataError: the file is missing, or a line is not an episode; names the line.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist", hint=f"make it with: dvc repro {stage}")
    episodes = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            episode = Episode(**json.loads(line))
            if episode.outcome not in outcomes:
                raise ValueError(f"unknown outcome {episode.outcome!r}")
        except (TypeError, ValueError) as error:
            raise DataError(
                f"{path}, line {number} is not an episode: {error}", hint=f"dvc repro -f {stage}"
            ) from error
        episodes.append(episode)
    return episodes
