"""From a reply to a judgement: the four outcomes that tool schemas alone decide, then the task's own.

What an argument is, the tool's JSON schema decides, read strictly: ``5.0``, ``true`` and ``"5"`` are no
integers.  Rewards are not known here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jsonschema
from jsonschema.protocols import Validator
from referencing import Registry

from ninegrid.chat.dialect import HERMES, OPEN, Dialect
from ninegrid.chat.parser import ParsedReply, parse_reply
from ninegrid.errors import NinegridError
from ninegrid.tasks.protocol import CallOutcome, Example, Judgement, Task, ToolCall

WHY_LENGTH = 160
"""Characters of ``facts["why"]`` that are kept: a validation message quotes the offending value whole."""


def judge_reply(task: Task, example: Example, reply: str, dialect: Dialect = HERMES) -> Judgement:
    """Judge the raw text of one reply, written in ``dialect``; never raises because of the reply.

    Returns:
        The judgement, with ``call`` set wherever exactly one well-formed call was made.  For the outcomes of
        `CallOutcome` the facts hold ``why``, a short reason.

    Raises:
        NinegridError: a tool of the task has a schema that is not a JSON schema.
        Exception: whatever ``task.judge`` raises; a task's bug is never an outcome.
    """
    call = read_call(task, reply, dialect)
    return call if isinstance(call, Judgement) else _judged(task, example, call)


def judge_call(task: Task, example: Example, call: ToolCall) -> Judgement:
    """Judge one well-formed call, as `judge_reply` does; see there for what it returns and raises."""
    return _unacceptable(call, validators(task)) or _judged(task, example, call)


def read_call(task: Task, reply: str, dialect: Dialect = HERMES) -> ToolCall | Judgement:
    """The one acceptable call that the raw text of a reply holds, or why there is none.

    Returns:
        A call that satisfies the schema of one of the task's tools, or a judgement as `judge_reply` gives it,
        whose outcome is one of `CallOutcome`.

    Raises:
        NinegridError: a tool of the task has a schema that is not a JSON schema.
    """
    parsed = parse_reply(reply, dialect, task.tools)
    failure = _unreadable(parsed)
    if failure is not None:
        return failure
    return _unacceptable(parsed.calls[0], validators(task)) or parsed.calls[0]


def check_outcome(task: Task, judgement: Judgement) -> Judgement:
    """The same judgement.

    Raises:
        ValueError: its outcome is none of the task's, which is a bug of the task.
    """
    if judgement.outcome not in task.outcomes:
        raise ValueError(f"task {task.name} judged {judgement.outcome!r}, which is not among its outcomes")
    return judgement


def _judged(task: Task, example: Example, call: ToolCall) -> Judgement:
    return replace(check_outcome(task, task.judge(example, call)), call=call)


def validators(task: Task) -> Mapping[str, Validator]:
    """Tool name -> strict validator of its arguments; compiled once for equal tools."""
    return _compile(json.dumps(list(task.tools)))


def _unreadable(parsed: ParsedReply) -> Judgement | None:
    if parsed.blocks == 0 and parsed.cut_in_thought:
        return _failure(CallOutcome.NO_TOOL_CALL, "the reply ends within its thought")
    if parsed.blocks == 0:
        return _failure(CallOutcome.NO_TOOL_CALL, f"the reply opens no {OPEN}")
    if parsed.blocks > 1:
        return _failure(CallOutcome.MULTIPLE_CALLS, f"{parsed.blocks} tool calls opened, one asked for")
    if parsed.malformed:
        return _failure(CallOutcome.INVALID_ARGUMENTS, parsed.malformed[0])
    return None


def _unacceptable(call: ToolCall, known: Mapping[str, Validator]) -> Judgement | None:
    if call.name not in known:
        return _failure(CallOutcome.WRONG_TOOL, f"no tool {call.name!r} was offered", call)
    why = _violation(known[call.name], call.arguments)
    return None if why is None else _failure(CallOutcome.INVALID_ARGUMENTS, why, call)


def _violation(validator: Validator, arguments: Mapping[str, Any]) -> str | None:
    """What the arguments break in the schema, or None."""
    error = jsonschema.exceptions.best_match(validator.iter_errors(arguments))
    return None if error is None else f"{error.json_path}: {error.message}"


def _failure(outcome: CallOutcome, why: str, call: ToolCall | None = None) -> Judgement:
    short = why if len(why) <= WHY_LENGTH else why[: WHY_LENGTH - 1] + "…"
    return Judgement(outcome.value, call, {"why": short})


@lru_cache(maxsize=16)
def _compile(tools: str) -> Mapping[str, Validator]:
    functions = [tool["function"] for tool in json.loads(tools)]
    return {function["name"]: _validator(function) for function in functions}


def _validator(function: Mapping[str, Any]) -> Validator:
    schema = function.get("parameters", {})
    try:
        _STRICT.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise NinegridError(
            f"the parameters of tool {function['name']!r} are not a JSON schema: "
            f"{error.json_path}: {error.message}",
            hint="correct `tools` of the task named by task._target_",
        ) from error
    # An empty registry: a $ref to elsewhere is an error of the task, never a download.
    return _STRICT(schema, registry=Registry())


def _is_integer(_: Any, value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_STRICT = jsonschema.validators.extend(  # type: ignore[no-untyped-call]  # absent from the stubs
    jsonschema.Draft202012Validator,
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer),
)
