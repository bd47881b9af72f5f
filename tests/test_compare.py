"""Loops side by side: differences by hand, the page, and loops read from git and DVC."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import pytest
import yaml

from ninegrid.compare.differences import changed_settings, costs, less_the_first
from ninegrid.compare.loop import Loop, read_loop
from ninegrid.compare.page import write_comparison
from ninegrid.errors import ConditionsError, DataError
from stages.compare import main

BOOTSTRAP = {"resamples": 2000, "seed": 7, "confidence": 0.95}
OUTCOMES = ("illegal", "win")


def episodes(scores):
    """Replies to as many examples of a class each; the greedy ones score the same."""
    return [
        {"example": {"id": f"e{i}"}, "sample": 0, "group": f"g{i}", "decoding": d, "score": score}
        for d in ("sampled", "greedy")
        for i, score in enumerate(scores)
    ]


def side(scores):
    mean = sum(scores) / len(scores)
    change = {"before": -1.0, "after": mean, "change": mean + 1, "low": mean, "high": mean + 2}
    rate = {"before": 0.0, "after": 0.5, "change": 0.5, "low": 0.1, "high": 0.9}
    return {"score": change, "outcomes": dict.fromkeys(OUTCOMES, rate), "boards": len(scores), "groups": 8}


def loop(name, scores, **params):
    course = {"rollout/boards": 4.0, "rollout/response_len_mean": 25.0, "train/distinct_tokens": 100.0}
    rows = [{"step": 1.0 + i, "rollout/score_mean": 0.1 * i, **course} for i in range(3)]
    settings = {"train.n_samples": 8, "train.seed": 1, "reward.win": 1.0, "eval.seed": 7, **params}
    sides = {d: side(scores) for d in ("sampled", "greedy")}
    comparison = {**sides, "bootstrap": BOOTSTRAP, "players": {"random_legal": 0.48}}
    return Loop(name, settings, comparison, episodes(scores), rows)


FIRST = loop("first", [0.0] * 8)
BETTER = loop("better", [0.5] * 6 + [1.0] * 2, **{"reward.win": 2.0})
NOISY = loop("noisy", [1.0, -1.0] * 4, **{"train.seed": 2})


def test_settings_that_differ_are_told():
    assert changed_settings([FIRST, BETTER, NOISY]) == {
        "train.seed": [1, 1, 2],
        "reward.win": [1.0, 2.0, 1.0],
    }
    other = replace(FIRST, params={**FIRST.params, "new.key": 3})
    assert changed_settings([FIRST, other]) == {"new.key": ["(absent)", 3]}


def test_a_loop_less_the_first_is_paired_by_reply():
    better, noisy = less_the_first([FIRST, BETTER, NOISY], "sampled")
    assert (better["before"], better["after"]) == (0.0, 0.625)
    assert better["change"] == 0.625 and better["low"] > 0.49
    assert noisy["change"] == 0.0 and noisy["low"] < -0.4 and noisy["high"] > 0.4
    # All differences alike: the interval has no width.
    (shifted,) = less_the_first([NOISY, loop("x", [1.5, -0.5] * 4)], "sampled")
    assert (shifted["low"], shifted["high"]) == (0.5, 0.5)


def test_one_class_alone_has_no_interval():
    alone = [replace(one, episodes=[{**e, "group": "g"} for e in one.episodes]) for one in (FIRST, BETTER)]
    (found,) = less_the_first(alone, "greedy")
    assert (found["change"], found["low"], found["high"]) == (0.625, None, None)


def test_costs_are_counted_from_the_steps():
    # 3 steps of 4 boards, 8 replies to each, 25 tokens a reply.
    assert costs(FIRST) == {
        "steps": 3, "examples sampled": 12, "replies sampled": 96, "tokens sampled": 2400,
        "distinct tokens trained on": 300,
    }  # fmt: skip
    old = replace(FIRST, steps=[{**row, "train/distinct_tokens": None} for row in FIRST.steps])
    assert costs(old)["distinct tokens trained on"] is None


def test_the_page_says_better_and_within_noise_and_is_the_same_each_time(tmp_path):
    page = write_comparison(tmp_path / "a", [FIRST, BETTER, NOISY]).read_text()
    assert re.search(r"better: sampled better by \+0\.625 \(\+0\.\d+ to \+0\.\d+\)", page)
    assert re.search(r"noisy: sampled within noise: 0\.000", page)
    assert re.search(r"reward\.win</th><td>1\.0</td><td>2\.0</td><td>1\.0</td>", page)
    assert page.count("<svg") == 4 and "<script" not in page
    assert write_comparison(tmp_path / "b", [FIRST, BETTER, NOISY]).read_text() == page
    assert {p.name for p in (tmp_path / "a").iterdir()} == {
        "compare.html", "scores.svg", "scores.png", "courses.svg", "courses.png",
    }  # fmt: skip


def test_names_are_shown_as_text(tmp_path):
    page = write_comparison(tmp_path, [FIRST, replace(BETTER, name="<b>\u202e")]).read_text()
    assert "<b>" not in page and "\u202e" not in page


def test_loops_that_were_asked_other_boards_are_refused(tmp_path):
    with pytest.raises(ConditionsError, match="first and short did not answer the same: sampled, example e7"):
        write_comparison(tmp_path, [FIRST, loop("short", [0.0] * 7)])


def test_loops_that_were_evaluated_otherwise_are_refused(tmp_path):
    with pytest.raises(ConditionsError, match=r"eval\.seed is not the same in all loops: 7, 99"):
        write_comparison(tmp_path, [FIRST, loop("x", [0.0] * 8, **{"eval.seed": 99})])


def test_settings_are_those_that_ran(whole_loop, tmp_path):
    shutil.copytree(whole_loop.root, tmp_path / "project", symlinks=True)
    params = tmp_path / "project/params.yaml"
    params.write_text(params.read_text().replace("  win: 1.0\n", "  win: 7.0\n"))
    assert read_loop(tmp_path / "project", "workspace").params["reward.win"] == 1.0
    lock = tmp_path / "project/dvc.lock"
    entries = yaml.safe_load(lock.read_text())
    # What comes after the retest may be of an earlier loop: a cell of a sweep does not run it.
    entries["stages"]["perturb_retest"]["params"]["params.yaml"]["eval"]["seed"] = 99
    lock.write_text(yaml.safe_dump(entries))
    assert read_loop(tmp_path / "project", "workspace").params["eval.seed"] == 7
    entries["stages"]["retest"]["params"]["params.yaml"]["reward"]["win"] = 3.0
    lock.write_text(yaml.safe_dump(entries))
    with pytest.raises(DataError, match="ran with different settings of reward"):
        read_loop(tmp_path / "project", "workspace")


def test_two_different_loops_are_needed(capsys):
    assert main(["workspace"]) == 2
    assert main(["workspace", "workspace"]) == 2
    assert main(["workspace", ""]) == 2
    assert "expected two or more different loops" in capsys.readouterr().err


def test_a_loop_is_the_same_from_the_workspace_and_from_git(whole_loop, tmp_path):
    here, there = read_loop(whole_loop.root, "workspace"), read_loop(whole_loop.root, "HEAD")
    assert replace(there, name=here.name) == here
    assert "the same, reply by reply" in write_comparison(tmp_path, [here, there]).read_text()


def test_what_is_no_loop_is_named(whole_loop, tmp_path):
    with pytest.raises(DataError, match="nosuch is no experiment or revision"):
        read_loop(whole_loop.root, "nosuch")
    with pytest.raises(DataError, match=r"HEAD~1 has no dvc\.lock"):
        read_loop(whole_loop.root, "HEAD~1")
    (tmp_path / "params.yaml").write_text((whole_loop.root / "params.yaml").read_text())
    with pytest.raises(DataError, match=r"workspace has no dvc\.lock"):
        read_loop(tmp_path, "workspace")


@pytest.mark.parametrize(
    ("damaged", "content", "message"),
    [
        ("dvc.lock", b"<<<<<<< ours\nstages: [\n", "dvc.lock of workspace cannot be read"),
        ("dvc.lock", b"schema: '2.0'\n", "dvc.lock of workspace has no stages"),
        ("params.yaml", b"\xff\xfe", "params.yaml of workspace is no text"),
        ("params.yaml", b"- a list\n", "params.yaml of workspace has no paths"),
    ],
)
def test_a_damaged_loop_is_one_message(whole_loop, tmp_path, damaged, content, message):
    for name in ("dvc.lock", "params.yaml"):
        shutil.copy(whole_loop.root / name, tmp_path / name)
    (tmp_path / damaged).write_bytes(content)
    with pytest.raises(DataError, match=re.escape(message)):
        read_loop(tmp_path, "workspace")
