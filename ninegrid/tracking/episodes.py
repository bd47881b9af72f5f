"""Episodes as traces, so that one can go from a rate to the very replies behind it.

Each is a board with four steps: the prompt, the reply, the tool call that was read from it, the judgement.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any

from ninegrid.tracking.names import TAG_LIMIT, as_text, cut, safe_name
from ninegrid.tracking.run import Run
from ninegrid.tracking.traces import Json, Step, Trace

if TYPE_CHECKING:
    from ninegrid.chat.format import ChatFormat
    from ninegrid.evaluation.episodes import Episode
    from ninegrid.tasks.protocol import Example, Task

PREVIEW_LIMIT = 200


def mirror_episodes(
    run: Run,
    label: str,
    chat: ChatFormat,
    examples: Sequence[Example],
    episodes: Sequence[Episode],
    before: Sequence[Episode] = (),
) -> None:
    """Mirror as many episodes as the settings allow, see `select`.

    Args:
        label: names the evaluation; the trace's tag ``evaluation``.
        chat: with which they were asked.
        before: episodes of an earlier evaluation; what came of the same draw then becomes a tag.
    """
    if run.trace_limit == 0:
        return
    by_id = {example.id: example for example in examples}
    earlier = {episode.key: episode.outcome for episode in before}
    now = time.time_ns() // 1_000_000
    run.traces(
        [
            # A list shows the latest first: let that be the worst.
            _trace(label, chat, by_id[episode.example["id"]], episode, earlier, now - place)
            for place, episode in enumerate(select(episodes, chat.task.outcomes, run.trace_limit))
        ]
    )


def select(episodes: Sequence[Episode], outcomes: Sequence[str], limit: int) -> list[Episode]:
    """At most ``limit`` episodes of each decoding, the worst outcomes first.

    Outcomes take turns, so that a rare one is among them and a frequent one does not fill the list; among
    equals the order is that of ``episodes``.

    Args:
        outcomes: all that there are, worst first.
    """
    chosen: list[Episode] = []
    for decoding in dict.fromkeys(episode.decoding for episode in episodes):
        by_outcome: dict[str, list[Episode]] = defaultdict(list)
        for episode in episodes:
            if episode.decoding == decoding:
                by_outcome[episode.outcome].append(episode)
        turns = zip_longest(*(by_outcome[outcome] for outcome in outcomes))
        chosen += islice((e for turn in turns for e in turn if e is not None), limit)
    return sorted(chosen, key=lambda episode: outcomes.index(episode.outcome))


def _trace(
    label: str,
    chat: ChatFormat,
    example: Example,
    episode: Episode,
    earlier: Mapping[Any, str],
    time_ms: int,
) -> Trace:
    task, (decoding, board, sample) = chat.task, episode.key
    messages = chat.messages(example)
    question = as_text(messages[-1]["content"])
    tags = {
        "evaluation": label,
        "outcome": episode.outcome,
        "decoding": decoding,
        "board": board,
        "sample": sample,
        "score": episode.score,
        "reward": episode.reward,
        "truncated": episode.truncated,
        **_reached(task, episode),
    }
    if episode.key in earlier:
        tags["outcome_before"] = earlier[episode.key]
    return Trace(
        key=f"{label} {decoding} {board} {sample}",
        name=f"{label}, {decoding}: {board}",
        time=time_ms,
        asked=_line(question, " | "),
        answered=_line(f"{episode.outcome}: {_answer(episode)}", " "),
        tags={safe_name(name): cut(as_text(value), TAG_LIMIT) for name, value in tags.items()},
        steps=_steps(chat, example, episode, messages, question),
    )


def _steps(
    chat: ChatFormat, example: Example, episode: Episode, messages: Sequence[Json], question: str
) -> list[Step]:
    task, why = chat.task, episode.facts.get("why")
    prompt, tokens = chat.render(example), len(chat.encode(example))
    usage = {"input_tokens": tokens, "output_tokens": episode.n_tokens}
    usage["total_tokens"] = sum(usage.values())
    reply = {"role": "assistant", "content": episode.reply}
    judged = {
        "outcome": episode.outcome,
        "score": episode.score,
        "reward": episode.reward,
        **_reached(task, episode),
        "facts": episode.facts,
    }
    weakest = next(iter(task.milestones))
    failed = None if _reached(task, episode)[weakest] else f"{episode.outcome}, not {weakest}"
    return [
        Step("board", "CHAIN", _fenced(question), judged, failed, {"example": episode.example}),
        Step("prompt", "TASK", episode.example, _fenced(prompt), None, {"tokens": tokens}),
        Step(
            "reply",
            "CHAT_MODEL",
            {"messages": [_openai(message) for message in messages], "tools": task.tools},
            {"choices": [{"message": reply, "finish_reason": episode.finish}]},
            None,
            {"mlflow.chat.tokenUsage": usage, "mlflow.message.format": "openai"},
        ),
        Step("tool call", "TOOL", episode.reply, episode.call, why, {}),
        Step(
            "judgement", "EVALUATOR", {"example": episode.example, "call": episode.call}, judged, failed, {}
        ),
    ]


def _reached(task: Task, episode: Episode) -> dict[str, bool]:
    return {name: episode.outcome in members for name, members in task.milestones.items()}


def _answer(episode: Episode) -> str:
    """The call as it would be written in code, or else the reply."""
    if episode.call is None:
        return episode.reply.strip() or "(empty)"
    arguments = ", ".join(f"{name}={as_text(value)}" for name, value in episode.call["arguments"].items())
    return f"{episode.call['name']}({arguments})"


def _openai(message: Json) -> Json:
    """A message as the OpenAI API has it, which MLflow draws as talk: arguments are text there."""
    if not message.get("tool_calls"):
        return message
    calls = []
    for number, call in enumerate(message["tool_calls"], start=1):
        function = {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}
        calls.append({"id": f"call-{number}", **call, "function": function})
    return {**message, "tool_calls": calls}


def _fenced(text: str) -> str:
    """``text`` with its lines as they are: MLflow shows text as Markdown."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"


def _line(text: str, separator: str) -> str:
    """``text`` in one line that every store takes."""
    joined = separator.join(" ".join(line.split()) for line in text.splitlines() if line.strip())
    shown = cut(joined, PREVIEW_LIMIT)
    return "".join(c if c.isprintable() else " " for c in shown)
