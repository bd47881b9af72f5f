"""The doctor: what each check says of things that are well, and of things that are broken on purpose."""

import os
import re
import shutil
import sqlite3
import subprocess
import sys

import pytest

from ninegrid.doctor import checkout, installation
from ninegrid.doctor.__main__ import CHECKS
from ninegrid.doctor.findings import Finding, examine, text
from ninegrid.doctor.room import disk_finding
from ninegrid.errors import DataError
from tests.conftest import ROOT

NAMES = [name for name, _ in CHECKS]


def test_a_check_that_breaks_stops_no_other():
    def broken():
        raise KeyError("what")

    def wrong():
        raise DataError("this file is damaged", hint="mend it")

    def absent():
        import no_such_package  # noqa: F401

        return Finding("ok", "never")

    found = dict(examine([("a", broken), ("b", wrong), ("c", absent), ("d", lambda: Finding("ok", "well"))]))
    assert [f.status for f in found.values()] == ["fail", "fail", "fail", "ok"]
    assert "KeyError: 'what'" in found["a"].text
    assert text("b", found["b"]).splitlines() == [
        "fail b             this file is damaged",
        "                   -> mend it",
    ]
    assert "no_such_package" in found["c"].text
    assert found["c"].hint == "make setup"


def test_what_is_installed_here_is_what_is_locked():
    assert installation.python().status == "ok"
    assert installation.packages().status in ("ok", "warn")
    assert installation.torch_build().status == "ok"
    assert installation.cores().status in ("ok", "warn")
    assert installation.bitsandbytes().status == "ok"


def test_a_missing_and_a_differing_package_are_named(monkeypatch, tmp_path):
    monkeypatch.setattr(installation, "project_root", lambda: tmp_path)
    lock = tmp_path / "requirements.lock"
    lock.write_text("# locked\npytest==0.1\n")
    differs = installation.packages()
    assert differs.status == "warn"
    assert re.search(r"pytest \S+, locked 0\.1", differs.text)
    lock.write_text("pytest==0.1\nno-such-package==1.0\n")
    lacks = installation.packages()
    assert (lacks.status, lacks.text) == ("fail", "1 of 2 are missing: no-such-package")
    lock.write_text("")
    assert installation.packages().status == "fail"


def test_a_store_that_another_process_holds_is_told(tmp_path):
    file = tmp_path / "mlflow.db"
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("CREATE TABLE runs (id)")
    assert checkout._database(file).status == "ok"
    holder.execute("BEGIN EXCLUSIVE")
    busy = checkout._database(file)
    assert busy.status == "warn"
    assert "locked" in busy.text
    holder.close()
    file.write_bytes(b"not a database" * 100)
    assert checkout._database(file).status == "warn"


def test_a_server_that_is_not_there_is_told():
    from tests.servers import free_port

    gone = checkout._server(f"http://127.0.0.1:{free_port()}")
    assert gone.status == "warn"
    assert "does not answer" in gone.text


def test_disks_are_asked_for_what_is_written(tmp_path):
    free = shutil.disk_usage(tmp_path).free
    later = tmp_path / "not" / "yet"
    assert disk_finding({later: 1000}).status == "ok"
    # Two folders on one disk share it: half and a bit for each is more than there is.
    both = disk_finding({later: free // 2 + 10**9, tmp_path: free // 2 + 10**9})
    assert both.status == "fail"
    assert "a run may write" in both.text


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_folder_that_cannot_be_written_fails(tmp_path):
    tmp_path.chmod(0o500)
    assert disk_finding({tmp_path / "out": 0}).status == "fail"
    assert checkout._folder(tmp_path / "out").status == "fail"
    tmp_path.chmod(0o700)


def test_it_works_where_no_package_is_installed(tmp_path):
    """Nothing but the standard library: every check speaks, and the exit status tells."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        [sys.executable, "-S", "-m", "ninegrid.doctor"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stderr
    said = [line for line in result.stdout.splitlines() if not line.startswith(" ")]
    assert [line.split()[1] for line in said] == NAMES
    status = {line.split()[1]: line.split()[0] for line in said}
    assert status["python"] == "ok"
    assert status["packages"] == status["torch"] == status["params.yaml"] == "fail"
    assert "-> make setup" in result.stdout


@pytest.mark.slow
def test_in_a_loop_that_has_run_only_the_damaged_model_fails(finished):
    project = finished
    shutil.copy(ROOT / "requirements.lock", project.root)
    weights = next((project.root / "data" / "model").glob("*.safetensors"))
    data = weights.read_bytes()
    weights.unlink()  # it may be a link into DVC's cache
    weights.write_bytes(data[:-1])
    done = project.python("-m", "ninegrid.doctor", check=False)
    said = {line.split()[1]: line for line in done.stdout.splitlines() if not line.startswith(" ")}
    assert done.returncode == 1
    assert [name for name, line in said.items() if line.startswith("fail")] == ["model"]
    assert "is damaged" in said["model"]
    assert "fetch_model" in said["dvc"]
    assert "training needs" in said["memory"]
