"""Traces: what a stage asked and was answered, as data, and how they are written into an MLflow store.

MLflow's own tracing watches a running program, through globals and a thread that exports later.  Here a trace
is a record of something that is over: it is written at once, to a named experiment and run, under an id
that follows from its run, so that writing it again changes nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Span, TraceInfo

Json = Mapping[str, Any]
FEW = 50
"""Traces of one request: a store takes these within a second or two."""
_TICK_NS = 1000


@dataclass(frozen=True)
class Step:
    """One step of what happened: a span.

    Attributes:
        name: as it is shown.
        kind: MLflow's word for it (``CHAIN``, ``CHAT_MODEL``, ``PARSER``, ``EVALUATOR``, ...).
        inputs, outputs: anything that JSON can hold.
        error: what went wrong in it, or None.
        attributes: further figures.
    """

    name: str
    kind: str
    inputs: Any
    outputs: Any
    error: str | None
    attributes: Json


@dataclass(frozen=True)
class Trace:
    """One question with its answer.

    Attributes:
        key: tells it from the other traces of its run.
        name: as it is shown.
        time: in milliseconds since 1970; lists show the latest first.
        asked, answered: question and answer in a line each.
        tags: by which it is found.
        steps: the whole first, then its parts in the order in which they happened.
    """

    key: str
    name: str
    time: int
    asked: str
    answered: str
    tags: Mapping[str, str]
    steps: Sequence[Step]


@dataclass(frozen=True)
class Traces:
    """Some traces of the run, written together; no more than `FEW`."""

    kind: ClassVar[str] = "traces"
    traces: Sequence[Trace]

    @classmethod
    def from_json(cls, raw: Json) -> Traces:
        """What ``dataclasses.asdict`` made of it, read back."""
        return cls([Trace(**{**t, "steps": [Step(**s) for s in t["steps"]]}) for t in raw["traces"]])

    def send(self, client: MlflowClient, run_id: str) -> None:
        from mlflow.exceptions import MlflowException
        from mlflow.tracing.client import TracingClient

        experiment, writer = client.get_run(run_id).info.experiment_id, TracingClient(client.tracking_uri)
        ids = [_trace_id(run_id, trace.key) for trace in self.traces]
        try:
            for trace, trace_id in zip(self.traces, ids, strict=True):
                writer.start_trace(_info(trace, trace_id, experiment, run_id))
            spans = [s for trace, i in zip(self.traces, ids, strict=True) for s in _spans(trace, i)]
            writer.log_spans(experiment, spans)
        except NotImplementedError as error:  # a store of files, or a server older than 3.4
            raise MlflowException.invalid_parameter_value(f"this store keeps no spans: {error}") from error


def _trace_id(run_id: str, key: str) -> str:
    return "tr-" + hashlib.sha256(f"{run_id} {key}".encode()).hexdigest()[:32]


def _info(trace: Trace, trace_id: str, experiment_id: str, run_id: str) -> TraceInfo:
    from mlflow.entities import TraceInfo, TraceLocation, TraceState
    from mlflow.tracing.constant import TraceMetadataKey, TraceTagKey

    return TraceInfo(
        trace_id=trace_id,
        trace_location=TraceLocation.from_experiment_id(experiment_id),
        request_time=trace.time,
        execution_duration=0,
        state=TraceState.OK if trace.steps[0].error is None else TraceState.ERROR,
        request_preview=trace.asked,
        response_preview=trace.answered,
        trace_metadata={TraceMetadataKey.SOURCE_RUN: run_id},
        tags={TraceTagKey.TRACE_NAME: trace.name, **trace.tags},
    )


def _spans(trace: Trace, trace_id: str) -> list[Span]:
    """The steps as spans a microsecond apart, which puts them in order and says nothing of their length."""
    from mlflow.entities import Span

    begin = trace.time * 1_000_000
    ends = [
        begin + _TICK_NS * len(trace.steps),
        *(begin + _TICK_NS * i for i in range(2, len(trace.steps) + 1)),
    ]
    return [
        Span.from_dict(
            {
                "trace_id": trace_id,
                "span_id": f"{i + 1:016x}",
                "parent_span_id": None if i == 0 else f"{1:016x}",
                "name": step.name,
                "start_time_unix_nano": begin + _TICK_NS * i,
                "end_time_unix_nano": end,
                "status": _status(step),
                "attributes": _attributes(step, trace_id),
            }
        )
        for i, (step, end) in enumerate(zip(trace.steps, ends, strict=True))
    ]


def _status(step: Step) -> dict[str, str]:
    if step.error is None:
        return {"code": "STATUS_CODE_OK"}
    return {"code": "STATUS_CODE_ERROR", "message": step.error}


def _attributes(step: Step, trace_id: str) -> dict[str, str]:
    from mlflow.tracing.constant import SpanAttributeKey

    values = {
        SpanAttributeKey.REQUEST_ID: trace_id,
        SpanAttributeKey.SPAN_TYPE: step.kind,
        SpanAttributeKey.INPUTS: step.inputs,
        SpanAttributeKey.OUTPUTS: step.outputs,
        **step.attributes,
    }
    return {name: _as_json(value) for name, value in values.items()}


def _as_json(value: object) -> str:
    """JSON that every store takes: half of a surrogate pair, which a model's JSON may hold, becomes "?"."""
    return json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "replace").decode("utf-8")
