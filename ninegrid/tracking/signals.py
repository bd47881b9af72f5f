"""Let a killed stage say goodbye: termination signals unwind the stack instead of cutting it off."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
"""What ends a process that does not handle it.  SIGINT needs nothing: Python raises KeyboardInterrupt."""


class Terminated(SystemExit):
    """A termination signal arrived; the process ends with the shell's code for it, 128 + number."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)


@contextmanager
def unwinding() -> Iterator[None]:
    """Within the block, a termination signal raises `Terminated` in the main thread.

    A second signal of the kind ends the process at once, as it would without us.  Handlers that
    somebody else has installed stay in force; outside the main thread nothing is changed, since
    Python allows no handlers there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        for number in ours:
            if signal.getsignal(number) is _raise:
                signal.signal(number, signal.SIG_DFL)


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)
    raise Terminated(number)
