"""The container files, read as far as a machine without an engine can: what they name exists, and is safe.

The MLflow server of the compose file is really started, outside a container.
"""

import re
import shlex
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import PurePosixPath

import pytest
import yaml

from tests.conftest import ROOT
from tests.servers import free_port, is_served, running

COMPOSE_FILE = ROOT / ".docker" / "compose.yaml"
COMPOSE = yaml.safe_load(COMPOSE_FILE.read_text(encoding="utf-8"))
SERVICES = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
PROJECT = "/home/ninegrid/project"
SECRET = re.compile(r"token|password|secret|api_?key|credential", re.IGNORECASE)
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def instructions():
    """Instruction and arguments, lines joined, comments left out."""
    lines = [line for line in DOCKERFILE.splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [line.split(maxsplit=1) for line in joined.splitlines() if line.strip()]


def arguments_of(name):
    return [rest for word, rest in instructions() if word == name]


def test_the_image_runs_as_an_ordinary_user_and_holds_no_secret():
    words = [word for word, _ in instructions()]
    assert arguments_of("USER") == ["10001"]
    assert words.index("USER") < words.index("COPY")  # what is copied and made belongs to that user
    assert "--uid 10001" in arguments_of("RUN")[0]
    assert all("--chown=10001" in copied for copied in arguments_of("COPY"))
    assert not SECRET.search(" ".join(arguments_of("ENV") + arguments_of("ARG")))
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert {".venv", ".ninegrid", ".dvc/config.local", ".dvc/cache", "data/*"} <= set(ignored)


def test_the_base_has_a_version_and_what_is_copied_and_run_exists():
    assert arguments_of("FROM") == ["${BASE}"]
    (base,) = (argument for argument in arguments_of("ARG") if argument.startswith("BASE="))
    assert re.fullmatch(r"BASE=python:3\.1[12]-slim-\w+", base)
    for copied in arguments_of("COPY"):
        *sources, _ = [part for part in copied.split() if not part.startswith("--")]
        assert all((ROOT / source).exists() for source in sources), copied
    made = re.findall(r"\bmake ([a-z]+)", " ".join(arguments_of("RUN")))
    assert made == ["packages", "setup"]
    assert arguments_of("ENTRYPOINT") == ['["make"]']
    assert arguments_of("CMD") == ['["repro"]']
    assert {*made, "repro", "test", "gpu"} <= TARGETS


def test_the_lock_leaves_the_choice_of_cuda_to_torch_on_both_architectures():
    """torch's wheels pin CUDA's libraries exactly, and not the same ones on each machine."""
    locked = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    names = {line.partition("==")[0] for line in locked if "==" in line}
    assert "torch" in names
    assert not {name for name in names if re.match(r"nvidia|cuda|triton", name)}
    assert not [line for line in locked if "+" in line.partition("==")[2]]  # such as 2.13.0+cpu


def test_services_use_the_image_of_this_checkout_and_make_what_exists():
    for name, service in SERVICES.items():
        context = (COMPOSE_FILE.parent / service["build"]["context"]).resolve()
        assert context == ROOT, name
        assert service["image"] == "ninegrid"
        default = re.fullmatch(r"\$\{BASE:-(.+)\}", service["build"]["args"]["BASE"])[1]
        assert f"ARG BASE={default}\n" in DOCKERFILE
        if "entrypoint" not in service:
            assert set(service["command"]) <= TARGETS, name
    assert SERVICES["loop"]["profiles"] == ["cpu"]
    assert SERVICES["loop-gpu"]["profiles"] == ["gpu"]
    (device,) = SERVICES["loop-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}


def test_services_have_no_rights_that_they_do_not_need():
    for name, service in SERVICES.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not {"privileged", "user", "pid", "ipc", "network_mode", "secrets"} & service.keys(), name
        assert not SECRET.search(str(service.get("environment"))), name
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{name} is open to the network at {port}"


def test_every_volume_is_declared_and_belongs_to_the_user():
    made = re.search(r"mkdir -p (.*)", arguments_of("RUN")[-1])[1]
    home = dict(pair.split("=", 1) for pair in shlex.split(arguments_of("ENV")[0]))["HF_HOME"]
    folders = {str(PurePosixPath(PROJECT) / folder.replace("$HF_HOME", home)) for folder in shlex.split(made)}
    mounts = [mount.split(":") for service in SERVICES.values() for mount in service["volumes"]]
    assert {name for name, _ in mounts} == set(COMPOSE["volumes"])
    # A new volume takes over the owner of the folder in the image; where there is none it would be root's.
    assert {path for _, path in mounts} == folders


def test_the_loop_waits_for_the_server_and_knows_its_address():
    host = COMPOSE["x-loop"]["environment"]["MLFLOW_TRACKING_URI"].removeprefix("http://")
    assert host == "mlflow:5000"
    for name in ("loop", "loop-gpu"):
        assert SERVICES[name]["depends_on"] == {"mlflow": {"condition": "service_healthy"}}
        assert set(SERVICES[name]["networks"]) & set(SERVICES["mlflow"]["networks"])
    assert "healthcheck" in SERVICES["mlflow"]
    assert f"--allowed-hosts={host}," in " ".join(SERVICES["mlflow"]["command"])


def test_the_commands_in_the_comments_name_what_exists():
    told = re.findall(r"docker compose -f (\S+) (.*)", COMPOSE_FILE.read_text(encoding="utf-8"))
    assert len(told) > 5
    for file, rest in told:
        assert (ROOT / file) == COMPOSE_FILE
        words = rest.partition("  ")[0].split()
        if "--profile" in words:
            assert [words[words.index("--profile") + 1]] in [s.get("profiles") for s in SERVICES.values()]
        if "run" in words:
            service, target, *_ = words[words.index("--rm") + 1 :]
            assert service in SERVICES and target in TARGETS


def command_here(command, folder, port):
    """A command of the container as it runs here: our Python, our folder, a free port."""
    here = [
        part.replace("/home/ninegrid/mlflow", str(folder)).replace("=5000", f"={port}") for part in command
    ]
    # The port in the addresses that the server accepts is the one in the container.
    return [re.sub(r"127\.0\.0\.1:5000/health", f"127.0.0.1:{port}/health", part) for part in here]


def status(url, host):
    request = urllib.request.Request(url, headers={"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.slow
def test_the_server_starts_is_healthy_and_answers_only_those_who_know_its_name(tmp_path):
    service, port = SERVICES["mlflow"], free_port()
    home, store = tmp_path / "home", tmp_path / "store"
    home.mkdir()
    store.mkdir()
    assert service["entrypoint"] == [f"{PROJECT}/.venv/bin/mlflow", "server"]
    command = [sys.executable, "-m", "mlflow", "server", *command_here(service["command"], store, port)]
    command[command.index("--host=0.0.0.0")] = "--host=127.0.0.1"  # a container's 0.0.0.0 is its own
    environment = {**service["environment"], "PATH": "/usr/bin:/bin", "HOME": str(home)}
    url = f"http://127.0.0.1:{port}"
    answers = lambda: is_served(f"{url}/health")  # noqa: E731
    with running(command, tmp_path / "log", answers, cwd=home, env=environment):
        kind, python, *check = command_here(service["healthcheck"]["test"], store, port)
        assert (kind, python) == ("CMD", f"{PROJECT}/.venv/bin/python")
        assert subprocess.run([sys.executable, *check], check=False).returncode == 0
        experiments = f"{url}/api/2.0/mlflow/experiments/search?max_results=1"
        assert status(experiments, "mlflow:5000") == 200
        assert status(experiments, "localhost:5000") == 200
        assert status(experiments, "elsewhere.example") == 403
    assert (store / "mlflow.db").exists()
    assert service["read_only"] and not list(home.iterdir())  # it writes into its volume and /tmp alone
    broken = [part.replace("/health", "/no-such-page") for part in check]
    assert subprocess.run([sys.executable, *broken], check=False, capture_output=True).returncode != 0
