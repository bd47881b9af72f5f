"""Whether a port of this machine is free, asked before something slow is started on it."""

from __future__ import annotations

import socket

from ninegrid.errors import NinegridError

HOST = "127.0.0.1"
"""The only address at which this project's servers listen."""


def require_free(port: int, hint: str) -> None:
    """Refuse a port that a server could not have.

    Raises:
        NinegridError: with ``hint``.
    """
    with socket.socket() as probe:
        # As the servers themselves do it: a port that is merely cooling down counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError) as error:
            raise NinegridError(f"port {port} of {HOST} cannot be used: {error}", hint=hint) from error
