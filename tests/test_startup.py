"""What ends before real work must not wait for heavy libraries."""

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT

HEAVY = ("torch", "transformers", "trl", "datasets", "mlflow", "pandas", "matplotlib", "scipy")
STAGES = [
    *("fetch_model", "generate_boards", "audit_reward", "baseline_eval", "try_alternatives"),
    *("warm_start", "train_gspo", "retest", "perturb_retest"),
]


def run(module, *arguments):
    """Run a module in a process in which importing any heavy library fails."""
    code = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({HEAVY!r}))
sys.argv = {["module", *arguments]!r}
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("stage", STAGES)
def test_help_and_settings_are_shown_at_once(stage):
    shown = run(f"stages.{stage}", "--help")
    assert shown.returncode == 0, shown.stderr
    assert "== Settings ==" in shown.stdout
    printed = run(f"stages.{stage}", "--cfg", "job")
    assert printed.returncode == 0, printed.stderr


@pytest.mark.parametrize(
    ("stage", "setting", "message"),
    [
        ("fetch_model", "model.dtype=float31", "model.dtype"),
        ("generate_boards", "boards.heldout_share=1.5", "boards.heldout_share"),
        ("audit_reward", "reward.win=much", "reward.win"),
        ("baseline_eval", "decoding.temperature=0", "decoding.temperature"),
        ("warm_start", "warm_start.method=ppo", "warm_start.method = 'ppo', allowed: none, sft, dpo"),
        (
            "train_gspo",
            "train.algorithm=gspo",
            "bonus for one token goes with gspo_token, grpo, dr_grpo, dapo, cispo",
        ),
        ("train_gspo", "train.algorithm=ppo", "train.algorithm"),
        ("train_gspo", "train.rounds=0", "train.rounds"),
        ("train_gspo", "train.seed=-1", "train.seed = -1, allowed: 0 .. 2^32 - 1"),
        ("retest", "eval.seed=-1", "eval.seed = -1, allowed: 0 .. 2^32 - 1"),
        ("retest", "engine.max_tokens_per_batch=0", "engine.max_tokens_per_batch"),
        ("perturb_retest", "perturb.names=[leters]", "did you mean letters?"),
    ],
)
def test_a_bad_setting_is_refused_at_once(stage, setting, message):
    refused = run(f"stages.{stage}", setting)
    assert refused.returncode == 2, refused.stderr
    assert message in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("stages.sweep", "-m", "train.n_samples=1,4"), "cell train.n_samples=1: train.n_samples = 1"),
        (("stages.sweep", "train.steps=1,2"), "a sweep is asked for with -m"),
        (("stages.repeat_seeds", "--seeds", "1,1"), "expected distinct whole numbers"),
        (("stages.compare", "workspace"), "expected two or more different loops"),
        (("ninegrid.params", "reward.wni=2"), "unknown setting reward.wni; did you mean reward.win?"),
        (("ninegrid.params", "model=tiny_random", "model.dtpe=float32"), "did you mean model.dtype?"),
    ],
)
def test_commands_over_loops_refuse_at_once(command, message):
    refused = run(*command)
    assert refused.returncode == 2, refused.stderr
    assert message in refused.stderr
    assert "Traceback" not in refused.stderr


def test_no_warm_start_is_a_record_and_needs_nothing_heavy(tmp_path):
    (tmp_path / "warm" / "model").mkdir(parents=True)  # what an earlier warm start left
    done = run("stages.warm_start", "warm_start={method: none}", f"paths.warm_start={tmp_path}/warm")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "warm").iterdir()] == ["record.json"]
    record = json.loads((tmp_path / "warm" / "record.json").read_text())
    assert record == {"method": "none", "weights_sha256": None}


def test_checking_settings_needs_nothing_heavy():
    checked = run("ninegrid.params", "--check")
    assert "Traceback" not in checked.stderr
    assert checked.returncode in (0, 1)  # whether params.yaml is what conf/ composes to, other tests say


def test_without_a_perturbation_nothing_heavy_is_needed(tmp_path):
    done = run("stages.perturb_retest", f"paths.perturbed={tmp_path}/out")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out/perturbed.json").exists()


def test_without_an_alternative_nothing_heavy_is_needed(tmp_path):
    done = run("stages.try_alternatives", f"paths.alternatives={tmp_path}/out")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out/metrics.json").read_text()) == {}


def test_a_check_of_params_takes_no_overrides_that_it_would_not_look_at():
    refused = run("ninegrid.params", "--check", "train=nonsense")
    assert refused.returncode == 2
    assert "leave out train=nonsense" in refused.stderr
