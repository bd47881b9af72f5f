"""A policy with its retest, from a finished loop, and proof that the files belong together.

``dvc.lock`` says which files there must be; nothing is taken that is not what it names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ninegrid.errors import DataError
from ninegrid.experiments.files import WORKSPACE, fetch, read_yaml
from ninegrid.tracking import input_hashes

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Retested:
    """A policy and what its retest found.

    Attributes:
        loop: the loop's name, see `ninegrid.compare.loop.read_loop`.
        policy: folder of the policy's files.
        digests: ``policy``, ``comparison`` and ``baseline`` -> what DVC knows them by.
        inputs: tags by which the retest's run is known, see `input_hashes`.
        training: the training's ``metrics.json``.
        comparison: the retest's ``comparison.json``.
    """

    loop: str
    policy: Path
    digests: Mapping[str, str]
    inputs: Mapping[str, str]
    training: Json
    comparison: Json

    @property
    def n_bytes(self) -> int:
        """Length of the policy's files together."""
        return sum(file.stat().st_size for file in self.policy.rglob("*") if file.is_file())


def read_retested(root: Path, loop: str, scratch: Path) -> Retested:
    """Read the policy of a loop with its retest, and check that they belong together.

    Args:
        root: the project.
        loop: ``workspace``, a DVC experiment or a git revision.
        scratch: an empty folder, for the files of a loop that is not the workspace's.

    Raises:
        DataError: there is no such loop, its policy was not retested, or a file is not what ``dvc.lock``
            names.
    """
    stages = read_yaml(root, loop, "dvc.lock", "stages")
    folders = read_yaml(root, loop, "params.yaml", "paths")
    paths = {
        "policy": folders["policy"],
        "comparison": f"{folders['retest']}/comparison.json",
        "baseline": f"{folders['baseline']}/episodes.jsonl",
        "training": f"{folders['train']}/metrics.json",
    }
    digests = _digests(loop, stages, paths)
    at = {name: _file(root, loop, path, scratch / name) for name, path in paths.items()}
    for name, path in at.items():
        _check(loop, paths[name], path, digests[name])
    return Retested(
        loop=loop,
        policy=at["policy"],
        digests={name: digests[name] for name in ("policy", "comparison", "baseline")},
        inputs=input_hashes({"policy": at["policy"], "baseline": at["baseline"]}),
        training=json.loads(at["training"].read_text(encoding="utf-8")),
        comparison=json.loads(at["comparison"].read_text(encoding="utf-8")),
    )


def dvc_digest(path: Path) -> str:
    """The md5 by which DVC knows a file; of a folder, that of its files' digests and names listed as JSON."""
    if not path.is_dir():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "md5").hexdigest()
    files = {p.relative_to(path).as_posix(): dvc_digest(p) for p in path.rglob("*") if p.is_file()}
    listed = [{"md5": files[name], "relpath": name} for name in sorted(files)]
    return hashlib.md5(json.dumps(listed).encode()).hexdigest() + ".dir"


def _digests(loop: str, stages: Json, paths: Mapping[str, str]) -> dict[str, str]:
    """What the stages left, once it is clear that the retest saw what training left."""
    if "retest" not in stages:
        raise DataError(
            f"the policy of {loop} has not been retested: dvc.lock has no retest", hint=_again(loop)
        )
    made = _listed(stages, "outs")
    for name in ("policy", "baseline"):
        path = paths[name]
        saw = {d["path"]: d["md5"] for d in stages["retest"]["deps"]}.get(path)
        if saw != made.get(path):
            raise DataError(
                f"the retest of {loop} is of another {path}: it saw {saw}, dvc.lock has {made.get(path)} now",
                hint=_again(loop),
            )
    missing = [path for path in paths.values() if path not in made]
    if missing:
        raise DataError(f"dvc.lock of {loop} names no {missing[0]}", hint=_again(loop))
    return {name: made[path] for name, path in paths.items()}


def _listed(stages: Json, kind: str) -> dict[str, str]:
    return {item["path"]: item["md5"] for stage in stages.values() for item in stage.get(kind, [])}


def _file(root: Path, loop: str, path: str, target: Path) -> Path:
    if loop == WORKSPACE:
        return root / path
    fetch(root, loop, path, target)
    return target


def _check(loop: str, name: str, path: Path, expected: str) -> None:
    if not path.exists():
        raise DataError(f"{name} of {loop} is missing, dvc.lock names it", hint=f"dvc checkout {name}")
    found = dvc_digest(path)
    if found != expected:
        raise DataError(
            f"{name} of {loop} is not what dvc.lock names: its digest is {found}, expected {expected}",
            hint=f"bring it back with: dvc checkout --force {name}",
        )


def _again(loop: str) -> str:
    return "dvc repro" if loop == WORKSPACE else "name a loop that has run to its end: dvc exp list"
