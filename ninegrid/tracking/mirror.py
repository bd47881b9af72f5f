"""The queue between a stage and the MLflow store: what the store cannot take waits, the stage does not.

It knows nothing of what is mirrored, only that each request may fail because of the store.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from ninegrid.tracking.settings import without_password
from ninegrid.tracking.store import failures, is_rejection

if TYPE_CHECKING:
    from mlflow import MlflowClient

Request = Callable[["MlflowClient", str], object]
"""Something to be done with a client and the id of the run."""


class Mirror:
    """One run in the store, opened by the first request.

    A request is carried out at once while requests of its kind succeed.  From the first failure on
    they are kept, since a store that is down would hold up every step, and are offered once more
    when the run ends.  Kinds fail apart: a full artifact disk keeps no metric back.  A request that
    a healthy store refuses for its content is dropped with a warning.
    """

    def __init__(self, stage: str, uri: str, begin: Callable[[], tuple[MlflowClient, str]]) -> None:
        """``begin`` opens the store and creates the run; it raises one of `failures`."""
        self._stage, self._where, self._begin = stage, without_password(uri), begin
        self._run: tuple[MlflowClient, str] | None = None
        self._waiting: list[tuple[str, Request]] = []
        self._failing: set[str] = set()
        self._refused: set[str] = set()
        self._warned = False

    def send(self, kind: str, request: Request) -> None:
        """Carry out ``request``, or keep it; ``kind`` names it in warnings."""
        if not self._done(kind, request):
            self._waiting.append((kind, request))

    def close(self, status: str) -> None:
        """End the run as ``FINISHED``, ``FAILED`` or ``KILLED``; warn of what could not be mirrored."""
        # A process that is told to go has no time to wait for a store that did not answer before.
        if status != "KILLED":
            self._failing.clear()
        kept, self._waiting = self._waiting, []
        for kind, request in kept:
            self.send(kind, request)
        self.send("its end", lambda client, run_id: client.set_terminated(run_id, status))
        if self._waiting:
            counts = Counter(kind for kind, _ in self._waiting)
            missing = ", ".join(f"{kind} ({n})" if n > 1 else kind for kind, n in counts.items())
            self._warn(f"not mirrored to MLflow at {self._where}: {missing}. The stage's own files hold it.")
        elif kept:
            self._warn(f"MLflow at {self._where} answers again, everything is mirrored.")

    def _done(self, kind: str, request: Request) -> bool:
        """Carry out ``request``; False if it has to wait, because the store fails."""
        if kind in self._failing or (self._run is None and self._failing):
            return False
        try:
            if self._run is None:
                self._run = self._begin()
            request(*self._run)
        except failures() as error:
            if self._run is not None and is_rejection(error):
                self._drop(kind, error)
                return True
            self._went_down(kind, error)
            return False
        return True

    def _went_down(self, kind: str, error: Exception) -> None:
        self._failing.add(kind)
        if not self._warned:
            self._warned = True
            failed = "cannot be opened" if self._run is None else f"did not take {kind}"
            self._warn(
                f"MLflow at {self._where} {failed} ({_reason(error)}). The stage goes on; "
                "what is not mirrored now is offered once more at its end."
            )

    def _drop(self, kind: str, error: Exception) -> None:
        if kind not in self._refused:
            self._refused.add(kind)
            self._warn(f"MLflow refused {kind} ({_reason(error)}); left out.")

    def _warn(self, message: str) -> None:
        print(f"warning: {self._stage}: {message}", file=sys.stderr, flush=True)


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
