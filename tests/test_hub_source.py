"""The Hub as a source: its real client against a server on this machine that speaks the Hub's two calls."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from ninegrid.policy.files import MANIFEST
from tests.fetching import (
    COMMIT,
    assert_complete,
    contents,
    names,
    run_fetch,
    serving,
)

pytest_plugins = ("tests.fetching_fixtures",)


HubAnswer = Callable[[BaseHTTPRequestHandler], bool]
"""Answers a request in an unusual way and returns True, or returns False."""


def hub_handler(
    files: Mapping[str, bytes], special: HubAnswer = lambda _: False
) -> type[BaseHTTPRequestHandler]:
    """The two calls of the Hub that a snapshot of a fixed commit needs: the tree, and the files."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer()

        def do_GET(self) -> None:
            self.answer()

        def answer(self) -> None:
            if special(self):
                return
            path = self.path.split("?")[0]
            if path == f"/api/models/some/model/tree/{COMMIT}":
                self.reply(json.dumps([self.entry(name) for name in files]).encode(), "application/json")
                return
            self.reply(files[path.removeprefix(f"/some/model/resolve/{COMMIT}/")], "application/octet-stream")

        def entry(self, name: str) -> dict[str, Any]:
            return {"type": "file", "path": name, "size": len(files[name]), "oid": self.oid(files[name])}

        def reply(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", f'"{self.oid(body)}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        @staticmethod
        def oid(body: bytes) -> str:
            return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def refusing(status: int, code: str) -> HubAnswer:
    def answer(handler: BaseHTTPRequestHandler) -> bool:
        handler.send_response(status)
        handler.send_header("X-Error-Code", code)
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return True

    return answer


def hub_environment(url: str, place: Path, offline: str = "0") -> dict[str, str]:
    fixed = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "no_proxy": "127.0.0.1"}
    return {
        "HF_ENDPOINT": url,
        "HF_HOME": str(place / "hf"),
        "HF_HUB_OFFLINE": offline,
        "HF_TOKEN": "",
        **fixed,
    }


HUB = {"kind": "hub", "repo": "some/model", "revision": COMMIT}


def test_hub_gives_the_models_files_and_then_needs_no_network(model_folder: Path, tmp_path: Path) -> None:
    files = {name: (model_folder / name).read_bytes() for name in names(model_folder) if name != "subfolder"}
    files |= {"README.md": b"# a model", "onnx/model.json": b"{}", "pytorch_model.bin": b"pickle"}
    files["LICENSE"] = b"free"
    with serving(hub_handler(files)) as url:
        done = run_fetch(HUB, tmp_path, **hub_environment(url, tmp_path))
    assert done.returncode == 0, done.stdout
    folder = tmp_path / "data" / "model"
    assert_complete(folder)
    wanted = {"config.json", "generation_config.json", "model.safetensors", "LICENSE", "chat_template.jinja"}
    assert set(names(folder)) == wanted | {"tokenizer.json", "tokenizer_config.json", MANIFEST}
    assert json.loads((folder / MANIFEST).read_text())["source"] == HUB
    first = contents(folder)

    # The server is gone; what it gave is in the Hub's cache.
    shutil.rmtree(folder)
    done = run_fetch(HUB, tmp_path, **hub_environment(url, tmp_path, offline="1"))
    assert done.returncode == 0, done.stdout
    assert contents(folder) == first


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (403, "GatedRepo", "some/model is gated"),
        (404, "RevisionNotFound", f"some/model has no commit {COMMIT}"),
        (404, "RepoNotFound", "the Hub has no repository some/model, or you may not see it"),
        (400, "", "it cannot be fetched: the Hub did not give it"),
    ],
)
def test_hub_refusals(tmp_path: Path, status: int, code: str, message: str) -> None:
    with serving(hub_handler({}, refusing(status, code))) as url:
        done = run_fetch(HUB, tmp_path, **hub_environment(url, tmp_path))
    assert done.returncode == 2
    assert message in done.stdout
    assert names(tmp_path / "data") == []


KNOWN = {**HUB, "weight_bytes": 15_787_992_416, "weight_files": 32, "gated": True}
DOWNLOAD = f"hf download some/model --revision {COMMIT} --exclude '*/*'"


@pytest.mark.parametrize(
    ("offline", "why"),
    [("1", "HF_HUB_OFFLINE is set"), ("0", "the Hub cannot be reached")],
    ids=["offline", "no network"],
)
def test_hub_out_of_reach_says_what_is_needed_and_how_to_carry_it_over(
    tmp_path: Path, offline: str, why: str
) -> None:
    """One message, and no retries of the Hub's client before it."""
    done = run_fetch(KNOWN, tmp_path, **hub_environment("http://127.0.0.1:9", tmp_path, offline=offline))
    assert done.returncode == 2
    first, *rest = done.stdout.splitlines()
    assert first.startswith("fetching some/model")
    message = "\n".join(rest)
    assert f"some/model is not on this machine, and it cannot be fetched: {why}" in rest[0]
    assert "32 *.safetensors files, about 15.8 GB" in message
    assert f"accept its agreement on its page, run hf auth login, then: {DOWNLOAD} --local-dir" in message
    assert "model.source.kind=local model.source.path=data/hub/" in message
    assert f"models--some--model from the cache there into {tmp_path / 'hf' / 'hub'} here" in message
    assert "Retrying" not in done.stdout + done.stderr
    assert names(tmp_path / "data") == []


def test_a_cache_that_holds_a_part_is_told_apart(model_folder: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "hf" / "hub" / "models--some--model" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    shutil.copy(model_folder / "config.json", snapshot)
    done = run_fetch(HUB, tmp_path, **hub_environment("http://127.0.0.1:9", tmp_path, offline="1"))
    assert done.returncode == 2
    assert "HF_HUB_OFFLINE is set, and the Hub's cache holds only a part: " in done.stdout
    assert "must hold .safetensors files" in done.stdout
    assert "*.safetensors files, how large is not known" in done.stdout


def test_hub_that_hangs_up_leaves_nothing_and_goes_on_next_time(model_folder: Path, tmp_path: Path) -> None:
    files = {name: (model_folder / name).read_bytes() for name in names(model_folder) if name != "subfolder"}

    def hang_up(handler: BaseHTTPRequestHandler) -> bool:
        if handler.command == "HEAD" or "model.safetensors" not in handler.path:
            return False
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(files["model.safetensors"])))
        handler.end_headers()
        handler.wfile.write(files["model.safetensors"][:1000])
        handler.close_connection = True
        return True

    with serving(hub_handler(files, hang_up)) as url:
        done = run_fetch(HUB, tmp_path, **hub_environment(url, tmp_path))
    assert done.returncode == 2
    assert "ModelSourceError" in done.stdout
    assert names(tmp_path / "data") == []
    with serving(hub_handler(files)) as url:
        done = run_fetch(HUB, tmp_path, **hub_environment(url, tmp_path))
    assert done.returncode == 0, done.stdout
    assert_complete(tmp_path / "data" / "model")
