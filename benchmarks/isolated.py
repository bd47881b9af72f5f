"""A piece of a benchmark in a process of its own: its answer as JSON, and its peak of resident memory.

The peak is ``ru_maxrss`` of the piece's process, so it includes the interpreter and all that was imported.
A process begins with the peak of the one that started it; so whatever starts pieces must stay small, which
is why only ``benchmarks.pieces`` imports torch.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.subject import Subject
from ninegrid.errors import NinegridError
from ninegrid.progress import say
from ninegrid.project import project_root

# Threads that sleep while they wait are what the stages use too; TRL's pieces get the same.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "CUDA_VISIBLE_DEVICES": "",
    "TOKENIZERS_PARALLELISM": "false",
}
ON_GPU = {name: value for name, value in ENVIRONMENT.items() if name != "CUDA_VISIBLE_DEVICES"}


@dataclass(frozen=True)
class Answer:
    """What a piece returned, and the most memory that its process ever held."""

    data: Any
    peak_bytes: int


def run_piece(name: str, subject: Subject, **arguments: Any) -> Answer:
    """Run ``benchmarks.pieces.MODULE.FUNCTION(subject, **arguments)`` for a name ``MODULE:FUNCTION``.

    What it prints goes to standard error.

    Raises:
        NinegridError: it did not end well; its own message stands above.
    """
    with tempfile.TemporaryDirectory() as folder:
        request, answer = Path(folder, "request.json"), Path(folder, "answer.json")
        request.write_text(json.dumps({"subject": asdict(subject), "arguments": arguments}))
        command = [sys.executable, "-m", "benchmarks.isolated", name, str(request), str(answer)]
        environment = {**os.environ, **(ON_GPU if subject.gpu else ENVIRONMENT)}
        code = subprocess.run(
            command, stdout=sys.stderr.fileno(), cwd=project_root(), env=environment, check=False
        ).returncode
        if code:
            raise NinegridError(f"the piece {name} ended with status {code}; its message is above")
        return Answer(**json.loads(answer.read_text()))


def main(arguments: Sequence[str]) -> int:
    """The process's own side; returns the exit status."""
    name, request, answer = arguments
    module, function = name.split(":")
    asked = json.loads(Path(request).read_text())
    piece = getattr(import_module(f"benchmarks.pieces.{module}"), function)
    try:
        data = piece(Subject.from_json(asked["subject"]), **asked["arguments"])
    except NinegridError as error:
        say(f"{name}: {error}")
        return 2
    Path(answer).write_text(json.dumps({"data": data, "peak_bytes": _peak_bytes()}))
    return 0


def _peak_bytes() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # the answer is written, and to take torch down in order takes a second
