"""The MLflow mirror on real stores, with real processes that end in every way a process can end."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from mlflow import MlflowClient
from mlflow.entities import Run as StoredRun
from mlflow.utils.validation import _validate_metric_name, _validate_param_name, _validate_tag_name

from ninegrid import project
from ninegrid.config import bind, flatten
from ninegrid.errors import NinegridError, SettingsError
from ninegrid.tracking import Run, TrackingSettings, close_dead_runs, input_hashes, track
from ninegrid.tracking.__main__ import show
from ninegrid.tracking.names import PARAM_LIMIT, as_text, cut, safe_name
from ninegrid.tracking.outbox import Outbox, RunHead, read_waiting, waiting_folders
from ninegrid.tracking.provenance import (
    CELL_VARIABLE,
    HOST,
    PID,
    STARTED,
    SWEEP_VARIABLE,
    git_tags,
    process_is_gone,
    process_tags,
)
from ninegrid.tracking.replay import replay
from ninegrid.tracking.requests import Files, Metrics
from ninegrid.tracking.settings import store_uri, without_password
from ninegrid.tracking.signals import Terminated, unwinding
from ninegrid.tracking.store import open_store
from ninegrid.tracking.traces import Step, Trace
from tests.servers import free_port, is_served, running

ROOT = Path(__file__).resolve().parents[1]

CHILD = """
import sys, time
from pathlib import Path
from ninegrid.tracking import TrackingSettings, track

state, ending = Path(sys.argv[1]), sys.argv[2]
try:
    with track(TrackingSettings(), "child", {"ending": ending}, {"seed": 7}, state=state) as run:
        run.metrics({"rollout/rewards_mean": -0.5}, step=1)
        print("ready", flush=True)
        if ending == "raise":
            raise ValueError("the board is upside down")
        if ending == "wait":
            time.sleep(120)
finally:
    print("unwound", flush=True)
