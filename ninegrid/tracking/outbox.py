"""What the store has not taken, in files: a folder for each run that waits for ``replay``.

A folder holds ``run.json`` (how the run is to be opened), ``requests.jsonl`` (what it still lacks, in order)
and copies of artifact files, since what they were copied from will change.  Requests are written as soon as
they wait, so that a process that is killed leaves them behind.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

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

    def add(self, request: Request) -> None:
        """Append a request that waits."""
        self._write_head()
        with (self.folder / "requests.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(as_json(request)) + "\n")

    def opened(self, head: RunHead) -> None:
        """The run is in the store now."""
        self._head = head
        if self.folder.exists():
            self._write_head()

    def keep(self, waiting: Sequence[Request]) -> None:
        """The run has ended: hold these requests alone, with their files; none of them: the folder goes."""
        if not waiting:
            shutil.rmtree(self.folder, ignore_errors=True)
            return
        self._head = replace(self._head, ended=True)
        self._write_head()
        kept = [self._with_copy(i, r) if isinstance(r, Files) else r for i, r in enumerate(waiting)]
        lines = "".join(json.dumps(as_json(request)) + "\n" for request in kept)
        draft = self.folder / "requests.part"
        draft.write_text(lines, encoding="utf-8")
        draft.replace(self.folder / "requests.jsonl")

    def _write_head(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = self.folder / "run.part"
        draft.write_text(json.dumps(asdict(self._head)), encoding="utf-8")
        draft.replace(self.folder / "run.json")

    def _with_copy(self, number: int, request: Files) -> Files:
        source = Path(request.source)
        target = self.folder / "files" / str(number) / source.name
        if source == target:
            return request
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copy2(source, target)
        return replace(request, source=str(target))


def waiting_runs(state: Path) -> Iterator[tuple[Path, RunHead, list[Request]]]:
    """Folder, head and requests of each run that waits, oldest first."""
    for path in sorted((state / FOLDER).glob("*/run.json")):
        head = RunHead(**json.loads(path.read_text(encoding="utf-8")))
        requests = path.parent / "requests.jsonl"
        lines = requests.read_text(encoding="utf-8").splitlines() if requests.exists() else []
        yield path.parent, head, [from_json(json.loads(line)) for line in lines]
