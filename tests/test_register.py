"""A policy in MLflow's registry: what it says of itself, that it comes there once, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from ninegrid.errors import NinegridError
from ninegrid.registry.register import Registered, register
from ninegrid.registry.retested import Retested, dvc_digest, read_retested
from ninegrid.registry.words import description, numbers
from ninegrid.tracking import TrackingSettings, track
from tests.conftest import Project
from tests.test_tracking import client_of, runs_in


def _change(before: float, after: float, half: float | None) -> dict[str, float | None]:
    change = after - before
    ends = (None, None) if half is None else (change - half, change + half)
    return {"before": before, "after": after, "change": change, "low": ends[0], "high": ends[1]}


def _side(change: dict[str, float | None], rate: dict[str, float | None]) -> dict[str, Any]:
    return {"score": change, "reward": change, "milestones": {"legal": rate}, "boards": 4}


COMPARISON = {
    "sampled": _side(_change(-1.0, 0.25, 0.5), _change(0.0, 0.75, 0.25)),
    "greedy": _side(_change(-0.5, 0.5, None), _change(0.25, 1.0, None)),
    "bootstrap": {"confidence": 0.9},
    "players": {"random": 0.5, "minimax": 1.0},
}
TRAINING = {"model": "small", "algorithm": "gspo", "steps": 3, "seed": 2}
DIGESTS = {"policy": "1.dir", "comparison": "2", "baseline": "3"}


def by_hand(tmp_path: Path) -> Retested:
    """A policy of one small file, with the comparison above."""
    folder = tmp_path / "the policy"
    folder.mkdir(exist_ok=True)
    (folder / "weights").write_text("w")
    inputs = {"input.policy": "a", "input.baseline": "b"}
    return Retested("workspace", folder, DIGESTS, inputs, TRAINING, COMPARISON)


def register_by_hand(settings: TrackingSettings, tmp_path: Path) -> str:
    return register(settings, tmp_path / "unused", by_hand(tmp_path), "model", tmp_path).version


def registered(state: Path, retested: Retested, tmp_path: Path, name: str = "model") -> Registered:
    return register(TrackingSettings(), state, retested, name, tmp_path)


def retest_run(state: Path, retested: Retested, comparison: dict[str, Any]) -> str:
    """A mirrored retest; returns its id."""
    with track(TrackingSettings(), "retest", {}, retested.inputs, state=state) as run:
        # The same means, summed in another order.
        run.metrics({name: value + 1e-15 for name, value in numbers(comparison).items()})
    return runs_in(state)[0].info.run_id


def test_a_comparison_in_numbers_and_words() -> None:
    found = numbers(COMPARISON)
    assert found["baseline/sampled/score_mean"] == -1.0
    assert found["retest/sampled/milestone/legal"] == 0.75
    assert found["change/sampled/score"] == 1.25
    assert (found["change/sampled/score_low"], found["change/sampled/score_high"]) == (0.75, 1.75)
    assert "change/greedy/score_low" not in found
    text = description(Retested("workspace", Path(), DIGESTS, {}, TRAINING, COMPARISON))
    assert text.startswith("`small` after 3 steps of `gspo`, seed 2, retested on 4 held-out boards")
    assert "| mean score, sampled | -1.000 | 0.250 | +1.250 (+0.750 to +1.750) |" in text
    assert "| legal rate, greedy | 0.250 | 1.000 | +0.750 (no interval) |" in text
    assert "change, with its 90% interval" in text
    assert "random 0.500, minimax 1.000" in text


def test_a_version_belongs_to_its_retest_and_is_made_once(state: Path, tmp_path: Path) -> None:
    retested = by_hand(tmp_path)
    mine = retest_run(state, retested, COMPARISON)
    retest_run(state, retested, {**COMPARISON, "greedy": COMPARISON["sampled"]})  # with another reward, say
    first = registered(state, retested, tmp_path)
    assert (first.version, first.new) == ("1", True)
    version = client_of(state).get_model_version("model", first.version)
    assert version.run_id == mine
    assert version.description == description(retested)
    assert version.tags["change/sampled/score_high"] == "1.75"
    assert (version.tags["ninegrid.baseline_md5"], version.tags["seed"]) == ("3", "2")

    again = registered(state, retested, tmp_path)
    assert (again.version, again.new) == (first.version, False)
    assert registered(state, retested, tmp_path, "other name").new
    retested_anew = replace(retested, digests={**DIGESTS, "comparison": "4"})
    assert registered(state, retested_anew, tmp_path).version == "2"
    assert len(client_of(state).search_model_versions("name='model'")) == 2
    assert len(runs_in(state)) == 2, "no run was made"


def test_without_the_retests_run_one_is_made(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = registered(state, by_hand(tmp_path), tmp_path)
    assert "the retest's run is not in this store" in capsys.readouterr().err
    (run,) = runs_in(state)
    assert client_of(state).get_model_version("model", first.version).run_id == run.info.run_id
    assert (run.info.status, run.data.tags["ninegrid.stage"]) == ("FINISHED", "register")
    assert run.data.metrics == numbers(COMPARISON)
    assert sorted(a.path for a in client_of(state).list_artifacts(run.info.run_id)) == [
        "comparison.json",
        "policy",
    ]


@pytest.mark.parametrize("name", ["", " ", "a/b", "a:b", "it's", ".."])
def test_a_name_that_mlflow_does_not_take_is_refused(name: str, state: Path, tmp_path: Path) -> None:
    with pytest.raises(NinegridError, match="a model cannot be called"):
        registered(state, by_hand(tmp_path), tmp_path, name)
    assert runs_in(state) == []


def test_a_store_that_is_down_is_named(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"not a database" * 100)
    with pytest.raises(NinegridError, match=r"mlflow\.db did not register the policy: DatabaseError"):
        registered(tmp_path, by_hand(tmp_path), tmp_path)


@pytest.mark.slow
class TestALoop:
    """The files of a loop that has run."""

    def test_its_policy_comes_back_from_the_registry_and_loads(
        self, whole_loop: Project, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from mlflow.artifacts import download_artifacts
        from transformers import AutoModelForCausalLM

        retested = read_retested(whole_loop.root, "workspace", tmp_path)
        done = registered(state, retested, tmp_path)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", done.uri)
        folder = Path(download_artifacts(f"models:/model/{done.version}", dst_path=str(tmp_path / "back")))
        # Everything that DVC tracks is there, and nothing else.
        assert dvc_digest(folder) == retested.digests["policy"]
        assert AutoModelForCausalLM.from_pretrained(folder).num_parameters() > 0

    def test_a_revision_is_read_like_the_workspace(self, whole_loop: Project, tmp_path: Path) -> None:
        here = read_retested(whole_loop.root, "workspace", tmp_path)
        there = read_retested(whole_loop.root, "main", tmp_path)
        assert replace(there, loop=here.loop, policy=here.policy) == here
        assert there.policy != here.policy
        assert dvc_digest(there.policy) == here.digests["policy"]

    @pytest.mark.parametrize(
        ("damage", "said"),
        [
            (lambda root: (root / "dvc.lock").unlink(), "workspace has no dvc.lock"),
            (lambda root: _relock(root, lambda s: s.pop("retest")), "has not been retested"),
            (
                lambda root: _relock(
                    root, lambda s: _out(s["train_gspo"], "data/policy").update(md5="5.dir")
                ),
                "is of another data/policy: it saw",
            ),
            (
                lambda root: (root / "data/policy/config.json").write_text("{}"),
                "data/policy of workspace is not what dvc.lock names",
            ),
            (
                lambda root: (root / "data/retest/comparison.json").unlink(),
                "data/retest/comparison.json of workspace is missing",
            ),
        ],
        ids=["never run", "no retest", "another policy", "changed file", "missing file"],
    )
    def test_what_does_not_belong_together_is_refused(
        self, whole_loop: Project, tmp_path: Path, damage: Callable[[Path], object], said: str
    ) -> None:
        root = tmp_path / "project"
        for name in ("data/policy", "data/retest", "data/baseline", "data/train"):
            shutil.copytree(whole_loop.root / name, root / name)
        for name in ("dvc.lock", "params.yaml"):
            shutil.copy(whole_loop.root / name, root / name)
        read_retested(root, "workspace", tmp_path)
        damage(root)
        with pytest.raises(NinegridError, match=said):
            read_retested(root, "workspace", tmp_path)


def _relock(root: Path, change: Callable[[dict[str, Any]], object]) -> None:
    lock = yaml.safe_load((root / "dvc.lock").read_text())
    change(lock["stages"])
    (root / "dvc.lock").write_text(json.dumps(lock))


def _out(stage: dict[str, Any], path: str) -> dict[str, Any]:
    return next(out for out in stage["outs"] if out["path"] == path)
