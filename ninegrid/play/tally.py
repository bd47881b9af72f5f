"""What people saw in play, counted by outcome and kept as episodes.

The file holds one episode a line, as ``episodes.jsonl`` of an evaluation does; the facts of each say which
player replied and under what (weights, prompt, decoding).  Replies under anything else than what is loaded
now stay in the file and are not counted.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from threading import Lock

from ninegrid.errors import DataError
from ninegrid.evaluation.episodes import Episode
from ninegrid.tasks.protocol import Task

FILE = "episodes.jsonl"


class Tally:
    """Counts the replies of each player that is loaded, those of earlier runs included.

    Args:
        path: the file; made when the first reply is added.
        task: names the outcomes.

    Attributes:
        problem: why the last reply is counted here but not in the file; empty if it is.
    """

    def __init__(self, path: Path, task: Task) -> None:
        self.path, self._task = path, task
        self._lines: dict[str, list[str]] = {}
        self._counts: dict[str, Counter[str]] = {}
        self._lock = Lock()
        self.problem = ""

    def open(self, player: str, under: str) -> None:
        """Begin to count ``player``, from what the file holds of it under the same conditions.

        Raises:
            DataError: the file cannot be read.
        """
        with self._lock:
            self._lines[player], self._counts[player] = [], Counter()
            for line in self._read():
                episode = _episode(line)
                if episode is not None and _origin(episode) == (player, under):
                    self._count(player, line, episode.outcome)

    def add(self, player: str, episode: Episode) -> None:
        """Count a reply and append it to the file, in one write; see `problem` for when that fails."""
        line = json.dumps(asdict(episode), ensure_ascii=True)
        with self._lock:
            self._count(player, line, episode.outcome)
            try:
                self._append(f"{line}\n".encode())
                self.problem = ""
            except OSError as error:
                self.problem = f"cannot write {self.path}: {error.strerror or error}"

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """Player -> outcome -> replies, with every outcome of the task."""
        with self._lock:
            return {
                player: {str(name): counted[str(name)] for name in self._task.outcomes}
                for player, counted in self._counts.items()
            }

    def export(self) -> str:
        """The counted replies, one episode a line."""
        with self._lock:
            return "".join(f"{line}\n" for lines in self._lines.values() for line in lines)

    def _count(self, player: str, line: str, outcome: str) -> None:
        self._lines[player].append(line)
        self._counts[player][outcome] += 1

    def _append(self, line: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def _read(self) -> list[str]:
        try:
            return self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"cannot read {self.path}: {error}", hint=f"move it away: {self.path}") from error


def _origin(episode: Episode) -> tuple[object, object]:
    return episode.facts.get("player"), episode.facts.get("under")


def _episode(line: str) -> Episode | None:
    """The episode of a line; None for a line that is none, such as one that was cut by a full disk."""
    try:
        return Episode(**json.loads(line))
    except (TypeError, ValueError):
        return None
