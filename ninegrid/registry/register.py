"""Makes a retested policy a version of a registered model, once."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ninegrid.errors import NinegridError
from ninegrid.outputs import write_json
from ninegrid.progress import say
from ninegrid.registry.retested import Retested
from ninegrid.registry.words import COMPARISON, POLICY, description, numbers, version_tags
from ninegrid.tracking.settings import TrackingSettings, store_uri, without_password
from ninegrid.tracking.store import failures, open_store, set_environment

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run
    from mlflow.entities.model_registry import ModelVersion

FOLDER = "policy"
"""Of the run's artifacts."""
MB = 1e6


@dataclass(frozen=True)
class Registered:
    """Where a policy is in the registry; ``new``: it came there just now."""

    name: str
    version: str
    uri: str
    new: bool


def register(
    settings: TrackingSettings, state: Path, retested: Retested, name: str, scratch: Path
) -> Registered:
    """Register the policy under ``name``, unless it is there with the same retest.

    Its files become artifacts of the retest's run, found in the store by what it measured; where the store
    has none, of a run made for them.

    Args:
        state: folder of shared state.
        scratch: a folder for files on their way.

    Raises:
        NinegridError: the name is none that MLflow takes, or the store does not answer.
    """
    _check_name(name)
    set_environment()
    uri = store_uri(settings, state)
    with _told(uri):
        client, experiment_id = open_store(uri, settings.experiment, state)
        known = _find_version(client, name, retested)
        if known is not None:
            return Registered(name, str(known.version), uri, new=False)
        run_id = _find_run(client, experiment_id, retested) or _make_run(
            client, experiment_id, retested, scratch
        )
        _upload(client, run_id, retested, without_password(uri))
        version = _make_version(client, name, run_id, retested)
    return Registered(name, str(version.version), uri, new=True)


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[\w\-. ]+", name) or not name.strip(" ."):
        raise NinegridError(
            f"a model cannot be called {name!r}; expected letters, digits, spaces and _ - .",
            hint="python -m ninegrid.tracking register --name NAME",
        )


@contextmanager
def _told(uri: str) -> Iterator[None]:
    try:
        yield
    except failures() as error:
        first = (str(error).strip().splitlines() or [""])[0][:200]
        raise NinegridError(
            f"MLflow at {without_password(uri)} did not register the policy: {type(error).__name__}: {first}",
            hint="once it answers, run the same command again",
        ) from error


def _find_version(client: MlflowClient, name: str, retested: Retested) -> ModelVersion | None:
    """The newest version with this policy and this retest."""
    wanted = {POLICY: retested.digests["policy"], COMPARISON: retested.digests["comparison"]}
    found = [v for v in client.search_model_versions(f"name='{name}'") if wanted.items() <= v.tags.items()]
    return max(found, key=lambda version: int(version.version), default=None)


def _find_run(client: MlflowClient, experiment_id: str, retested: Retested) -> str | None:
    """The newest run of a retest of this policy against this baseline, with these very numbers."""
    wanted = {"ninegrid.stage": "retest", **retested.inputs}
    clauses = [f"tags.`{tag}` = '{value}'" for tag, value in wanted.items()]
    query = " and ".join([*clauses, "attributes.status = 'FINISHED'"])
    runs = client.search_runs([experiment_id], query, order_by=["attributes.start_time DESC"])
    expected = numbers(retested.comparison)
    return next((run.info.run_id for run in runs if _has_numbers(run, expected)), None)


def _has_numbers(run: Run, expected: Mapping[str, float]) -> bool:
    """Up to rounding: a mean may have been summed in another order."""
    metrics = run.data.metrics
    return all(
        name in metrics and math.isclose(v, metrics[name], abs_tol=1e-9) for name, v in expected.items()
    )


def _make_run(client: MlflowClient, experiment_id: str, retested: Retested, scratch: Path) -> str:
    from mlflow.entities import Metric

    say("register: the retest's run is not in this store; its numbers and files get a run of their own")
    tags = {"ninegrid.stage": "register", "mlflow.source.name": "register", **retested.inputs}
    run = client.create_run(experiment_id, tags=tags, run_name=f"register {retested.loop}")
    run_id, now = run.info.run_id, time.time_ns() // 1_000_000
    client.log_batch(run_id, metrics=[Metric(k, v, now, 0) for k, v in numbers(retested.comparison).items()])
    write_json(scratch / "comparison.json", retested.comparison)
    client.log_artifact(run_id, str(scratch / "comparison.json"))
    client.set_terminated(run_id)
    return str(run_id)


def _upload(client: MlflowClient, run_id: str, retested: Retested, where: str) -> None:
    say(f"register: copying {retested.n_bytes / MB:.1f} MB of policy to MLflow at {where}")
    began = time.perf_counter()
    client.log_artifacts(run_id, str(retested.policy), FOLDER)
    say(f"register: copied in {time.perf_counter() - began:.1f} s")


def _make_version(client: MlflowClient, name: str, run_id: str, retested: Retested) -> ModelVersion:
    if not client.search_registered_models(f"name='{name}'"):
        client.create_registered_model(name)
    # The run's own address, which follows a project that is moved.
    return client.create_model_version(
        name,
        source=f"runs:/{run_id}/{FOLDER}",
        run_id=run_id,
        tags=version_tags(retested),
        description=description(retested),
    )
