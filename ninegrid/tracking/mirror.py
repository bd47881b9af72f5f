"""The queue between a stage and the MLflow store: what the store cannot take waits, the stage does not.

It knows nothing of what is mirrored, only that each request may fail because of the store.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from ninegrid.tracking.outbox import Outbox, RunHead
from ninegrid.tracking.requests import End, Request
from ninegrid.tracking.settings import without_password
from ninegrid.tracking.store import failures, is_rejection

if TYPE_CHECKING:
    from mlflow import MlflowClient

REPLAY = "python -m ninegrid.tracking replay"


class Mirror:
    """One run in the store, opened by the first request.

    A request is carried out at once while requests of its kind succeed.  From the first failure on
    they are kept, since a store that is down would hold up every step, and are offered once more
    when the run ends; what the store does not take then stays in the outbox.  Kinds fail apart: a full
    artifact disk keeps no metric back.  A request that a healthy store refuses for its content is dropped
    with a warning.
    """

    def __init__(
        self, uri: str, head: RunHead, outbox: Outbox, connect: Callable[[], tuple[MlflowClient, str]]
    ) -> None:
        """``connect`` gives a client and the id of the experiment; it raises one of `failures`."""
        self._where, self._head, self._outbox, self._connect = without_password(uri), head, outbox, connect
        self._client: MlflowClient | None = None
        self._waiting: list[Request] = []
        self._failing: set[str] = set()
        self._refused: set[str] = set()
        self._warned = self._lost = False

    def send(self, request: Request) -> None:
        """Carry out ``request``, or keep it."""
        if not self._done(request):
            self._waiting.append(request)
            self._stow(lambda: self._outbox.add(request))

    def close(self, status: str) -> None:
        """End the run as ``FINISHED``, ``FAILED`` or ``KILLED``; warn of what could not be mirrored."""
        # A process that is told to go has no time to wait for a store that did not answer before.
        if status != "KILLED":
            self._failing.clear()
        kept, self._waiting = self._waiting, []
        left = [r for r in [*kept, End(status, time.time_ns() // 1_000_000)] if not self._done(r)]
        stowed = self._stow(lambda: self._outbox.keep(left))
        if left:
            counts = Counter(request.kind for request in left)
            missing = ", ".join(f"{kind} ({n})" if n > 1 else kind for kind, n in counts.items())
            further = f"Once it answers again: {REPLAY}" if stowed else "The stage's own files hold it."
            self._warn(f"not mirrored to MLflow at {self._where}: {missing}. {further}")
        elif kept:
            self._warn(f"MLflow at {self._where} answers again, everything is mirrored.")

    def _done(self, request: Request) -> bool:
        """Carry out ``request``; False if it has to wait, because the store fails."""
        if request.kind in self._failing or (self._client is None and self._failing):
            return False
        try:
            if self._client is None:
                self._client = self._opened()
            assert self._head.run_id is not None
            request.send(self._client, self._head.run_id)
        except failures() as error:
            if self._client is not None and is_rejection(error):
                self._drop(request.kind, error)
                return True
            self._went_down(request.kind, error)
            return False
        return True

    def _stow(self, write: Callable[[], object]) -> bool:
        """Write to the outbox; a disk that does not take it stops no stage."""
        try:
            write()
        except OSError as error:
            if not self._lost:
                self._warn(f"what MLflow does not take cannot be kept either ({_reason(error)})")
            self._lost = True
        return not self._lost

    def _opened(self) -> MlflowClient:
        client, experiment_id = self._connect()
        self._head = self._head.open(client, experiment_id)
        self._stow(lambda: self._outbox.opened(self._head))
        return client

    def _went_down(self, kind: str, error: Exception) -> None:
        self._failing.add(kind)
        if not self._warned:
            self._warned = True
            failed = "cannot be opened" if self._client is None else f"did not take {kind}"
            self._warn(
                f"MLflow at {self._where} {failed} ({_reason(error)}). The stage goes on; "
                "what is not mirrored now is offered once more at its end."
            )

    def _drop(self, kind: str, error: Exception) -> None:
        if kind not in self._refused:
            self._refused.add(kind)
            self._warn(f"MLflow refused {kind} ({_reason(error)}); left out.")

    def _warn(self, message: str) -> None:
        print(f"warning: {self._head.stage}: {message}", file=sys.stderr, flush=True)


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
