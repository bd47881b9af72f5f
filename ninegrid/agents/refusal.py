"""What the endpoint refuses, and how it says so: as OpenAI's own server writes errors."""

from __future__ import annotations

from typing import Any


class Refusal(Exception):  # noqa: N818
    """A request that is not answered.

    Args:
        message: what is wrong, and what would be right.
        status: of the HTTP response.
        param: the part of the request that is wrong.
        code: for programs.
    """

    def __init__(
        self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.message, self.status, self.param, self.code = message, status, param, code

    def body(self) -> dict[str, Any]:
        """The error object."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def over() -> Refusal:
    """For agents that ask after their run has ended."""
    return Refusal("this run is over: it took too long, or has returned", code="run_over")


def stopped() -> Refusal:
    """For requests that are open when the trainer stops."""
    return Refusal("the trainer has stopped", status=503, code="stopped")
