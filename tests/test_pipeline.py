"""The pipeline under DVC with a tiny model: what reruns when, and what is left behind.

Random weights learn nothing; what is shown here is the wiring that a real run stands on.
"""

import ast
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from ninegrid.params import compose
from tests.conftest import ROOT, SMOKE, Project

pytestmark = pytest.mark.slow

STAGES = [
    *("fetch_model", "generate_boards", "audit_reward", "baseline_eval", "try_alternatives"),
    *("warm_start", "train_gspo", "retest", "perturb_retest"),
]
RANDOM = ("experiment=smoke", "tracking=disabled")


def ran(output: str) -> list[str]:
    """Stages that DVC ran, told from what it printed."""
    return re.findall(r"^Running stage '(\w+)'", output, re.MULTILINE)


def repro(project, *arguments):
    return ran(project.dvc("repro", *arguments).stdout)


def test_what_reruns_when(finished):
    project = finished
    assert repro(project) == []

    (project.root / "README.md").write_text("other words\n")
    with (project.root / "ninegrid" / "progress.py").open("a") as file:
        file.write("\n# a change in a module that no output depends on\n")
    assert repro(project) == []

    before = (project.root / "data/baseline/episodes.jsonl").read_bytes()
    project.params(*SMOKE, "reward.win=2")
    assert sorted(repro(project)) == ["audit_reward", "perturb_retest", "retest", "train_gspo"]
    assert (project.root / "data/baseline/episodes.jsonl").read_bytes() == before

    project.params(*SMOKE, "reward.win=2", "alternatives.names=[more_examples]")
    assert sorted(repro(project)) == ["retest", "try_alternatives"]
    project.params(*SMOKE, "reward.win=2", "boards.seed=7", "boards.count=70")
    assert sorted(repro(project, "train_gspo")) == ["generate_boards", "train_gspo", "warm_start"]
    waiting = json.loads(project.dvc("status", "--json").stdout)
    assert sorted(waiting) == sorted({*STAGES[1:]} - {"generate_boards", "train_gspo", "warm_start"})

    # Back to settings that have been run before: DVC's run cache has the outputs.
    project.params(*SMOKE)
    output = project.dvc("repro").stdout
    assert ran(output) == []
    assert "is cached" in output


def test_forced_reruns_give_the_same_lock_and_leave_nothing_behind(finished):
    project = finished
    first = (project.root / "dvc.lock").read_bytes()
    assert repro(project, "-f") == STAGES
    assert (project.root / "dvc.lock").read_bytes() == first
    assert project.git("status", "--porcelain").stdout == ""
    ignored = project.git("status", "--porcelain", "--ignored").stdout
    stray = {line[3:] for line in ignored.splitlines() if "__pycache__" not in line}
    assert stray <= {".dvc/cache/", ".dvc/tmp/", ".ninegrid/", "data/"}


def test_episodes_can_be_judged_again(whole_loop, tictactoe):
    from ninegrid.chat.judging import judge_reply

    keys = {"example", "reply", "n_tokens", "outcome", "score", "reward"}
    for stage in ("baseline", "retest"):
        lines = (whole_loop.root / f"data/{stage}/episodes.jsonl").read_text().splitlines()
        heldout = (whole_loop.root / "data/boards/heldout.jsonl").read_text().splitlines()
        assert len(lines) == 2 * len(heldout)
        for line in map(json.loads, lines):
            assert keys <= set(line)
            example = tictactoe.parse(line["example"])
            assert judge_reply(tictactoe, example, line["reply"]).outcome == line["outcome"]
            assert tictactoe.score[line["outcome"]] == line["score"]


def test_an_experiment_composes_and_reruns_two_stages(finished):
    project = finished
    conf = project.root / "conf" / "config.yaml"
    text = conf.read_text().replace("experiment: default", "experiment: smoke")
    conf.write_text(text.replace("tracking: mlflow", "tracking: disabled"))
    smoke = project.root / "conf" / "experiment" / "smoke.yaml"
    with_talker = smoke.read_text().replace("tiny_random", "talker")
    smoke.write_text(with_talker.replace("train:\n", "train:\n  learning_rate: 0.01\n"))
    project.params()
    assert repro(project) == []
    project.git("commit", "-qam", "the settings are those of conf/")
    output = project.dvc("exp", "run", "-S", "reward.win=2", "-n", "double-win").stdout
    assert sorted(ran(output)) == ["audit_reward", "perturb_retest", "retest", "train_gspo"]
    shown = project.dvc("exp", "show", "--json").stdout
    assert "double-win" in shown


