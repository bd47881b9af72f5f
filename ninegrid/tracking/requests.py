"""What a stage may ask of the MLflow store, as data: it can be sent now, or kept in a file and sent later."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ninegrid.tracking.names import safe_name
from ninegrid.tracking.traces import Traces

if TYPE_CHECKING:
    from mlflow import MlflowClient


@dataclass(frozen=True)
class Metrics:
    """Numbers of one moment; ``time`` in milliseconds since 1970."""

    kind: ClassVar[str] = "metrics"
    values: Mapping[str, float]
    time: int
    step: int

    def send(self, client: MlflowClient, run_id: str) -> None:
        from mlflow.entities import Metric

        found = [Metric(safe_name(k), v, self.time, self.step) for k, v in self.values.items()]
        client.log_batch(run_id, metrics=found)


@dataclass(frozen=True)
class Params:
    """Parameters under names that MLflow takes."""

    kind: ClassVar[str] = "parameters"
    values: Mapping[str, str]

    def send(self, client: MlflowClient, run_id: str) -> None:
        from mlflow.entities import Param

        client.log_batch(run_id, params=[Param(k, v) for k, v in self.values.items()])


@dataclass(frozen=True)
class Tag:
    """One tag under a name that MLflow takes."""

    kind: ClassVar[str] = "tags"
    name: str
    text: str

    def send(self, client: MlflowClient, run_id: str) -> None:
        client.set_tag(run_id, self.name, self.text)


@dataclass(frozen=True)
class Files:
    """A file, or a folder with all it holds, for ``folder`` of the run's artifacts."""

    kind: ClassVar[str] = "artifacts"
    source: str
    folder: str | None

    def send(self, client: MlflowClient, run_id: str) -> None:
        if Path(self.source).is_dir():
            client.log_artifacts(run_id, self.source, self.folder)
        else:
            client.log_artifact(run_id, self.source, self.folder)


@dataclass(frozen=True)
class Text:
    """The content of an artifact file."""

    kind: ClassVar[str] = "artifacts"
    content: str
    name: str

    def send(self, client: MlflowClient, run_id: str) -> None:
        client.log_text(run_id, self.content, self.name)


@dataclass(frozen=True)
class End:
    """The end of the run: ``FINISHED``, ``FAILED`` or ``KILLED``."""

    kind: ClassVar[str] = "its end"
    status: str
    time: int

    def send(self, client: MlflowClient, run_id: str) -> None:
        client.set_terminated(run_id, self.status, self.time)


Request = Metrics | Params | Tag | Files | Text | Traces | End
REQUESTS: dict[str, type[Request]] = {
    request.__name__: request for request in (Metrics, Params, Tag, Files, Text, Traces, End)
}


def as_json(request: Request) -> dict[str, Any]:
    """The request as a JSON object."""
    return {"request": type(request).__name__, **dataclasses.asdict(request)}


def from_json(raw: Mapping[str, Any]) -> Request:
    """The request that `as_json` wrote."""
    rest = dict(raw)
    cls = REQUESTS[rest.pop("request")]
    return cls.from_json(rest) if cls is Traces else cls(**rest)
