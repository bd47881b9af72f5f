"""A shared MLflow server over HTTP, with PostgreSQL behind it, and several processes that write at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run as StoredRun

from tests.conftest import ROOT
from tests.servers import free_port, is_served, postgresql, running, why_no_postgresql

CHILD = """
import sys, time
from pathlib import Path
from ninegrid.tracking import TrackingSettings, track

name, ending, state = sys.argv[1], sys.argv[2], Path(sys.argv[3])
uri = sys.argv[4] if len(sys.argv) > 4 else None
with track(TrackingSettings(uri=uri), name, {"train": {"seed": 7, "steps": 40}}, state=state) as run:
    for step in range(1, 41):
        run.metrics({"rollout/rewards_mean": step / 40, "train/grad_norm": 1 / step}, step)
    run.text("You play X.", "prompt/heldout.txt")
    print("ready", flush=True)
    sys.stdin.readline()
    if ending == "raise":
        raise ValueError("the board is upside down")
    if ending == "wait":
        time.sleep(120)
"""
"""A stage that tells of 40 steps, and ends once it may."""


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    why = why_no_postgresql()
    if why:
        pytest.skip(why)
    with postgresql() as address:
        yield address


@pytest.fixture(scope="module")
def server(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder, port = tmp_path_factory.mktemp("server"), free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", database]
    command += ["--host", "127.0.0.1", "--port", str(port), "--workers", "2"]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    settings = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    address = f"http://127.0.0.1:{port}"
    with running(command, folder / "log", lambda: is_served(f"{address}/health"), cwd=folder,
                 env={**os.environ, **settings}):  # fmt: skip
        yield address


def start(name: str, ending: str, state: Path, *uri: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, name, ending, str(state), *uri],
        cwd=ROOT,
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def runs_at(server: str) -> dict[str, StoredRun]:
    """The runs of the experiment, by their stage."""
    client = MlflowClient(server)
    (experiment,) = [e for e in client.search_experiments() if e.name == "ninegrid"]
    return {r.data.tags["ninegrid.stage"]: r for r in client.search_runs([experiment.experiment_id])}


def test_processes_that_come_first_at_once_are_all_told_whole(
    server: str, database: str, tmp_path: Path
) -> None:
    at = {"MLFLOW_TRACKING_URI": server}
    processes = {
        "by setting": start("by setting", "end", tmp_path / "a", server),
        "by variable": start("by variable", "end", tmp_path / "b", **at),
        "failing": start("failing", "raise", tmp_path / "b", **at),
        "killed": start("killed", "wait", tmp_path / "b", **at),
    }
    for process in processes.values():
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    assert {run.info.status for run in runs_at(server).values()} == {"RUNNING"}
    processes["killed"].send_signal(signal.SIGTERM)
    ended = {name: (process.communicate(timeout=120)[1], process.returncode)
             for name, process in processes.items()}  # fmt: skip

    assert ended["by setting"] == ended["by variable"] == ("", 0)
    assert (ended["failing"][1], ended["killed"]) == (1, ("", 128 + 15))
    runs = runs_at(server)
    assert {name: run.info.status for name, run in runs.items()} == {
        "by setting": "FINISHED",
        "by variable": "FINISHED",
        "failing": "FAILED",
        "killed": "KILLED",
    }
    client = MlflowClient(server)
    for run in runs.values():
        assert run.data.params == {"train.seed": "7", "train.steps": "40"}
        history = client.get_metric_history(run.info.run_id, "rollout/rewards_mean")
        assert [(m.step, m.value) for m in history] == [(step, step / 40) for step in range(1, 41)]
        assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["params.yaml", "prompt"]
        shown = client.download_artifacts(run.info.run_id, "prompt/heldout.txt", str(tmp_path))
        assert Path(shown).read_text() == "You play X."
    assert runs["failing"].data.tags["ninegrid.error"] == "ValueError: the board is upside down"
    assert not [path for name in "ab" for path in (tmp_path / name).glob("**/*")], "nothing is kept here"
    assert statuses_in(database) == ["FAILED", "FINISHED", "FINISHED", "KILLED"]


def statuses_in(database: str) -> list[str]:
    """What PostgreSQL itself holds."""
    import psycopg2

    with closing(psycopg2.connect(database.replace("+psycopg2", ""))) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT status FROM runs ORDER BY status")
        return [status for (status,) in cursor.fetchall()]