def test_every_execution_is_a_run_and_the_retest_tells_the_whole_loop(project):
    from mlflow import MlflowClient

    loop = ("experiment=smoke", "model=talker", "train.learning_rate=0.01", "reward.occupied=-0.25")
    project.params(*loop, "perturb.names=[letters]", "perturb.boards=4")
    project.dvc("repro", MLFLOW_TRACKING_URI="")
    client = MlflowClient(f"sqlite:///{project.root}/.ninegrid/mlflow.db")
    (experiment,) = [e for e in client.search_experiments() if e.name == "ninegrid"]
    runs = {run.data.tags["ninegrid.stage"]: run for run in client.search_runs([experiment.experiment_id])}
    assert sorted(runs) == sorted(set(STAGES) - {"try_alternatives", "warm_start"})  # with nothing to do
    assert {run.info.status for run in runs.values()} == {"FINISHED"}

    training = runs["train_gspo"]
    assert training.data.params["reward.win"] == "1.0"
    assert training.data.params["train.n_samples"] == "4"
    history = client.get_metric_history(training.info.run_id, "rollout/rewards_mean")
    assert [metric.step for metric in history] == [1, 2]

    found = runs["retest"].data.metrics
    comparison = json.loads((project.root / "data/retest/comparison.json").read_text())["sampled"]["score"]
    assert found["baseline/sampled/score_mean"] == pytest.approx(comparison["before"])
    assert found["retest/sampled/score_mean"] == pytest.approx(comparison["after"])
    assert found["change/sampled/score"] == pytest.approx(comparison["change"])
    rewards = found["retest/sampled/reward_mean"] - found["baseline/sampled/reward_mean"]
    assert found["change/sampled/reward"] == pytest.approx(rewards)
    names = {a.path for a in client.list_artifacts(runs["retest"].info.run_id)}
    assert {"report.html", "comparison.json", "figures", "retest"} <= names

    lines = (project.root / "data/retest/episodes.jsonl").read_text().splitlines()
    outcomes = {(e["decoding"], e["example"]["id"]): e["outcome"] for e in map(json.loads, lines)}
    traces = client.search_traces(
        locations=[experiment.experiment_id], run_id=runs["retest"].info.run_id, max_results=100
    )
    tags = [trace.info.tags for trace in traces]
    assert {(t["decoding"], t["board"]): t["outcome"] for t in tags} == outcomes
    assert {trace.data.spans[1].outputs for trace in traces} & {
        f"```\n{(project.root / 'data/retest/prompt.txt').read_text()}\n```"
    }

    perturbed = json.loads((project.root / "data/perturbed/metrics.json").read_text())["letters"]["sampled"]
    found = runs["perturb_retest"].data.metrics
    assert found["perturbed/letters/sampled/score"] == pytest.approx(perturbed["score"])
    assert found["perturbed/letters/sampled/change"] == pytest.approx(perturbed["change"])
    names = {a.path for a in client.list_artifacts(runs["perturb_retest"].info.run_id, "perturbed")}
    assert "perturbed/report.html" in names

    shown = project.python("-m", "ninegrid.summary").stdout
    assert f"{comparison['before']:+.3f} -> {comparison['after']:+.3f}" in shown


def test_another_task_goes_through_all_stages_by_configuration_alone(project):
    shutil.copy(ROOT / "tests" / "larger.py", project.root / "larger.py")
    (project.root / "conf/task/larger.yaml").write_text("_target_: larger.Larger\nlimit: 12\n")
    table = dict.fromkeys(["no_tool_call", "wrong_tool", "multiple_calls", "invalid_arguments"], -1.0)
    table |= {"smaller": 0.0, "larger": 1.0, "length_penalty": 0.0}
    (project.root / "conf/reward/larger.yaml").write_text(yaml.safe_dump(table))
    project.params(*SMOKE, "task=larger", "reward=larger")
    assert repro(project) == STAGES
    comparison = json.loads((project.root / "data/retest/comparison.json").read_text())
    assert set(comparison["sampled"]["milestones"]) == {"called", "right"}
    assert comparison["players"] == {"coin": 1.5}
    episode = json.loads((project.root / "data/retest/episodes.jsonl").read_text().splitlines()[0])
    assert set(episode["example"]) == {"id", "first", "second"}
    assert "Say which number is larger." in (project.root / "data/baseline/prompt.txt").read_text()
    assert "choose_square" not in (project.root / "data/retest/report.html").read_text()


def test_without_steps_the_policy_is_the_model(finished):
    project = finished
    project.params(*SMOKE, "train.steps=0")
    assert repro(project, "train_gspo") == ["train_gspo"]
    assert trained(project) == weights(project, "model")


