"""Opening the MLflow store: made once even if several stages come first at the same moment.

All of MLflow is imported inside functions: the import alone takes a second or two.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ninegrid.tracking.provenance import process_is_gone
from ninegrid.tracking.settings import is_database, sqlite_file

if TYPE_CHECKING:
    from mlflow import MlflowClient

_LOCK_TIMEOUT_S = 120.0
_SQLITE_TIMEOUT_S = 5.0

_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # Our own warning says what failed; MLflow would print a traceback beside it.
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",
    # By default an unreachable server holds a stage up for minutes.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}
"""MLflow's defaults for us; what the user has set wins."""


def failures() -> tuple[type[Exception], ...]:
    """The exceptions by which MLflow and its drivers say that a store did not do what it was asked."""
    from alembic.util import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    return MlflowException, SQLAlchemyError, CommandError, sqlite3.Error, OSError


def is_rejection(error: Exception) -> bool:
    """Whether the store is well, and refused this one request for what it holds."""
    return getattr(error, "error_code", None) == "INVALID_PARAMETER_VALUE"


def set_environment() -> None:
    """Give MLflow our defaults; needs to be called before it is first imported."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def open_store(uri: str, experiment: str, state: Path) -> tuple[MlflowClient, str]:
    """A client of the store at ``uri`` and the id of ``experiment``, both made if need be.

    Runs that died without a word (SIGKILL, power cut) are set KILLED on the way.

    Args:
        uri: as given by `store_uri`.
        experiment: its name.
        state: folder of shared state; holds the artifacts of stores that are plain databases.

    Raises:
        One of `failures`.
    """
    set_environment()
    from mlflow import MlflowClient

    with _alone(uri, state):
        client = MlflowClient(uri)
        experiment_id = _experiment(client, experiment, artifact_root(uri, state))
    _close_dead_runs(client, experiment_id)
    return client, experiment_id


def artifact_root(uri: str, state: Path) -> str | None:
    """Where artifacts go; None leaves it to the MLflow server."""
    return (state / "mlartifacts").as_uri() if is_database(uri) else None


@contextmanager
def _alone(uri: str, state: Path) -> Iterator[None]:
    """Keep other processes of this machine from making the same database's tables meanwhile."""
    if not is_database(uri):
        yield
        return
    from filelock import FileLock

    state.mkdir(parents=True, exist_ok=True)
    with FileLock(state / "mlflow.lock", timeout=_LOCK_TIMEOUT_S):
        file = sqlite_file(uri)
        if file is not None:
            _check_sqlite(file)
            _follow_move(file, state)
        yield


def _check_sqlite(file: Path) -> None:
    """Fail at once where MLflow would try again and again for over a minute."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(file, timeout=_SQLITE_TIMEOUT_S)) as database:
        database.execute("BEGIN IMMEDIATE")
        database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        database.rollback()


def _follow_move(file: Path, state: Path) -> None:
    """After the checkout was moved or copied, make the store's artifacts lie where they do now.

    MLflow keeps absolute addresses, and would go on writing into the old folder.
    """
    if file.parent != state:
        return
    here = (state / "mlartifacts").as_uri()
    with closing(sqlite3.connect(file, timeout=_SQLITE_TIMEOUT_S)) as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'experiments'").fetchone():
            return
        old = database.execute(
            "SELECT DISTINCT artifact_location FROM experiments"
            " WHERE artifact_location LIKE 'file:%/mlartifacts' AND artifact_location != ?",
            (here,),
        ).fetchall()
        for (there,) in old:
            database.execute(
                "UPDATE experiments SET artifact_location = ?1 WHERE artifact_location = ?2", (here, there)
            )
            database.execute(
                "UPDATE runs SET artifact_uri = ?1 || substr(artifact_uri, length(?2) + 1)"
                " WHERE substr(artifact_uri, 1, length(?2) + 1) = ?2 || '/'",
                (here, there),
            )
        database.commit()


def _experiment(client: MlflowClient, name: str, artifacts: str | None) -> str:
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return client.create_experiment(name, artifact_location=artifacts)
        except MlflowException as error:
            # A process of another machine, which the lock does not reach, may have been faster.
            found = client.get_experiment_by_name(name)
            if found is None:
                raise error
    return found.experiment_id


def _close_dead_runs(client: MlflowClient, experiment_id: str) -> None:
    for run in client.search_runs([experiment_id], filter_string="attributes.status = 'RUNNING'"):
        if process_is_gone(run.data.tags):
            client.set_tag(run.info.run_id, "ninegrid.end", "its process was gone; found by a later run")
            client.set_terminated(run.info.run_id, "KILLED")
