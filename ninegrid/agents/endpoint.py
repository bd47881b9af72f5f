"""The OpenAI-compatible address at which agent functions reach the policy.

It listens on this machine's loopback address only, while a batch of runs is under way, and knows each run by
its random key.  It checks requests and hands them to the trainer's thread through a queue; what the policy
answers is decided there.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from ninegrid.agents.answer import stream_of
from ninegrid.agents.refusal import Refusal, over
from ninegrid.agents.run import AgentRun
from ninegrid.agents.task import MODEL
from ninegrid.agents.wire import Asked, read_request
from ninegrid.ports import HOST
from ninegrid.tasks.protocol import Json

LARGEST = 2**20
"""Bytes of a request's body."""

BACKLOG = 1024
"""Connections that may wait to be taken: all agents of a batch come at once."""


class Pending:
    """A request that waits for the trainer's thread."""

    def __init__(self, run: AgentRun, asked: Asked) -> None:
        self.run, self.asked = run, asked
        self.arrived = time.monotonic()
        self._loop = asyncio.get_running_loop()
        self.answered: asyncio.Future[Json] = self._loop.create_future()

    def answer(self, outcome: Json | Refusal) -> None:
        """Answer or refuse it; called from the trainer's thread."""
        with suppress(RuntimeError):  # the server has ended: nobody listens
            self._loop.call_soon_threadsafe(self._set, outcome)

    def _set(self, outcome: Json | Refusal) -> None:
        if self.answered.done():
            return
        if isinstance(outcome, Refusal):
            self.answered.set_exception(outcome)
        else:
            self.answered.set_result(outcome)


Event = Pending | AgentRun
"""What the trainer's thread hears of: a request, or a run that has ended."""


class Endpoint:
    """The address, for the runs of one batch.

    Args:
        runs: who may ask.
        temperature: at which the policy is sampled.

    Attributes:
        events: what has happened, in order.
        address: base URL for clients, once it is open.
    """

    def __init__(self, runs: Sequence[AgentRun], temperature: float) -> None:
        self._runs: Mapping[str, AgentRun] = {run.key: run for run in runs}
        self._temperature = temperature
        self.events: SimpleQueue[Event] = SimpleQueue()
        self.address = ""

    @contextmanager
    def open(self) -> Iterator[None]:
        """Answer from here to the end of the block."""
        with socket.create_server((HOST, 0), backlog=BACKLOG) as listening:
            self.address = f"http://{HOST}:{listening.getsockname()[1]}/v1"
            config = uvicorn.Config(
                self._app(),
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=1,
                backlog=BACKLOG,
            )
            server = uvicorn.Server(config)
            thread = threading.Thread(
                target=server.run, args=([listening],), name="agents-endpoint", daemon=True
            )
            thread.start()
            try:
                yield
            finally:
                server.should_exit = True
                thread.join()

    def _app(self) -> FastAPI:
        app = FastAPI(openapi_url=None)
        app.add_api_route("/v1/chat/completions", self._complete, methods=["POST"])
        app.add_api_route("/v1/models", self._models, methods=["GET"])
        app.add_exception_handler(Refusal, _refused)
        app.add_exception_handler(HTTPException, _no_such_route)
        app.add_exception_handler(Exception, _broken)
        return app

    async def _models(self, request: Request) -> Response:
        self._run_of(request)
        model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "ninegrid"}
        return _json({"object": "list", "data": [model]})

    async def _complete(self, request: Request) -> Response:
        run = self._run_of(request)
        try:
            asked = read_request(await _body(request), self._temperature)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is there to read it
        if run.over:
            raise over()
        pending = Pending(run, asked)
        self.events.put(pending)
        answer = await pending.answered
        if asked.stream:
            return StreamingResponse(stream_of(answer, usage=asked.usage), media_type="text/event-stream")
        return _json(answer)

    def _run_of(self, request: Request) -> AgentRun:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        run = self._runs.get(key.strip()) if scheme.lower() == "bearer" else None
        if run is None:
            raise Refusal(
                "no run has this API key: use the client that the agent function is given",
                status=401,
                code="invalid_api_key",
            )
        return run


async def _body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LARGEST:
            raise Refusal(f"the body is larger than {LARGEST} bytes", status=413, code="too_large")
    return body


async def _refused(request: Request, refusal: Exception) -> Response:
    assert isinstance(refusal, Refusal)
    return _json(refusal.body(), refusal.status)


async def _no_such_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    what = f"{request.method} {request.url.path[:80]}: {error.detail}"
    refusal = Refusal(
        f"{what}; there are POST /v1/chat/completions and GET /v1/models", status=error.status_code
    )
    return _json(refusal.body(), refusal.status)


async def _broken(request: Request, error: Exception) -> Response:
    return _json(Refusal(f"{type(error).__name__}: {str(error)[:200]}", status=500).body(), 500)


def _json(body: Any, status: int = 200) -> Response:
    # In ASCII: an error may quote text that UTF-8 cannot hold.
    return Response(json.dumps(body), status, media_type="application/json")


def new_identity() -> str:
    """A name for a response."""
    return f"chatcmpl-{secrets.token_hex(8)}"
