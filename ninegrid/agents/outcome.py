"""What became of a run: its rollout, judged by the agent, by the wrapped task, or as the agent's failure."""

from __future__ import annotations

import json

import numpy as np

from ninegrid.agents.run import AgentRun
from ninegrid.agents.task import ERROR, TIMEOUT, AgentTask
from ninegrid.chat.dialect import Dialect
from ninegrid.chat.format import ChatFormat
from ninegrid.chat.judging import WHY_LENGTH, judge_reply
from ninegrid.chat.strict_json import check_tree
from ninegrid.policy.conversation import Reader
from ninegrid.policy.rollout import Rollout, Turn, join_turns
from ninegrid.tasks.protocol import Judgement, ToolCall
from ninegrid.tree.engine import Completion

NOTHING = Completion((), np.zeros(0, np.float32), np.zeros(0, np.float32), "stop")
"""What a run that never asked has sampled."""


def rollout_of(run: AgentRun, task: AgentTask, chat: ChatFormat, reader: Reader) -> Rollout:
    """The rollout of a run that is over.

    Args:
        reader: of the wrapped task's replies; finds the tokens that decide.
    """
    example, draws = run.example, run.draws
    judgement = judge_run(run, task, chat.dialect)
    exchanges = run.record.exchanges
    if not exchanges:
        prompt = tuple(chat.encode(example))
        return Rollout(example, draws.sample, prompt, NOTHING, "", judgement, (), draws.greedy)
    completion, spans = join_turns([e.prompt for e in exchanges], [e.completion for e in exchanges])
    decisions = [reader.read(exchange.completion.tokens).decision for exchange in exchanges]
    turns = tuple(
        Turn(span.start, span.stop, None if at is None else span.start + at)
        for span, at in zip(spans, decisions, strict=True)
    )
    text = chat.decode(completion.tokens)
    return Rollout(
        example, draws.sample, exchanges[0].prompt, completion, text, judgement, turns, draws.greedy
    )


def judge_run(run: AgentRun, task: AgentTask, dialect: Dialect) -> Judgement:
    """The judgement of a run that is over; its replies are written in ``dialect``.

    Raises:
        Exception: whatever the wrapped task raises; a task's bug is never an outcome.
    """
    if run.late:
        return _failed(TIMEOUT, f"not done after {task.timeout:g} s of its own (task.timeout)")
    if run.error is not None:
        return _failed(ERROR, f"{type(run.error).__name__}: {_text(run.error)}".removesuffix(": "))
    if not run.record.exchanges:
        return _failed(ERROR, "it returned without a request that the policy answered")
    if run.result is None:
        return judge_reply(task.task, run.example, run.record.exchanges[-1].text, dialect)
    return _returned(run.result, task)


def _returned(result: object, task: AgentTask) -> Judgement:
    if not isinstance(result, Judgement):
        return _failed(ERROR, f"it returned {type(result).__name__}, expected None or a Judgement")
    if result.outcome not in task.outcomes:
        return _failed(ERROR, f"it judged {result.outcome!r}, which is not among the task's outcomes")
    try:
        return _written(result)
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        return _failed(ERROR, f"its judgement cannot be written down: {_text(error)}")


def _written(result: Judgement) -> Judgement:
    """The judgement as it will be read back from a file.

    Raises:
        TypeError, ValueError, AttributeError, RecursionError: it is no JSON data, or nested too deeply.
    """
    call = result.call
    if call is not None and not isinstance(call.name, str):
        raise TypeError("the name of its call is no text")
    plain = {"facts": dict(result.facts), "arguments": {} if call is None else dict(call.arguments)}
    told = json.loads(json.dumps(plain, allow_nan=False))
    check_tree(told)
    kept = None if call is None else ToolCall(call.name, told["arguments"])
    return Judgement(str(result.outcome), kept, told["facts"])


def _text(error: BaseException) -> str:
    """What an exception says; one that cannot even be asked says nothing."""
    try:
        return str(error)
    except Exception:
        return ""


def _failed(outcome: str, why: str) -> Judgement:
    return Judgement(outcome, None, {"why": why[:WHY_LENGTH]})
