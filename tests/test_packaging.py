"""What an installation holds."""

import subprocess
import sys
import zipfile

from tests.conftest import ROOT


def test_the_wheel_holds_the_library_and_nothing_else(tmp_path):
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        tmp_path,
    ]
    subprocess.run([*command, str(ROOT)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"ninegrid"}
    pages = {f"ninegrid/{package}/page.html.j2" for package in ("report", "perturb", "compare")}
    for needed in ("ninegrid/chat/hermes.jinja", "ninegrid/report/style.css", *pages):
        assert needed in names
    assert not any("__pycache__" in name or name.endswith("entry_points.txt") for name in names)


def test_importing_the_settings_loads_nothing_heavy():
    heavy = "('torch', 'mlflow', 'transformers')"
    code = f"import sys, ninegrid.settings; print([m for m in {heavy} if m in sys.modules])"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.strip() == "[]"
