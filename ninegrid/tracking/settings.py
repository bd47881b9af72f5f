"""The ``tracking`` section of the settings, and the address of the store that follows from it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from ninegrid.config import require
from ninegrid.project import store_root

SQLITE = "sqlite:///"


@dataclass(frozen=True)
class TrackingSettings:
    """How stages are mirrored to MLflow.

    Attributes:
        enabled: False: nothing is mirrored and MLflow is not even imported.
        uri: address of the store.  None: ``$MLFLOW_TRACKING_URI`` if that is set, else an SQLite
            file among the project's shared state.  Relative SQLite files and folders lie in the
            project, wherever the stage was started.
        experiment: name of the MLflow experiment that collects the runs.
        artifacts: whether files (report, prompt, episodes, full parameters) are copied too.
        traces: how many replies of an evaluation are shown as traces, of the sampled and of the greedy
            ones each; 0 for none.
    """

    enabled: bool = True
    uri: str | None = None
    experiment: str = "ninegrid"
    artifacts: bool = True
    traces: int = 24

    def __post_init__(self) -> None:
        require(bool(self.experiment.strip()), "experiment", self.experiment, "a name that is not empty")
        require(self.uri is None or bool(self.uri.strip()), "uri", self.uri, "an address, or null")
        require(self.traces >= 0, "traces", self.traces, "0 or more")


def store_uri(settings: TrackingSettings, state: Path) -> str:
    """The address that MLflow is given; ``state`` is the folder of shared state."""
    uri = settings.uri or os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        return f"{SQLITE}{state / 'mlflow.db'}"
    if uri.startswith(SQLITE):
        return f"{SQLITE}{store_root() / uri.removeprefix(SQLITE)}"
    if re.match(r"[A-Za-z][\w+.-]*:", uri):
        return uri
    return str(store_root() / uri)


def sqlite_file(uri: str) -> Path | None:
    """The file of an SQLite store, or None for any other kind."""
    return Path(uri.removeprefix(SQLITE)) if uri.startswith(SQLITE) else None


def is_database(uri: str) -> bool:
    """Whether this process writes to the database itself, with no MLflow server in between."""
    return uri.partition(":")[0].partition("+")[0] in ("sqlite", "postgresql", "mysql", "mssql")


def without_password(uri: str) -> str:
    """``uri`` as it may be shown."""
    return re.sub(r"//[^/@]*@", "//***@", uri)
