"""One run of an agent function: its thread, its client, its clock, and what became of it.

A thread cannot be ended from outside.  A run that takes too long is over all the same: its task is cancelled,
its requests are refused, and a thread that does not notice stays behind until the process ends.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import openai

from ninegrid.agents.record import Record
from ninegrid.agents.task import AgentExample, AgentFunction
from ninegrid.policy.conversation import Draws
from ninegrid.tasks.protocol import Example


class AgentRun:
    """A run, seen from the trainer's thread; only what is said so is touched by others.

    Args:
        slot: its place among the runs of a batch.
        function: the agent.
        example: what it is about.
        given: the same as the agent is given it, and may change it.
        draws: decide what is sampled for it.
        record: of its conversation.

    Attributes:
        key: by which its requests are known; random.
        late: it took too long.
        error: what the function raised, None if nothing.
        result: what it returned.
    """

    def __init__(
        self,
        slot: int,
        function: AgentFunction,
        example: Example,
        given: AgentExample,
        draws: Draws,
        record: Record,
    ) -> None:
        self.slot, self.example, self.draws, self.record = slot, example, draws, record
        self._given = given
        self.key = f"sk-{secrets.token_urlsafe(24)}"
        self.late = False
        self.error: BaseException | None = None
        self.result: Any = None
        self._function = function
        self._ended = False
        self._spent = 0.0
        self._since: float | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def over(self) -> bool:
        """Nothing is asked any more, or listened to."""
        return self._ended or self.late

    def start(self, address: str, ended: Callable[[AgentRun], None]) -> None:
        """Start the function; ``ended`` is called from its thread when it has returned or raised."""
        self.resume()
        name = f"agent-{self.example.id}-{self.slot}"
        threading.Thread(target=self._live, args=(address, ended), name=name, daemon=True).start()

    def pause(self, at: float) -> None:
        """Stop its clock as of the monotonic time ``at``: it waits for the policy."""
        if self._since is not None:
            self._spent += max(0.0, at - self._since)
            self._since = None

    def resume(self) -> None:
        """Let its clock go on."""
        if self._since is None:
            self._since = time.monotonic()

    def left(self, timeout: float, now: float) -> float:
        """Seconds that it has left; endless while its clock stands."""
        return float("inf") if self._since is None else timeout - self._spent - (now - self._since)

    def expire(self) -> None:
        """It took too long, or nobody wants it any more."""
        self.late = True
        loop, task = self._loop, self._task
        if loop is not None and task is not None and not self._ended:
            with suppress(RuntimeError):  # the loop was closed in the meantime
                loop.call_soon_threadsafe(task.cancel)

    def _live(self, address: str, ended: Callable[[AgentRun], None]) -> None:
        def end(result: Any = None, error: BaseException | None = None) -> None:
            if not self._ended:
                self.result, self.error, self._ended = result, error, True
                ended(self)

        async def main() -> None:
            asyncio.get_running_loop().set_default_executor(_DaemonThreads())
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
            # Told before the loop is closed, which waits for what the function has left running in threads.
            # Even a call to exit is the function's failure, not the trainer's end.
            try:
                end(await self._ask(address))
            except BaseException as error:
                end(error=error)

        try:
            asyncio.run(main())
        except BaseException as error:  # the function has broken its own loop
            end(error=error)

    async def _ask(self, address: str) -> Any:
        # No certificates are read for an address of this machine: that takes longer than a request.
        http = openai.DefaultAsyncHttpxClient(verify=False, trust_env=False)
        async with openai.AsyncOpenAI(
            base_url=address, api_key=self.key, http_client=http, timeout=None
        ) as client:
            return await self._function(client, self._given)


class _DaemonThreads(ThreadPoolExecutor):
    """Where an agent's loop runs blocking calls: in threads that the end of the process does not wait for."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """See `Executor.submit`; every call has a thread of its own."""
        future: Future[Any] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function(*arguments, **named))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=work, name="agent-call", daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for nobody."""
