"""What the store has not taken, in files: a folder for each run that waits for ``replay``.

A folder holds ``run.json`` (how the run is to be opened), ``requests.jsonl`` (what it still lacks, in order)
and copies of artifact files, since what they were copied from will change.  Requests are written as soon as
they wait, so that a process that is killed leaves them behind.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ninegrid.errors import DataError
from ninegrid.tracking.requests import Files, Request, as_json, from_json

if TYPE_CHECKING:
    from mlflow import MlflowClient

FOLDER = "outbox"


@dataclass(frozen=True)
class RunHead:
    """How a run is opened.

    Attributes:
        stage: its stage.
        experiment, name, tags: in MLflow.
        began: in milliseconds since 1970.
        run_id: in the store; None as long as it has not been opened there.
        ended: whether its process has said all that it had to say.
    """

    stage: str
    experiment: str
    name: str
    tags: dict[str, str]
    began: int
    run_id: str | None = None
    ended: bool = False

    def open(self, client: MlflowClient, experiment_id: str) -> RunHead:
        """Create the run in the store."""
        made = client.create_run(experiment_id, start_time=self.began, tags=self.tags, run_name=self.name)
        return replace(self, run_id=made.info.run_id)


class Outbox:
    """What one run still lacks; nothing is written before something waits.

    Args:
        state: folder of shared state.
        head: of the run.
    """

    def __init__(self, state: Path, head: RunHead) -> None:
        self.folder = state / FOLDER / f"{head.began}-{head.stage}-{os.getpid()}"
        self._head = head
        self._copies: dict[Files, Files] = {}

    def add(self, request: Request) -> None:
        """Append a request that waits."""
        if not (self.folder / "run.json").exists():
            write_head(self.folder, self._head)
        with (self.folder / "requests.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(as_json(self._own(request))) + "\n")

    def opened(self, head: RunHead) -> None:
        """The run is in the store now."""
        self._head = head
        if (self.folder / "run.json").exists():
            write_head(self.folder, head)

    def keep(self, waiting: Sequence[Request]) -> None:
        """The run has ended: hold these requests alone; none of them: the folder goes."""
        if not waiting:
            shutil.rmtree(self.folder, ignore_errors=True)
            return
        self._head = replace(self._head, ended=True)
        write_head(self.folder, self._head)
        lines = "".join(json.dumps(as_json(self._own(request))) + "\n" for request in waiting)
        draft = self.folder / "requests.part"
        draft.write_text(lines, encoding="utf-8")
        draft.replace(self.folder / "requests.jsonl")

    def _own(self, request: Request) -> Request:
        """The request with a copy of its files, made once."""
        if not isinstance(request, Files):
            return request
        if request not in self._copies:
            source = Path(request.source)
            target = self.folder / "files" / str(len(self._copies)) / source.name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True)
            else:
                shutil.copy2(source, target)
            self._copies[request] = replace(request, source=str(target))
        return self._copies[request]


def write_head(folder: Path, head: RunHead) -> None:
    """Write ``run.json``, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / "run.part"
    draft.write_text(json.dumps(asdict(head)), encoding="utf-8")
    draft.replace(folder / "run.json")


def waiting_folders(state: Path) -> list[Path]:
    """The folders of the runs that wait, oldest first."""
    return sorted(path.parent for path in (state / FOLDER).glob("*/run.json"))


def read_waiting(folder: Path) -> tuple[RunHead, list[Request]]:
    """What a folder holds.  A last line that was cut off, by whatever killed its writer, does not count.

    Raises:
        DataError: it is damaged otherwise.
    """
    try:
        head = RunHead(**json.loads((folder / "run.json").read_text(encoding="utf-8")))
        path = folder / "requests.jsonl"
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
        return head, [from_json(json.loads(line)) for line in lines]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(f"{folder} is damaged: {error!r}", hint="remove it") from error
