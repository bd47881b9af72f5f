"""How the replies of a model are written: the dialect of their tool calls, and where their thoughts begin.

A dialect is found by trying a chat template out (`ninegrid.chat.template`), never by a model's name.  Not
here: the reading itself (`ninegrid.chat.parser`).  Imports nothing heavy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OPEN = "<tool_call>"
CLOSE = "</tool_call>"
"""Around a call, in both dialects."""

THINKING = ("<think>", "</think>")
"""Around what a reasoning model thinks, in every template that this project has met."""

CallStyle = Literal["hermes", "xml"]
"""``hermes`` holds JSON, ``{"name": ..., "arguments": {...}}``; ``xml`` the name, then a pair of
``<arg_key>`` and ``<arg_value>`` for each argument, as GLM 4.5 and Ling 3 write it."""


@dataclass(frozen=True)
class Dialect:
    """How replies are written.

    Attributes:
        calls: what stands between `OPEN` and `CLOSE`.
        in_thought: the prompt ends with an opened thought, so a reply begins within it.
    """

    calls: CallStyle = "hermes"
    in_thought: bool = False


HERMES = Dialect()