def test_without_steps_the_retest_measures_the_warm_start_alone(project):
    sft = ("warm_start=sft", "warm_start.examples=6", "warm_start.learning_rate=0.01")
    project.params(*RANDOM, "boards.count=40", "train.steps=0", *sft)
    assert repro(project) == STAGES
    assert trained(project) == weights(project, "warm_start/model")
    assert trained(project) != weights(project, "model")
    page = (project.root / "data/retest/report.html").read_text()
    assert "before and after a warm start by SFT and 0 steps of GSPO" in page
    assert "No step was taken after the warm start by SFT" in page
    comparison = json.loads((project.root / "data/retest/comparison.json").read_text())
    assert comparison["sampled"]["n"] > 0

    # Any step goes on from there, and its policy is another one.
    project.params(*RANDOM, "boards.count=40", *sft)
    assert repro(project, "train_gspo") == ["train_gspo"]
    assert json.loads((project.root / "data/train/metrics.json").read_text())["warm_start"] == "sft"


def weights(project, folder):
    return hashlib.sha256((project.root / "data" / folder / "model.safetensors").read_bytes()).hexdigest()


def trained(project):
    return weights(project, "policy")


def test_a_warm_start_leaves_nothing_but_its_outputs_and_reaches_for_nothing(project, tmp_path):
    project.params(*RANDOM, "warm_start=dpo", "warm_start.examples=3", "warm_start.batch_size=2")
    repro(project, "fetch_model", "generate_boards")
    # TRL would report its use; whatever opens a connection is an error here.
    (tmp_path / "offline").mkdir()
    (tmp_path / "offline" / "sitecustomize.py").write_text(NO_CONNECTION)
    (tmp_path / "scratch").mkdir()
    before = set(project.root.rglob("*"))
    done = project.python(
        *("-m", "stages.warm_start"),
        HF_HUB_OFFLINE="0",
        TMPDIR=str(tmp_path / "scratch"),
        HF_HOME=str(tmp_path / "scratch" / "home"),
        PYTHONPATH=f"{tmp_path}/offline:{project.root}",
    )
    assert "connection to" not in done.stderr
    assert [path for path in (tmp_path / "scratch").rglob("*") if path.is_file()] == []
    new = {path.relative_to(project.root) for path in set(project.root.rglob("*")) - before}
    assert {str(path) for path in new if "__pycache__" not in path.parts and path.suffix} == {
        f"data/warm_start/{name}"
        for name in (
            *("record.json", "steps.csv", "metrics.json", "lessons.jsonl"),
            *sorted(f"model/{path.name}" for path in (project.root / "data/warm_start/model").iterdir()),
        )
    }


NO_CONNECTION = """
import sys

def refuse(event, arguments):
    if event in ("socket.getaddrinfo", "socket.connect"):
        print("connection to", arguments, file=sys.stderr, flush=True)

sys.addaudithook(refuse)
"""


def test_only_its_own_package_knows_about_boards():
    words = re.compile(r"tictactoe|tic.tac.toe|choose_square|occupied|minimax", re.IGNORECASE)
    for path in sorted((ROOT / "ninegrid").rglob("*.py")):
        if {"tictactoe", "play"} & set(path.parts):  # the play page is a page for this game
            continue
        strings_and_names = ast.dump(_without_docstrings(ast.parse(path.read_text())))
        assert not words.search(strings_and_names), path


def _without_docstrings(tree):
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [
                n for n in body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))
            ]
    return tree


