"""Fills the store's gaps from the outbox, once the store answers again."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ninegrid.errors import DataError, NinegridError
from ninegrid.tracking.outbox import FOLDER, RunHead, read_waiting, waiting_folders, write_head
from ninegrid.tracking.provenance import process_is_gone
from ninegrid.tracking.requests import End, Files, Metrics, Request
from ninegrid.tracking.settings import TrackingSettings, store_uri, without_password
from ninegrid.tracking.store import failures, is_rejection, open_store, set_environment

if TYPE_CHECKING:
    from mlflow import MlflowClient


def replay(settings: TrackingSettings, state: Path) -> list[str]:
    """Send what waits to the store that the settings name; returns a line for each run.

    Raises:
        NinegridError: the store does not answer; what was not sent goes on waiting.
    """
    from filelock import FileLock

    set_environment()
    uri = store_uri(settings, state)
    folders = waiting_folders(state)
    if not folders:
        return []
    with FileLock(state / FOLDER / "lock"):
        return [_replay_run(uri, state, folder) for folder in folders if folder.exists()]


def _replay_run(uri: str, state: Path, folder: Path) -> str:
    try:
        head, requests = read_waiting(folder)
    except DataError as error:
        return str(error)
    if not head.ended and not process_is_gone(head.tags):
        return f"{head.name}: still running, or run on another host; left alone"
    there = [r for r in requests if not isinstance(r, Files) or Path(r.source).exists()]
    sent = there if head.ended else [*there, End("KILLED", _last_moment(head, there))]
    try:
        refused = _fill(uri, state, folder, head, sent)
    except failures() as error:
        raise NinegridError(
            f"MLflow at {without_password(uri)} does not take {head.name}: {error}",
            hint="start it, then run again: python -m ninegrid.tracking replay",
        ) from error
    shutil.rmtree(folder)
    lost = len(requests) - len(there)
    gone = f", {lost} whose files are gone left out" if lost else ""
    return f"{head.name}: {len(sent) - refused} requests sent, {refused} refused{gone}"


def _last_moment(head: RunHead, requests: Sequence[Request]) -> int:
    """When a killed run was last heard of, in milliseconds since 1970."""
    return max([head.began, *(r.time for r in requests if isinstance(r, Metrics))])


def _fill(uri: str, state: Path, folder: Path, head: RunHead, requests: Sequence[Request]) -> int:
    """Send the requests to the run, opened anew if the store lacks it; returns how many were refused."""
    client, experiment_id = open_store(uri, head.experiment, state)
    if head.run_id is None or not _has(client, head.run_id):
        head = head.open(client, experiment_id)
        write_head(folder, head)  # if the store goes down on the way, the next replay goes on with this run
    assert head.run_id is not None
    refused = 0
    for request in requests:
        try:
            request.send(client, head.run_id)
        except failures() as error:
            if not is_rejection(error):
                raise
            refused += 1
    return refused


def _has(client: MlflowClient, run_id: str) -> bool:
    from mlflow.exceptions import MlflowException

    try:
        client.get_run(run_id)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return False
        raise
    return True
