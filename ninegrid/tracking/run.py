"""One mirrored run for each execution of a stage."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, SupportsFloat

import yaml

from ninegrid.config import flatten
from ninegrid.project import project_root, store_root
from ninegrid.tracking.mirror import Mirror
from ninegrid.tracking.names import NAME_LIMIT, PARAM_LIMIT, TAG_LIMIT, as_text, cut, safe_name
from ninegrid.tracking.outbox import Outbox, RunHead
from ninegrid.tracking.provenance import CELL, experiment_tags, git_tags, process_tags
from ninegrid.tracking.requests import Files, Metrics, Params, Tag, Text
from ninegrid.tracking.settings import TrackingSettings, store_uri
from ninegrid.tracking.signals import Terminated, unwinding
from ninegrid.tracking.store import failures, open_store, set_environment
from ninegrid.tracking.traces import FEW, Trace, Traces
from ninegrid.tracking.usage import Stopwatch, peak_memory

NONFINITE = "ninegrid.nonfinite_metrics"


class Run:
    """What a stage tells MLflow; without a mirror (tracking switched off) it does nothing."""

    def __init__(self, mirror: Mirror | None, *, artifacts: bool = True, traces: int = 0) -> None:
        self._mirror, self._artifacts = mirror, artifacts
        self.trace_limit = 0 if mirror is None else traces
        self._nonfinite: list[str] = []

    def metrics(self, values: Mapping[str, SupportsFloat], step: int | None = None) -> None:
        """Mirror numbers in one request.  NaN and infinities are left out and named in a tag."""
        numbers = {name: float(value) for name, value in values.items()}
        finite = {name: value for name, value in numbers.items() if math.isfinite(value)}
        self._note_nonfinite([name for name in numbers if name not in finite])
        if self._mirror is not None and finite:
            self._mirror.send(Metrics(finite, time.time_ns() // 1_000_000, step or 0))

    def params(self, values: Mapping[str, Any]) -> None:
        """Mirror parameters, nested ones under dotted names.  MLflow lets none be changed later."""
        flat = {safe_name(k): cut(as_text(v), PARAM_LIMIT) for k, v in flatten(values).items()}
        if self._mirror is not None and flat:
            self._mirror.send(Params(flat))

    def tag(self, name: str, value: object) -> None:
        """Mirror one tag; a later value replaces an earlier one."""
        if self._mirror is not None:
            self._mirror.send(Tag(safe_name(name), cut(as_text(value), TAG_LIMIT)))

    def artifact(self, path: Path | str, folder: str | None = None) -> None:
        """Mirror a file, or a folder with all it holds, into ``folder`` of the run's artifacts.

        Raises:
            FileNotFoundError: there is nothing at ``path``.
        """
        source = Path(path)
        if not source.exists():
            raise FileNotFoundError(f"{source} was to be mirrored to MLflow, but does not exist")
        if self._mirror is not None and self._artifacts:
            self._mirror.send(Files(str(source.absolute()), folder))

    def text(self, content: str, name: str) -> None:
        """Mirror ``content`` as the artifact file ``name``."""
        if self._mirror is not None and self._artifacts:
            self._mirror.send(Text(content, name))

    def traces(self, traces: Sequence[Trace]) -> None:
        """Mirror traces; how many of a kind are wanted says ``trace_limit``."""
        if self._mirror is not None:
            for begin in range(0, len(traces), FEW):
                self._mirror.send(Traces(traces[begin : begin + FEW]))

    def _note_nonfinite(self, names: list[str]) -> None:
        new = [name for name in names if name not in self._nonfinite]
        for name in new:
            print(
                f"warning: metric {name} is not finite; not mirrored to MLflow", file=sys.stderr, flush=True
            )
        if new:
            self._nonfinite += new
            self.tag(NONFINITE, ", ".join(self._nonfinite))


@contextmanager
def track(
    settings: TrackingSettings,
    stage: str,
    params: Mapping[str, Any],
    tags: Mapping[str, object] | None = None,
    *,
    state: Path | None = None,
) -> Iterator[Run]:
    """Mirror the block as one MLflow run, which ends as the block does.

    FINISHED when the block ends (or exits with code 0), FAILED when it raises, KILLED on Ctrl-C,
    SIGTERM and SIGHUP; whatever was raised goes on to the caller.  A store that does not answer
    never stops the block.  The time of a block that ends well, and its peak memory, are mirrored too.

    Args:
        settings: the ``tracking`` section.
        stage: the stage's name.
        params: the settings that ran; kept whole in the artifact ``params.yaml``.
        tags: what else describes the run: hashes of inputs (`input_hashes`), reward table, seed.
        state: folder of shared state; None: ``.ninegrid`` in `store_root`.
    """
    if not settings.enabled:
        yield Run(None)
        return
    with unwinding():
        mirror = _mirror(settings, stage, tags or {}, state or store_root() / ".ninegrid")
        run = Run(mirror, artifacts=settings.artifacts, traces=settings.traces)
        watch = Stopwatch()
        try:
            run.params(params)
            run.text(yaml.safe_dump(_plain(params), sort_keys=False, allow_unicode=True), "params.yaml")
            yield run
            run.metrics({"time/run_seconds": watch.total(), **peak_memory()})
        except BaseException as error:
            status = _status(error)
            if status == "FAILED":
                run.tag("ninegrid.error", f"{type(error).__name__}: {error}")
            mirror.close(status)
            raise
        mirror.close("FINISHED")


def _mirror(settings: TrackingSettings, stage: str, tags: Mapping[str, object], state: Path) -> Mirror:
    uri = store_uri(settings, state)
    git = git_tags(project_root())
    described: dict[str, object] = {
        "ninegrid.stage": stage,
        "mlflow.source.name": stage,
        **git,
        **process_tags(),
    }
    described |= {**experiment_tags(), **tags}
    texts = {safe_name(k): cut(as_text(v), TAG_LIMIT) for k, v in described.items()}
    revision = git.get("ninegrid.git_revision", "")[:7]
    dirty = "+" if git.get("ninegrid.git_dirty") == "true" else ""
    name = cut(" ".join(part for part in (stage, texts.get(CELL), revision + dirty) if part), NAME_LIMIT)
    head = RunHead(stage, settings.experiment, name, texts, time.time_ns() // 1_000_000)
    return Mirror(uri, head, Outbox(state, head), lambda: open_store(uri, settings.experiment, state))


def _status(error: BaseException) -> str:
    if isinstance(error, (KeyboardInterrupt, Terminated)):
        return "KILLED"
    if isinstance(error, SystemExit) and error.code in (None, 0):
        return "FINISHED"
    return "FAILED"


def _plain(value: Any) -> Any:
    """``value`` in the types that YAML can hold: mappings, lists, and what is neither as it is."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def close_dead_runs(settings: TrackingSettings, state: Path) -> None:
    """Set runs KILLED whose processes died without a word; a store that does not answer is left alone."""
    if not settings.enabled:
        return
    set_environment()
    with suppress(*failures()):
        open_store(store_uri(settings, state), settings.experiment, state)
