"""``python -m ninegrid.tracking ui [--port N]``: MLflow's own pages on this project's store.

It only finds the store and hands over to ``mlflow ui``; what is shown there is MLflow's.
``python -m ninegrid.tracking replay`` gives the store what it did not take while it was down.
``python -m ninegrid.tracking register`` makes the policy of a finished loop a model of its registry.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NoReturn

from ninegrid.config import bind
from ninegrid.errors import NinegridError
from ninegrid.params import read_params
from ninegrid.paths import PathSettings
from ninegrid.ports import HOST, require_free
from ninegrid.project import store_root
from ninegrid.tracking.settings import TrackingSettings, is_database, store_uri, without_password
from ninegrid.tracking.store import artifact_root, set_environment

if TYPE_CHECKING:
    from ninegrid.registry.register import Registered


def main() -> None:
    """Show the store that ``params.yaml`` names, or fill its gaps."""
    parser = argparse.ArgumentParser(
        prog="python -m ninegrid.tracking", description="Look at the mirrored runs."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    ui = commands.add_parser("ui", help=f"open MLflow's pages at {HOST}")
    ui.add_argument("--port", type=int, default=5000)
    commands.add_parser("replay", help="give the store what it did not take while it was down")
    new = commands.add_parser("register", help="make a retested policy a version of a registered model")
    new.add_argument(
        "loop", nargs="?", default="workspace", help="a DVC experiment, a revision, or workspace"
    )
    new.add_argument("--name", help="of the model (default: EXPERIMENT-MODEL, such as ninegrid-smollm2_135m)")
    arguments = parser.parse_args()
    try:
        if arguments.command == "replay":
            fill_gaps(*_configured())
        elif arguments.command == "register":
            register_policy(*_configured(), arguments.loop, arguments.name)
        else:
            show(*_configured(), arguments.port)
    except NinegridError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from error


def show(settings: TrackingSettings, state: Path, port: int) -> None:
    """Replace this process by ``mlflow ui`` on the store, or name the server that shows it already."""
    uri = store_uri(settings, state)
    if uri.startswith(("http:", "https:")):
        print(f"The runs are on an MLflow server: {without_password(uri)}")
        return
    require_free(port, f"python -m ninegrid.tracking ui --port {5001 if port == 5000 else 5000}")
    print(f"MLflow on {without_password(uri)}: http://{HOST}:{port} (Ctrl-C ends it)", flush=True)
    _become_mlflow(uri, state, port)


def fill_gaps(settings: TrackingSettings, state: Path) -> None:
    """Send what waits, and say what was sent."""
    from ninegrid.tracking.replay import replay

    for line in replay(settings, state) or ["nothing waits"]:
        print(f"replay: {line}")


def register_policy(settings: TrackingSettings, state: Path, loop: str, name: str | None) -> None:
    """Register the policy of a finished loop, and say where it is."""
    from ninegrid.registry.register import register
    from ninegrid.registry.retested import read_retested

    with TemporaryDirectory(prefix="ninegrid-") as scratch:
        retested = read_retested(store_root(), loop, Path(scratch))
        name = name or f"{settings.experiment}-{retested.training['model']}"
        done = register(settings, state, retested, name, Path(scratch))
    what = "registered as" if done.new else "this policy with this retest is"
    print(f"{name}: {what} version {done.version}")
    print(f"its files: {_download_command(done)}")


def _download_command(done: Registered) -> str:
    store, model = without_password(done.uri), f"models:/{done.name}/{done.version}"
    return f"MLFLOW_TRACKING_URI={store} mlflow artifacts download -u '{model}' -d DIR"


def _configured() -> tuple[TrackingSettings, Path]:
    """The tracking settings and the state folder of ``params.yaml``."""
    raw = read_params()
    paths = bind(PathSettings, raw.get("paths", {}), "paths")
    return bind(TrackingSettings, raw.get("tracking", {}), "tracking"), paths.state_folder("")


def _become_mlflow(uri: str, state: Path, port: int) -> NoReturn:
    set_environment()
    # Background jobs serve MLflow's own evaluations, of which this project has none.
    os.environ.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", uri]
    command += ["--host", HOST, "--port", str(port), "--workers", "1"]
    artifacts = artifact_root(uri, state)
    if is_database(uri) and artifacts is not None:
        command += ["--default-artifact-root", artifacts]
    state.mkdir(parents=True, exist_ok=True)
    os.chdir(state)  # whatever MLflow leaves in its working directory stays out of the checkout
    os.execv(sys.executable, command)


if __name__ == "__main__":
    main()