def test_a_killed_training_resumes_to_the_same_policy(project):
    project.params(*SMOKE, "train.steps=60", "train.n_samples=8")
    repro(project, "baseline_eval", "warm_start")
    process = subprocess.Popen(
        [sys.executable, "-m", "dvc", "repro", "train_gspo"],
        cwd=project.root,
        env=project.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    _wait_for(lambda: list((project.root / ".ninegrid/checkpoints").glob("*/checkpoint.pt")), process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    policy = project.root / "data/policy/model.safetensors"
    assert not policy.exists()

    output = project.dvc("repro", "train_gspo")
    assert "resuming after step" in output.stderr
    resumed = hashlib.sha256(policy.read_bytes()).hexdigest()
    steps = (project.root / "data/train/steps.csv").read_bytes()
    assert list((project.root / ".ninegrid/checkpoints").glob("*/*")) == []

    output = project.dvc("repro", "-f", "-s", "train_gspo")
    assert "resuming" not in output.stderr
    assert hashlib.sha256(policy.read_bytes()).hexdigest() == resumed
    assert (project.root / "data/train/steps.csv").read_bytes() == steps


def _wait_for(condition, process, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, "the training ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("stage", "override", "message"),
    [
        ("train_gspo", "train.stepz=5", "unknown setting train.stepz; did you mean train.steps?"),
        ("train_gspo", "train.n_samples=1", "train.n_samples = 1, allowed: >= 2"),
        ("train_gspo", "boards.seed=5", "this stage does not read boards"),
        ("train_gspo", "train.learning_rate=1e38", "not finite"),
        ("train_gspo", "train.steps=${oops}", "cannot resolve the settings"),
        ("generate_boards", "boards.heldout_share=1.5", "boards.heldout_share = 1.5"),
        ("generate_boards", "boards.count=5000", "only 2201"),
        ("train_gspo", "reward.win=abc", "reward.win = 'abc', expected a number"),
        ("baseline_eval", "paths.model=data/nowhere", "nowhere"),
        ("baseline_eval", "paths.boards=data/nowhere", "nowhere"),
        ("baseline_eval", "paths.baseline=README.md", "README.md"),
        ("retest", "reward.win=2", "dvc repro audit_reward"),
        ("train_gspo", "paths.warm_start=data/nowhere", "make it with: dvc repro warm_start"),
        ("retest", "eval.seed=99", "seed: baseline 7, retest 99"),
        ("retest", "decoding.temperature=0.5", "temperature"),
    ],
)
def test_bad_settings_get_one_message_and_lose_nothing(ready, stage, override, message):
    before = _snapshot(ready.root / "data")
    result = ready.python("-m", f"stages.{stage}", override, check=False)
    assert result.returncode not in (0, 1)
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert _snapshot(ready.root / "data") == before


@pytest.mark.parametrize(
    ("damaged", "content", "message"),
    [
        ("baseline/episodes.jsonl", '{"example": 1}\n', "line 1 is not an episode"),
        ("baseline/conditions.json", "[]", "conditions.json cannot be read"),
        ("baseline/metrics.json", "{}", "expected an object with sampled, greedy"),
        ("train/metrics.json", "{}", "expected an object with algorithm"),
        ("boards/manifest.json", "{}", "expected an object with examples"),
        ("audit/audit.json", "{}", "expected an object with reward"),
        ("alternatives/metrics.json", '{"forced": {}}', "forced: expected a known name"),
        ("alternatives/episodes-more_examples.jsonl", "", "more_examples and the baseline do not hold"),
        ("train/steps.csv", "step,train/loss\n1,abc\n", "'abc' is not a number"),
        ("boards/heldout.jsonl", "nonsense\n", "heldout.jsonl"),
    ],
)
def test_damaged_files_get_one_message_before_anything_is_measured(ready, damaged, content, message):
    path = ready.root / "data" / damaged
    whole = path.read_bytes()
    try:
        path.write_text(content)
        result = ready.python("-m", "stages.retest", check=False)
    finally:
        path.write_bytes(whole)
    assert result.returncode == 2, result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert "retest: board" not in result.stderr


def test_weights_that_training_did_not_end_with_are_refused(ready):
    from safetensors.torch import load_file, save_file

    path = ready.root / "data/policy/model.safetensors"
    whole = path.read_bytes()
    try:
        weights = load_file(path)
        weights["model.norm.weight"][0] += 1e-3
        save_file(weights, path, metadata={"format": "pt"})
        result = ready.python("-m", "stages.retest", check=False)
    finally:
        path.write_bytes(whole)
    assert result.returncode == 2
    assert "training ended with" in result.stderr


def test_a_policy_that_cannot_be_saved_leaves_record_and_policy_as_they_were(ready, tmp_path):
    (tmp_path / "file").write_text("in the way")
    before = _snapshot(ready.root / "data")
    override = f"paths.policy={tmp_path}/file/policy"
    result = ready.python("-m", "stages.train_gspo", override, check=False)
    assert result.returncode == 2
    assert "cannot write" in result.stderr
    assert _snapshot(ready.root / "data") == before


@pytest.mark.parametrize("content", ["train: {a: [1", "- a list", ""])
def test_unreadable_params_are_one_message_and_can_be_composed_anew(project, content):
    path = project.root / "params.yaml"
    whole = path.read_text()
    path.write_text(content)
    result = project.python("-m", "stages.generate_boards", check=False)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    project.python("-m", "ninegrid.params")
    assert path.read_text() == whole


def _snapshot(folder):
    return {str(p): p.stat().st_mtime_ns for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def ready(tmp_path_factory, whole_loop):
    """A project copy in which the loop has run, with an alternative to training."""
    root = tmp_path_factory.mktemp("ready") / "project"
    shutil.copytree(whole_loop.root, root, symlinks=True)
    project = Project(root)
    project.params(*SMOKE, "alternatives.names=[more_examples]")
    project.dvc("repro")
    return project


@pytest.mark.parametrize("stage", STAGES)
def test_entrypoints_are_hydra_apps_from_any_directory(ready, stage, tmp_path):
    for flag in (["--help"], ["--cfg", "job"]):
        result = subprocess.run(
            [sys.executable, "-m", f"stages.{stage}", "tracking.experiment=elsewhere", *flag],
            cwd=tmp_path,
            env=ready.environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        assert "heldout_share" in result.stdout
        assert "experiment: elsewhere" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_multirun_leaves_no_stray_folder(ready, tmp_path):
    arguments = ["-m", "stages.generate_boards", "-m", "boards.seed=1,2", f"paths.boards={tmp_path}/boards"]
    subprocess.run(
        [sys.executable, *arguments], cwd=ready.root, env=ready.environment(), check=True, capture_output=True
    )
    manifest = json.loads((tmp_path / "boards/manifest.json").read_text())
    assert manifest["settings"]["seed"] == 2
    assert not (ready.root / "multirun").exists()
    assert not (ready.root / "outputs").exists()


# What no output depends on; dvc.yaml says so at its head.
GLUE = {"app", "params", "paths", "ports", "project", "progress", "errors", "__init__"}
# Reached through settings (``task._target_``), not through an import.
CHOSEN = ("ninegrid/tasks/tictactoe", "ninegrid/agents/task", "ninegrid/agents/examples")


@pytest.mark.parametrize("stage", STAGES)
def test_each_stage_lists_the_code_and_the_params_that_it_reads(stage):
    listed = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"][stage]
    deps = [d for d in listed["deps"] if not d.startswith("${")]
    files = {str(f.relative_to(ROOT)) for d in deps for f in _sources(ROOT / d)}
    chosen = {f for f in files if f.startswith(CHOSEN)}
    reached = {f for f in _reached(f"stages.{stage}") if not _is_glue(f)}
    assert {f for f in files - chosen if not f.endswith("__init__.py")} == {
        f for f in reached if not f.endswith("__init__.py") and not f.startswith(CHOSEN)
    }
    assert bool(chosen) == ("task" in listed["params"])
    settings = _settings_sections(ROOT / "stages" / f"{stage}.py")
    assert set(listed["params"]) == settings - {"paths", "tracking"}
    assert set(listed["params"]) <= set(compose([]))


def _sources(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def _is_glue(path: str) -> bool:
    parts = Path(path).parts
    return (len(parts) == 2 and Path(path).stem in GLUE) or parts[1] in ("tracking", "plan")


def _settings_sections(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    (cls,) = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Settings"]
    return {n.target.id for n in cls.body if isinstance(n, ast.AnnAssign)}


def _reached(module: str, seen: set[str] | None = None) -> set[str]:
    """Files of this project that importing ``module`` can lead to, lazy imports included.

    Paths through glue are not followed: what it imports serves the command line, not the outputs.
    """
    seen = set() if seen is None else seen
    path = _file_of(module)
    if path is None or path in seen:
        return seen
    seen.add(path)
    if _is_glue(path) and not path.startswith("stages/"):
        return seen
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            for name in node.names:
                _reached(name.name, seen)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            _reached(node.module, seen)
            for name in node.names:
                _reached(f"{node.module}.{name.name}", seen)
    return seen


def _file_of(module: str) -> str | None:
    if module.split(".")[0] not in ("ninegrid", "stages"):
        return None
    base = Path(*module.split("."))
    for candidate in (base.with_suffix(".py"), base / "__init__.py"):
        if (ROOT / candidate).exists():
            return str(candidate)
    return None


@pytest.mark.slow
def test_a_model_of_this_machine_that_has_changed_is_noticed(project, talker_dir, tmp_path):
    """DVC does not watch the folder; what `make repro` checks first does."""
    kept = tmp_path / "kept"
    shutil.copytree(talker_dir, kept)
    project.params(*SMOKE, f"model.source.path={kept}")
    check = ("-m", "ninegrid.params", "--check")
    assert project.python(*check).returncode == 0  # nothing was fetched yet
    project.dvc("repro", "fetch_model")
    assert project.python(*check).returncode == 0
    config = kept / "config.json"
    config.write_text(config.read_text() + "\n")
    refused = project.python(*check, check=False)
    assert refused.returncode == 2
    assert "config.json is not the file from which data/model was made" in refused.stderr
    assert "dvc repro -f fetch_model" in refused.stderr
    project.dvc("repro", "-f", "fetch_model")
    assert project.python(*check).returncode == 0
