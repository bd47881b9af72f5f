"""The sessions of all tabs: one each, in a file of its own."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ninegrid.play.room import Room
from ninegrid.play.session import Session

FOLDER = "tabs"
KEPT = 200
"""Files that are kept; the oldest beyond are removed when a server starts."""


class Tabs:
    """Finds the session of a tab, also one from before the server was started.

    Args:
        room: what all tabs share.
    """

    def __init__(self, room: Room) -> None:
        self._room, self._folder = room, room.folder / FOLDER
        self._sessions: dict[str, Session] = {}
        self._prune()

    def session(self, tab: str) -> Session:
        """The session of the tab whose browser calls it ``tab``, any text."""
        if tab not in self._sessions:
            self._sessions[tab] = Session(self._room, self._path(tab))
        return self._sessions[tab]

    def _path(self, tab: str) -> Path:
        return self._folder / f"{hashlib.sha256(tab.encode()).hexdigest()[:32]}.json"

    def _prune(self) -> None:
        saved = sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in saved[KEPT:]:
            path.unlink(missing_ok=True)