"""


@pytest.fixture(autouse=True)
def _no_outer_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def client_of(state: Path) -> MlflowClient:
    return MlflowClient(store_uri(TrackingSettings(), state))


def runs_in(state: Path, experiment: str = "ninegrid") -> list[StoredRun]:
    client = client_of(state)
    found = client.get_experiment_by_name(experiment)
    return [] if found is None else list(client.search_runs([found.experiment_id]))


def only_run(state: Path) -> StoredRun:
    (run,) = runs_in(state)
    return run


USAGE = {"time/run_seconds", "memory/peak_gb"}


def told(run: StoredRun) -> dict[str, float]:
    """The metrics that the stage sent; what every run says of itself must be there too."""
    assert set(run.data.metrics) >= USAGE
    return {name: value for name, value in run.data.metrics.items() if name not in USAGE}


def start(state: Path, ending: str) -> subprocess.Popen[str]:
    """A stage in a process of its own; returns once its run has begun."""
    process = launch(state, ending)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def launch(state: Path, ending: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(state), ending],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def artifacts_of(state: Path, run: StoredRun, folder: str | None = None) -> list[str]:
    return [item.path for item in client_of(state).list_artifacts(run.info.run_id, folder)]


class TestRoots:
    def test_project_root_is_this_checkout_from_any_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert project.project_root() == ROOT
        assert project.store_root() == project.owner_of(ROOT)

    def test_a_plain_checkout_owns_its_state(self) -> None:
        assert project.owner_of(Path("/home/me/grid")) == Path("/home/me/grid")

    @pytest.mark.parametrize(
        "copy", ["/home/me/grid/.dvc/tmp/exps/standalone/tmp1a", "/home/me/grid/.dvc/tmp/exps/t/sub/grid"]
    )
    def test_state_of_an_experiment_copy_belongs_to_the_original(self, copy: str) -> None:
        assert project.owner_of(Path(copy)) == Path("/home/me/grid")

    def test_code_in_an_experiment_copy_keeps_its_files_and_shares_the_state(self, tmp_path: Path) -> None:
        copy = tmp_path / ".dvc" / "tmp" / "exps" / "standalone" / "tmpx"
        for name in ("__init__.py", "errors.py", "project.py"):
            (copy / "ninegrid").mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / "ninegrid" / name, copy / "ninegrid" / name)
        shutil.copy(ROOT / "pyproject.toml", copy)
        code = "from ninegrid import project as p; print(p.project_root()); print(p.store_root())"
        shown = subprocess.check_output([sys.executable, "-c", code], cwd=copy, text=True)
        assert shown.splitlines() == [str(copy), str(tmp_path)]

    def test_an_installed_package_says_that_it_is_no_checkout(self, tmp_path: Path) -> None:
        shutil.copytree(
            ROOT / "ninegrid", tmp_path / "ninegrid", ignore=shutil.ignore_patterns("__pycache__")
        )
        code = "from ninegrid.project import project_root; project_root()"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode != 0
        assert "is not a checkout" in done.stderr


class TestNames:
    @given(st.text())
    def test_every_name_becomes_one_that_mlflow_takes(self, name: str) -> None:
        for validate in (_validate_metric_name, _validate_param_name, _validate_tag_name):
            validate(safe_name(name))
        assert len(safe_name(name)) <= 250

    @given(st.text("a%$/. ", max_size=4), st.text("a%$/. ", max_size=4))
    def test_two_names_never_become_one(self, one: str, other: str) -> None:
        assert (safe_name(one) == safe_name(other)) == (one == other)

    @pytest.mark.parametrize("name", ["rollout/rewards_mean", "a.b-c d:e", "größe"])
    def test_a_good_name_stays(self, name: str) -> None:
        assert safe_name(name) == name

    @pytest.mark.parametrize(
        ("name", "stem"),
        [
            ("win%", "win_"),
            ("/a//b/", "a/b"),
            ("../up", "up"),
            ("..0", "0"),
            ("..../x", "x"),
            ("x" * 300, "x" * 241),
        ],
    )
    def test_a_bad_name_is_mended_and_marked(self, name: str, stem: str) -> None:
        # 250 characters at most, of which "-" and eight digits of the digest take nine: 241 are left.
        assert safe_name(name)[:-9] == stem
        assert safe_name(name)[-9] == "-"

    def test_nested_parameters_become_dotted(self) -> None:
        nested = {"a": {"b": {"c": 1}, "d": None}, "list": [1, {"x": 2}], "empty": {}}
        assert flatten(nested) == {"a.b.c": 1, "a.d": None, "list": [1, {"x": 2}], "empty": {}}

    @pytest.mark.parametrize(
        ("value", "text"),
        [("null", "null"), (None, "null"), (True, "true"), (1e-5, "1e-05"), ([1, "ö"], '[1, "ö"]')],
    )
    def test_values_become_text(self, value: object, text: str) -> None:
        assert as_text(value) == text

    def test_cut_keeps_the_limit_and_shows_that_it_cut(self) -> None:
        assert cut("abcdef", 6) == "abcdef"
        assert cut("abcdefg", 6) == "abcde…"
        assert cut("\udcff", 6) == "\\udcff"


class TestSettings:
    def test_explicit_address_wins_over_the_environment_and_that_over_the_default(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert store_uri(TrackingSettings(), tmp_path) == f"sqlite:///{tmp_path}/mlflow.db"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5999")
        assert store_uri(TrackingSettings(), tmp_path) == "http://127.0.0.1:5999"
        assert store_uri(TrackingSettings(uri="http://127.0.0.1:1"), tmp_path) == "http://127.0.0.1:1"

    @pytest.mark.parametrize(
        ("uri", "expected"),
        [
            ("sqlite:///my.db", f"sqlite:///{ROOT}/my.db"),
            ("sqlite:////tmp/my.db", "sqlite:////tmp/my.db"),
            ("runs", f"{ROOT}/runs"),
            ("postgresql://u:p@h/db", "postgresql://u:p@h/db"),
        ],
    )
    def test_relative_addresses_lie_in_the_project(
        self, uri: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert store_uri(TrackingSettings(uri=uri), tmp_path) == expected

    def test_passwords_are_not_shown(self) -> None:
        assert without_password("postgresql://u:secret@h/db") == "postgresql://***@h/db"
        assert without_password("sqlite:////home/a@b/x.db") == "sqlite:////home/a@b/x.db"

    @pytest.mark.parametrize(
        ("raw", "said"),
        [
            ({"experimnt": "x"}, "unknown setting tracking.experimnt; did you mean tracking.experiment?"),
            ({"experiment": " "}, "tracking.experiment = ' '"),
            ({"uri": ""}, "tracking.uri = ''"),
            ({"enabled": "yes"}, "tracking.enabled = 'yes', expected true or false"),
            ({"traces": -1}, "tracking.traces = -1, allowed: 0 or more"),
        ],
    )
    def test_bad_settings_are_refused(self, raw: dict[str, Any], said: str) -> None:
        with pytest.raises(SettingsError) as refused:
            bind(TrackingSettings, raw, "tracking")
        assert said in str(refused.value)

    @pytest.mark.parametrize(
        "file", sorted((ROOT / "conf" / "tracking").glob("*.yaml")), ids=lambda f: f.stem
    )
    def test_every_group_file_is_complete_and_accepted(self, file: Path) -> None:
        raw = yaml.safe_load(file.read_text(encoding="utf-8"))
        bind(TrackingSettings, raw, "tracking")
        assert list(raw) == ["enabled", "uri", "experiment", "artifacts", "traces"]

    def test_switched_off_nothing_is_imported_or_written_and_the_stage_runs(self, tmp_path: Path) -> None:
        code = textwrap.dedent(f"""
            import sys
            from pathlib import Path
            from ninegrid.tracking import TrackingSettings, track
            off, state = TrackingSettings(enabled=False), Path({str(tmp_path)!r})
            with track(off, "s", {{"a": 1}}, state=state) as run:
                run.metrics({{"m": float("inf")}}, 1)
                run.params({{"b": 2}})
                run.tag("t", 1)
                run.text("x", "x.txt")
                run.artifact({str(ROOT / "pyproject.toml")!r})
                run.traces([])
            print([m for m in ("mlflow", "sqlalchemy", "torch", "pandas") if m in sys.modules])
        """)
        assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True) == "[]\n"
        assert list(tmp_path.iterdir()) == []

    def test_experiment_collects_the_runs(self, state: Path) -> None:
        with track(TrackingSettings(experiment="other"), "s", {}, state=state):
            pass
        assert len(runs_in(state, "other")) == 1
        assert runs_in(state) == []

    def test_without_artifacts_no_file_is_copied(self, state: Path) -> None:
        with track(TrackingSettings(artifacts=False), "s", {"a": 1}, state=state) as run:
            run.artifact(ROOT / "pyproject.toml")
            run.text("hello", "hello.txt")
        assert artifacts_of(state, only_run(state)) == []
        assert not (state / "mlartifacts").exists()


class TestOneRun:
    def test_a_run_describes_itself(self, state: Path, tmp_path: Path) -> None:
        boards = tmp_path / "boards.jsonl"
        boards.write_bytes(b"abc")
        tags = {**input_hashes({"boards": boards}), "reward": {"win": 1.0, "legal": 0}, "seed": 2026}
        with track(TrackingSettings(), "train_gspo", {"train": {"steps": 5, "lr": 1e-5}}, tags, state=state):
            pass
        run = only_run(state)
        assert run.info.status == "FINISHED"
        assert run.data.params == {"train.steps": "5", "train.lr": "1e-05"}
        found = run.data.tags
        # The digest of "abc" is the first test vector of FIPS 180-2.
        assert found["input.boards"] == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        assert found["reward"] == '{"win": 1.0, "legal": 0}'
        assert found["seed"] == "2026"
        assert found["ninegrid.stage"] == "train_gspo"
        assert found[PID] == str(os.getpid())
        assert found[HOST] == socket.gethostname()

    def test_metrics_keep_their_steps(self, state: Path) -> None:
        with track(TrackingSettings(), "s", {}, state=state) as run:
            run.metrics({"rollout/rewards_mean": -0.5, "train/updates": 4}, step=1)
            run.metrics({"rollout/rewards_mean": 0.25}, step=2)
            run.metrics({"total": True})
        run_id = only_run(state).info.run_id
        history = client_of(state).get_metric_history(run_id, "rollout/rewards_mean")
        assert [(m.step, m.value) for m in history] == [(1, -0.5), (2, 0.25)]
        assert told(only_run(state)) == {"rollout/rewards_mean": 0.25, "train/updates": 4.0, "total": 1.0}

    def test_more_metrics_and_parameters_than_one_request_may_hold(self, state: Path) -> None:
        # MLflow takes 1,000 metrics and 100 parameters a request.
        with track(TrackingSettings(), "s", {f"p{i}": i for i in range(250)}, state=state) as run:
            run.metrics({f"m{i}": i for i in range(1500)}, step=3)
        data = only_run(state).data
        assert (len(data.params), len(told(only_run(state)))) == (250, 1500)

    def test_numbers_that_are_none_never_reach_the_store(
        self, state: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with track(TrackingSettings(), "s", {}, state=state) as run:
            for step in (1, 2):
                run.metrics({"loss": float("nan"), "norm": float("inf"), "reward": 0.5}, step)
        stored = only_run(state)
        assert told(stored) == {"reward": 0.5}
        assert stored.data.tags["ninegrid.nonfinite_metrics"] == "loss, norm"
        said = capsys.readouterr().err.splitlines()
        assert [line.split(" is ")[0] for line in said] == ["warning: metric loss", "warning: metric norm"]

    def test_a_long_value_is_cut_in_the_store_and_whole_in_the_artifact(self, state: Path) -> None:
        params = {"chat": {"system": "é" * (PARAM_LIMIT + 1)}, "moves": (0, 6), "path": Path("data")}
        with track(TrackingSettings(), "s", params, state=state):
            pass
        run = only_run(state)
        assert run.data.params["chat.system"] == "é" * (PARAM_LIMIT - 1) + "…"
        whole = Path(client_of(state).download_artifacts(run.info.run_id, "params.yaml")).read_text(
            encoding="utf-8"
        )
        assert yaml.safe_load(whole) == {"chat": params["chat"], "moves": [0, 6], "path": "data"}

    def test_a_run_says_what_it_cost(self, state: Path) -> None:
        with track(TrackingSettings(), "s", {}, state=state):
            time.sleep(0.25)
        metrics = only_run(state).data.metrics
        assert metrics["time/run_seconds"] >= 0.25
        assert metrics["memory/peak_gb"] == pytest.approx(
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9, rel=0.1
        )

    def test_odd_names_are_taken(self, state: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with track(TrackingSettings(), "s", {"won (fast)": 1}, {"who?": "me"}, state=state) as run:
            run.metrics({"rate %": 0.5})
            run.tag("why?", ["because"])
        data = only_run(state).data
        assert data.params == {safe_name("won (fast)"): "1"}
        assert told(only_run(state)) == {safe_name("rate %"): 0.5}
        assert (data.tags[safe_name("who?")], data.tags[safe_name("why?")]) == ("me", '["because"]')
        assert capsys.readouterr().err == ""

    def test_files_folders_and_texts_are_copied(self, state: Path, tmp_path: Path) -> None:
        (tmp_path / "figures").mkdir()
        (tmp_path / "figures" / "curve.svg").write_text("<svg/>")
        (tmp_path / "report.html").write_text("<p>")
        with track(TrackingSettings(), "s", {}, state=state) as run:
            run.artifact(tmp_path / "report.html")
            run.artifact(tmp_path / "figures", "figures")
            run.text("You play X.", "prompt/heldout.txt")
        stored = only_run(state)
        assert artifacts_of(state, stored) == ["figures", "params.yaml", "prompt", "report.html"]
        assert artifacts_of(state, stored, "figures") == ["figures/curve.svg"]
        kept = state / "mlartifacts" / stored.info.run_id / "artifacts" / "prompt" / "heldout.txt"
        assert kept.read_text() == "You play X."

    @pytest.mark.parametrize("enabled", [True, False])
    def test_a_missing_file_is_the_stages_mistake(self, state: Path, enabled: bool, tmp_path: Path) -> None:
        settings = TrackingSettings(enabled=enabled)
        with (
            pytest.raises(FileNotFoundError, match=r"nowhere\.html"),
            track(settings, "s", {}, state=state) as run,
        ):
            run.artifact(tmp_path / "nowhere.html")

    def test_a_changed_parameter_is_refused_and_the_rest_goes_on(
        self, state: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with track(TrackingSettings(), "s", {"steps": 5}, state=state) as run:
            run.params({"steps": 6})
            run.metrics({"m": 1})
        stored = only_run(state)
        assert (stored.data.params, told(stored)) == ({"steps": "5"}, {"m": 1.0})
        assert stored.info.status == "FINISHED"
        assert "MLflow refused parameters" in capsys.readouterr().err

    def test_artifacts_follow_a_moved_checkout(self, state: Path, tmp_path: Path) -> None:
        with track(TrackingSettings(), "before", {"a": 1}, state=state):
            pass
        moved = state.rename(tmp_path / "elsewhere")
        with track(TrackingSettings(), "after", {"a": 2}, state=moved):
            pass
        assert not state.exists()
        assert {r.data.tags["ninegrid.stage"]: artifacts_of(moved, r) for r in runs_in(moved)} == {
            "before": ["params.yaml"],
            "after": ["params.yaml"],
        }


class TestProvenance:
    def test_git_revision_and_changes(self, tmp_path: Path) -> None:
        def git(*arguments: str) -> str:
            who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
            return subprocess.check_output(["git", "-C", str(tmp_path), *who, *arguments], text=True).strip()

        assert git_tags(tmp_path) == {}
        git("init", "-q")
        assert git_tags(tmp_path) == {}, "no commit yet"
        (tmp_path / "a").write_text("1")
        git("add", "a")
        git("commit", "-qm", "one")
        (tmp_path / "untracked").write_text("")
        clean = git_tags(tmp_path)
        assert clean["ninegrid.git_revision"] == clean["mlflow.source.git.commit"] == git("rev-parse", "HEAD")
        assert clean["ninegrid.git_dirty"] == "false"
        (tmp_path / "a").write_text("2")
        assert git_tags(tmp_path)["ninegrid.git_dirty"] == "true"

    def test_no_git_no_tags(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        assert git_tags(ROOT) == {}

    def test_a_folders_hash_is_of_names_and_contents(self, tmp_path: Path) -> None:
        def of(files: dict[str, str]) -> str:
            folder = tmp_path / str(len(list(tmp_path.iterdir())))
            for name, content in files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(content)
            return input_hashes({"x": folder})["input.x"]

        first = of({"a": "1", "sub/b": "2"})
        assert of({"sub/b": "2", "a": "1"}) == first
        assert first not in (
            of({"a": "1", "sub/b": "3"}),
            of({"a": "1", "sub/c": "2"}),
            of({"a": "1", "b": "2"}),
        )

    def test_whose_process_is_gone(self) -> None:
        mine = process_tags()
        assert not process_is_gone(mine)
        assert process_is_gone({**mine, STARTED: str(float(mine[STARTED]) - 60)}), (
            "a later process of that number"
        )
        assert not process_is_gone({**mine, HOST: "elsewhere", PID: "999999999"}), "cannot be known from here"
        assert not process_is_gone({})
        dead = subprocess.Popen([sys.executable, "-c", ""])
        os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
        own_start = {**mine, PID: str(dead.pid), STARTED: f"{time.time():.2f}"}
        assert process_is_gone(own_start), "a zombie"
        dead.wait()
        assert process_is_gone(own_start)


class TestEndings:
    def test_an_exception_fails_the_run_and_goes_on(self, state: Path) -> None:
        with pytest.raises(ZeroDivisionError), track(TrackingSettings(), "s", {}, state=state):
            _ = 1 / 0
        run = only_run(state)
        assert run.info.status == "FAILED"
        assert run.data.tags["ninegrid.error"] == "ZeroDivisionError: division by zero"

    @pytest.mark.parametrize(
        ("raised", "status"),
        [
            (SystemExit(0), "FINISHED"),
            (SystemExit(None), "FINISHED"),
            (SystemExit(2), "FAILED"),
            (SystemExit("no"), "FAILED"),
            (KeyboardInterrupt(), "KILLED"),
            (Terminated(15), "KILLED"),
        ],
    )
    def test_each_way_out_has_its_status(self, state: Path, raised: BaseException, status: str) -> None:
        with pytest.raises(type(raised)), track(TrackingSettings(), "s", {}, state=state):
            raise raised
        assert only_run(state).info.status == status

    def test_a_failing_process(self, state: Path) -> None:
        process = start(state, "raise")
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (1, "unwound\n")
        assert err.splitlines()[-1] == "ValueError: the board is upside down"
        assert only_run(state).info.status == "FAILED"

    @pytest.mark.parametrize(
        ("number", "code"),
        [
            (signal.SIGTERM, 128 + 15),
            (signal.SIGHUP, 128 + 1),
            # Python ends by raising SIGINT against itself, which a shell shows as 130 = 128 + 2.
            (signal.SIGINT, -2),
        ],
    )
    def test_a_killed_process_unwinds_and_says_so(
        self, state: Path, number: signal.Signals, code: int
    ) -> None:
        process = start(state, "wait")
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (code, "unwound\n")
        assert "warning" not in err
        run = only_run(state)
        assert run.info.status == "KILLED"
        assert run.info.end_time is not None
        assert run.data.metrics == {"rollout/rewards_mean": -0.5}

    def test_sigkill_is_found_by_the_next_run_and_the_living_are_left_alone(self, state: Path) -> None:
        killed, living = start(state, "wait"), start(state, "wait")
        try:
            killed.kill()
            killed.wait(timeout=60)
            assert [run.info.status for run in runs_in(state)] == ["RUNNING", "RUNNING"]
            with track(TrackingSettings(), "next", {}, state=state):
                by_pid = {run.data.tags[PID]: run for run in runs_in(state)}
                assert by_pid[str(killed.pid)].info.status == "KILLED"
                assert "process was gone" in by_pid[str(killed.pid)].data.tags["ninegrid.end"]
                assert by_pid[str(living.pid)].info.status == "RUNNING"
                assert by_pid[str(os.getpid())].info.status == "RUNNING"
        finally:
            for process in (killed, living):
                process.kill()
                process.communicate()

    def test_runs_of_processes_that_are_gone_can_be_closed_without_a_next_run(self, state: Path) -> None:
        killed = start(state, "wait")
        killed.kill()
        killed.communicate()
        close_dead_runs(TrackingSettings(enabled=False), state)
        assert only_run(state).info.status == "RUNNING"
        close_dead_runs(TrackingSettings(), state)
        assert only_run(state).info.status == "KILLED"
        (state / "mlflow.db").write_bytes(b"not a database" * 100)
        close_dead_runs(TrackingSettings(), state)

    def test_handlers_are_put_back(self, state: Path) -> None:
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        with track(TrackingSettings(), "s", {}, state=state):
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

    def test_somebody_elses_handler_stays(self) -> None:
        seen: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
        try:
            with unwinding():
                signal.raise_signal(signal.SIGTERM)
            assert seen == [signal.SIGTERM]
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


class TestStore:
    def test_four_processes_come_first_at_once(self, tmp_path: Path) -> None:
        processes = [launch(tmp_path / "new", "end") for _ in range(4)]
        ended = [(p.communicate(timeout=240), p.returncode) for p in processes]
        assert ended == [(("ready\nunwound\n", ""), 0)] * 4
        assert [run.info.status for run in runs_in(tmp_path / "new")] == ["FINISHED"] * 4

    @pytest.fixture
    def closed_port(self) -> Iterator[int]:
        """A loopback port that nobody listens on, and that nobody else can take meanwhile."""
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            yield held.getsockname()[1]

    @pytest.fixture
    def broken_uri(
        self, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> str:
        file = tmp_path / "broken"
        file.write_bytes(b"\x00this is not a database" * 100)
        if request.param == "server is down":
            monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
            return f"http://127.0.0.1:{request.getfixturevalue('closed_port')}"
        return f"sqlite:///{file}" if request.param == "file is corrupt" else f"sqlite:///{file}/below.db"

    @pytest.mark.parametrize(
        "broken_uri", ["server is down", "file is corrupt", "folder cannot be made"], indirect=True
    )
    def test_the_stage_goes_on_without_a_store(
        self, broken_uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        reached = False
        with track(TrackingSettings(uri=broken_uri), "train_gspo", {"a": 1}, state=tmp_path / "state") as run:
            for step in range(3):
                run.metrics({"m": step}, step)
            run.artifact(ROOT / "pyproject.toml")
            reached = True
        assert reached
        first, last = capsys.readouterr().err.splitlines()
        assert first.startswith(f"warning: train_gspo: MLflow at {broken_uri} cannot be opened (")
        assert last == (
            f"warning: train_gspo: not mirrored to MLflow at {broken_uri}: "
            "parameters, artifacts (2), metrics (4), its end. "
            "Once it answers again: python -m ninegrid.tracking replay"
        )

    def test_an_error_of_the_stage_is_not_hidden_by_a_store_that_is_down(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "x.db").write_bytes(b"not a database, whatever its name may say")
        settings = TrackingSettings(uri=f"sqlite:///{tmp_path}/x.db")
        with pytest.raises(ZeroDivisionError), track(settings, "s", {}, state=tmp_path):
            _ = 1 / 0
        assert "not mirrored" in capsys.readouterr().err

    def test_a_store_that_comes_back_gets_everything(
        self, state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("ninegrid.tracking.store._SQLITE_TIMEOUT_S", 0.1)
        other = sqlite3.connect(state / "mlflow.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        with track(TrackingSettings(), "s", {"a": 1}, state=state) as run:
            for step in range(3):
                run.metrics({"m": step * 10}, step)
            other.rollback()
            other.close()
        stored = only_run(state)
        assert stored.info.status == "FINISHED"
        assert stored.data.params == {"a": "1"}
        history = client_of(state).get_metric_history(stored.info.run_id, "m")
        assert [(m.step, m.value) for m in history] == [(0, 0.0), (1, 10.0), (2, 20.0)]
        assert artifacts_of(state, stored) == ["params.yaml"]
        first, last = capsys.readouterr().err.splitlines()
        assert "database is locked" in first
        assert last.endswith("answers again, everything is mirrored.")

    def test_a_killed_process_leaves_what_waits_and_a_living_one_is_left_alone(self, state: Path) -> None:
        tags = {HOST: socket.gethostname(), PID: "1", STARTED: "0.00"}  # the first process began later
        gone = RunHead("s", "ninegrid", "gone", tags, 1000)
        Outbox(state, gone).add(Metrics({"m": 3.0}, 1500, 4))
        alive = RunHead("s", "ninegrid", "alive", process_tags(), 2000)
        Outbox(state, alive).add(Metrics({"m": 5.0}, 2500, 4))
        assert replay(TrackingSettings(), state) == [
            "gone: 2 requests sent, 0 refused",
            "alive: still running, or run on another host; left alone",
        ]
        stored = only_run(state)
        assert (stored.info.run_name, stored.info.status, stored.data.metrics) == (
            "gone",
            "KILLED",
            {"m": 3.0},
        )
        assert stored.info.end_time == 1500  # when it was last heard of
        assert [read_waiting(folder)[0].name for folder in waiting_folders(state)] == ["alive"]

    def test_a_damaged_outbox_holds_no_other_run_back(self, state: Path, tmp_path: Path) -> None:
        tags = {HOST: socket.gethostname(), PID: "1", STARTED: "0.00"}
        report = tmp_path / "report.html"
        report.write_text("as it was")
        boxes = [Outbox(state, RunHead("s", "ninegrid", name, tags, 1000 + i))
                 for i, name in enumerate(("bad", "cut", "bare"))]  # fmt: skip
        for box in boxes:
            box.add(Metrics({"m": 3.0}, 1500, 4))
            box.add(Files(str(report), None))
        (boxes[0].folder / "run.json").write_text("{")
        lines = (boxes[1].folder / "requests.jsonl").read_text()
        (boxes[1].folder / "requests.jsonl").write_text(lines + lines[:20])
        report.unlink()  # a copy was made when it began to wait
        shutil.rmtree(boxes[2].folder / "files")
        bad, cut_off, bare = replay(TrackingSettings(), state)
        assert bad.startswith(f"{boxes[0].folder} is damaged")
        assert cut_off == "cut: 3 requests sent, 0 refused"
        assert bare == "bare: 2 requests sent, 0 refused, 1 whose files are gone left out"
        whole = {run.info.run_name: run for run in runs_in(state)}
        assert artifacts_of(state, whole["cut"]) == ["report.html"]
        assert waiting_folders(state) == [boxes[0].folder]

    def test_a_replay_that_breaks_off_goes_on_with_the_same_run(
        self, state: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tags = {HOST: socket.gethostname(), PID: "1", STARTED: "0.00"}
        box = Outbox(state, RunHead("s", "ninegrid", "gone", tags, 1000))
        box.add(Metrics({"m": 3.0}, 1500, 4))
        with monkeypatch.context() as patched:
            patched.setattr(Metrics, "send", lambda self, client, run_id: Path("/nonexistent").read_text())
            with pytest.raises(NinegridError, match="does not take gone"):
                replay(TrackingSettings(), state)
        replay(TrackingSettings(), state)
        assert only_run(state).data.metrics == {"m": 3.0}

    def test_a_run_that_the_store_never_saw_is_made_whole_later(
        self, state: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("ninegrid.tracking.store._SQLITE_TIMEOUT_S", 0.1)
        other = sqlite3.connect(state / "mlflow.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        with track(TrackingSettings(), "s", {"a": 1}, {"seed": 3}, state=state) as run:
            run.metrics({"m": 0.5}, 2)
        other.rollback()
        other.close()
        assert runs_in(state) == []
        replay(TrackingSettings(), state)
        stored = only_run(state)
        assert (stored.info.status, stored.data.params, told(stored)) == ("FINISHED", {"a": "1"}, {"m": 0.5})
        assert stored.data.tags["seed"] == "3"
        assert artifacts_of(state, stored) == ["params.yaml"]
        assert not waiting_folders(state)

    def test_an_outbox_that_cannot_be_written_stops_no_stage(
        self, state: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (state / "mlflow.db").write_bytes(b"not a database" * 100)
        (state / "outbox").write_text("a file where the folder should be")
        with track(TrackingSettings(), "s", {"a": 1}, state=state) as run:
            run.metrics({"m": 1})
        said = capsys.readouterr().err
        assert "what MLflow does not take cannot be kept either (NotADirectoryError" in said
        assert said.splitlines()[-1].endswith("its end. The stage's own files hold it.")

    def test_artifacts_that_cannot_be_copied_keep_no_metric_back(
        self, state: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (state / "mlartifacts").write_text("a file where the folder should be")
        with track(TrackingSettings(), "s", {"a": 1}, state=state) as run:
            run.metrics({"m": 1})
        stored = only_run(state)
        assert (stored.info.status, told(stored)) == ("FINISHED", {"m": 1.0})
        first, last = capsys.readouterr().err.splitlines()
        assert "did not take artifacts" in first
        assert ": artifacts. Once it answers again: " in last
        (state / "mlartifacts").unlink()
        assert replay(TrackingSettings(), state) == [f"{stored.info.run_name}: 1 requests sent, 0 refused"]
        assert artifacts_of(state, stored) == ["params.yaml"]

    def test_a_bug_is_not_caught(self, state: Path) -> None:
        with pytest.raises(TypeError), track(TrackingSettings(), "s", {}, state=state) as run:
            run.metrics({"m": None})  # type: ignore[dict-item]
        assert only_run(state).info.status == "FAILED"


class TestPages:
    @pytest.fixture
    def port(self) -> int:
        return free_port()

    @pytest.fixture
    def server(self, state: Path, port: int) -> Iterator[str]:
        with serving(state, port) as address:
            yield address

    def test_the_pages_show_the_store_and_the_server_takes_runs(
        self, server: str, state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        from tests.test_register import register_by_hand

        with urllib.request.urlopen(server, timeout=60) as page:
            assert b"<title>MLflow</title>" in page.read()
        other_state = tmp_path / "other"
        with track(TrackingSettings(uri=server), "over http", {"a": 1}, state=other_state) as run:
            run.metrics({"m": 2}, 1)
            step = Step("reply", "LLM", {"board": "é"}, "x\x00", "occupied", {"mlflow.chat.tokenUsage": {}})
            run.traces([Trace("k", "over http", 1000, "é?", "no", {"outcome": "occupied"}, [step])])
        stored = only_run(state)
        assert (stored.info.status, told(stored)) == ("FINISHED", {"m": 2.0})
        assert artifacts_of(state, stored) == ["params.yaml"]
        (trace,) = client_of(state).search_traces(
            locations=[stored.info.experiment_id], run_id=stored.info.run_id
        )
        assert (trace.info.state, trace.info.request_preview, trace.info.tags["outcome"]) == (
            "ERROR",
            "é?",
            "occupied",
        )
        (span,) = trace.data.spans
        assert (span.inputs, span.outputs, span.start_time_ns) == ({"board": "é"}, "x\x00", 1_000_000_000)
        assert not other_state.exists(), "a server keeps its own state"
        assert f"{server} (Ctrl-C ends it)" in (state / "server.log").read_text()
        assert capsys.readouterr().err == ""

        kept = client_of(state).get_model_version(
            "model", register_by_hand(TrackingSettings(uri=server), tmp_path)
        )
        assert kept.tags["retest/greedy/score_mean"] == "0.5"
        assert artifacts_of(state, client_of(state).get_run(kept.run_id), "policy") == ["policy/weights"]

    def test_replay_fills_the_gap_that_a_stopped_server_left(
        self, state: Path, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        mine, report = tmp_path / "mine", tmp_path / "report.html"
        with ExitStack() as up:
            settings = TrackingSettings(uri=up.enter_context(serving(state, port)))
            with track(settings, "train_gspo", {"a": 1}, state=mine) as run:
                for step in range(6):
                    if step == 3:
                        up.close()
                    run.metrics({"m": step / 7}, step)
                report.write_text("as it was")
                run.artifact(report)
        report.write_text("as it is now")
        before = only_run(state)
        assert before.info.status == "RUNNING"  # files go to the disk, past the server
        with pytest.raises(NinegridError, match="does not take train_gspo"):
            replay(settings, mine)
        with serving(state, port):
            (line,) = replay(settings, mine)
            assert line.endswith(" 5 requests sent, 0 refused")  # 3 steps, the cost, the end
            assert replay(settings, mine) == []
        stored = only_run(state)
        assert (stored.info.run_id, stored.info.status) == (before.info.run_id, "FINISHED")
        history = client_of(state).get_metric_history(stored.info.run_id, "m")
        assert [(m.step, m.value) for m in history] == [(step, step / 7) for step in range(6)]
        times = [m.timestamp for m in history]
        assert times == sorted(times) and stored.info.end_time < time.time() * 1000 - 1000
        shown = client_of(state).download_artifacts(stored.info.run_id, "report.html", str(tmp_path))
        assert Path(shown).read_text() == "as it was"

    def test_a_server_is_named_not_served(self, state: Path, capsys: pytest.CaptureFixture[str]) -> None:
        show(TrackingSettings(uri="http://me:secret@127.0.0.1:9"), state, 5000)
        assert capsys.readouterr().out == "The runs are on an MLflow server: http://***@127.0.0.1:9\n"

    def test_a_taken_port_is_named(self, state: Path) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            with pytest.raises(NinegridError, match=f"port {port} of 127.0.0.1 cannot be used"):
                show(TrackingSettings(), state, port)

    def test_the_command_reads_the_projects_settings(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            command = [sys.executable, "-m", "ninegrid.tracking", "ui", "--port", port]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert done.stderr.startswith(f"error: port {port}")
        assert "--port 5000" in done.stderr


def test_the_mirror_of_nothing_is_a_run_too() -> None:
    Run(None).metrics({"m": 1.0}, 1)


@contextmanager
def serving(state: Path, port: int) -> Iterator[str]:
    """The real `mlflow ui`, as `show` starts it."""
    # The store is a copy: let its artifacts lie beside it, and not beside what it was copied from.
    open_store(store_uri(TrackingSettings(), state), "ninegrid", state)
    code = textwrap.dedent("""
        import sys
        from pathlib import Path
        from ninegrid.tracking.__main__ import TrackingSettings, show
        show(TrackingSettings(), Path(sys.argv[1]), int(sys.argv[2]))
    """)
    command = [sys.executable, "-c", code, str(state), str(port)]
    address = f"http://127.0.0.1:{port}"
    with running(command, state / "server.log", lambda: is_served(f"{address}/health"), cwd=ROOT):
        yield address


def test_a_run_within_a_sweep_names_it_and_its_dvc_experiment(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVC_EXP_NAME", "mine-1234")
    monkeypatch.setenv(SWEEP_VARIABLE, "mine")
    monkeypatch.setenv(CELL_VARIABLE, "seed=1")
    with track(TrackingSettings(), "s", {}, state=state):
        pass
    run = only_run(state)
    assert run.info.run_name.startswith("s seed=1 ")
    tags = run.data.tags
    assert (tags["ninegrid.dvc_experiment"], tags["ninegrid.sweep"]) == ("mine-1234", "mine")
