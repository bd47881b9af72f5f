"""Fills the store's gaps from the outbox, once the store answers again."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ninegrid.errors import NinegridError
from ninegrid.tracking.outbox import RunHead, waiting_runs
from ninegrid.tracking.provenance import process_is_gone
from ninegrid.tracking.requests import End, Request
from ninegrid.tracking.settings import TrackingSettings, store_uri, without_password
from ninegrid.tracking.store import failures, is_rejection, open_store, set_environment

if TYPE_CHECKING:
    from mlflow import MlflowClient


def replay(settings: TrackingSettings, state: Path) -> list[str]:
    """Send what waits to the store that the settings name; returns a line for each run.

    Raises:
        NinegridError: the store does not answer; what was not sent goes on waiting.
    """
    set_environment()
    uri = store_uri(settings, state)
    told = []
    for folder, head, requests in waiting_runs(state):
        if not head.ended and not process_is_gone(head.tags):
            told.append(f"{head.name}: still running, or run on another host; left alone")
            continue
        if not head.ended:
            requests = [*requests, End("KILLED", time.time_ns() // 1_000_000)]
        try:
            refused = _fill(uri, state, head, requests)
        except failures() as error:
            raise NinegridError(
                f"MLflow at {without_password(uri)} does not take {head.name}: {error}",
                hint="start it, then run again: python -m ninegrid.tracking replay",
            ) from error
        shutil.rmtree(folder)
        told.append(f"{head.name}: {len(requests) - refused} requests sent, {refused} refused")
    return told


def _fill(uri: str, state: Path, head: RunHead, requests: Sequence[Request]) -> int:
    """Send the requests to the run, opened anew if the store lacks it; returns how many were refused."""
    client, experiment_id = open_store(uri, head.experiment, state)
    if head.run_id is None or not _has(client, head.run_id):
        head = head.open(client, experiment_id)
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
