"""Warm starts through TRL on the tiny model: the losses, what each setting does, what is shown and kept."""

import json
import math
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from ninegrid.chat.format import ChatFormat, ChatSettings
from ninegrid.errors import NinegridError, TrainingError
from ninegrid.paths import PathSettings
from ninegrid.policy.loading import load_policy, weights_sha256
from ninegrid.policy.settings import LocalSource, ModelSettings
from ninegrid.tracking import Run
from ninegrid.tree.settings import EngineSettings
from ninegrid.warm_start.lessons import make_lessons
from ninegrid.warm_start.record import starting_model
from ninegrid.warm_start.run import warm_start, write_warm_start
from ninegrid.warm_start.settings import DpoRecipe, SftRecipe
from ninegrid.warm_start.teach import teach
from tests.byte_model import write_byte_model

SFT = SftRecipe(method="sft", seed=1, examples=6, epochs=1, batch_size=3, learning_rate=1e-3)
DPO = DpoRecipe(method="dpo", seed=1, examples=6, epochs=1, batch_size=3, learning_rate=1e-3, beta=0.1)


@pytest.fixture(scope="module")
def examples(tictactoe):
    return tictactoe.generate(12, 3)


@pytest.fixture(scope="module")
def bytes_dir(tmp_path_factory):
    return write_byte_model(tmp_path_factory.mktemp("bytes"))


def model_at(folder):
    return ModelSettings(name="bytes", source=LocalSource("local", str(folder)), device="cpu")


@pytest.fixture
def policy(bytes_dir):
    torch.set_num_threads(1)
    return load_policy(bytes_dir, model_at(bytes_dir))


@pytest.fixture
def chat(policy, tictactoe):
    return ChatFormat(policy.tokenizer, ChatSettings(worked_examples=1), tictactoe)


def taught(policy, chat, examples, recipe):
    """Rows of a training of a fresh copy of the policy, and the hash of the weights after it."""
    start = {name: value.clone() for name, value in policy.model.state_dict().items()}
    lessons = make_lessons(chat, examples, recipe)
    rows = teach(policy, chat.saved_tokenizer(), lessons, recipe, lambda row, costs: None)
    digest = weights_sha256(policy.model)
    policy.model.load_state_dict(start)
    return rows, digest


def logprob(policy, prompt, reply):
    """Sum of the log-probs of the reply's tokens, from the whole logits."""
    ids = torch.tensor([[*prompt, *reply]])
    with torch.no_grad():
        logp = torch.log_softmax(policy.model(ids).logits[0], -1)
    return sum(logp[len(prompt) + t - 1, token].item() for t, token in enumerate(reply))


def test_the_loss_of_sft_is_over_the_tokens_of_the_replies_alone(policy, chat, examples):
    recipe = replace(SFT, batch_size=6)
    lessons = make_lessons(chat, examples, recipe)
    total = -sum(logprob(policy, lesson.prompt, lesson.chosen.ids) for lesson in lessons)
    rows, _ = taught(policy, chat, examples, recipe)
    tokens = sum(len(lesson.chosen.ids) for lesson in lessons)
    assert len(rows) == 1
    assert rows[0]["train/loss"] == pytest.approx(total / tokens, rel=1e-5)


def test_the_loss_of_dpo_follows_its_definition(policy, chat, examples):
    recipe = replace(DPO, batch_size=6, epochs=2, learning_rate=3e-3, beta=0.3)
    lessons = make_lessons(chat, examples, recipe)
    rows, _ = taught(policy, chat, examples, recipe)
    # At the first step policy and reference are one: -log sigmoid(0) = log 2.
    assert rows[0]["train/loss"] == pytest.approx(math.log(2), abs=1e-5)
    assert rows[0]["train/margin"] == pytest.approx(0, abs=1e-4)
    # At the second they differ by one step, which is taken again here and measured from outside.
    before = margins(policy, lessons)
    teach_one_step(policy, chat, lessons, recipe)
    gained = recipe.beta * (margins(policy, lessons) - before)
    assert rows[1]["train/margin"] == pytest.approx(gained.mean().item(), rel=1e-3)
    loss = torch.nn.functional.softplus(-gained).mean().item()
    assert rows[1]["train/loss"] == pytest.approx(loss, rel=1e-4)
    assert loss < math.log(2)


def margins(policy, lessons):
    """Log-prob of the chosen reply minus that of the rejected one, for each lesson."""
    found = [[logprob(policy, x.prompt, reply.ids) for reply in (x.chosen, x.rejected)] for x in lessons]
    return torch.tensor([chosen - rejected for chosen, rejected in found])


class StoppedError(Exception):
    """Raised to stop a training after its first step."""


def teach_one_step(policy, chat, lessons, recipe):
    def stop(row, costs):
        raise StoppedError

    with pytest.raises(StoppedError):
        teach(policy, chat.saved_tokenizer(), lessons, recipe, stop)
    policy.model.eval()


def test_it_learns_the_calls(policy, chat, examples):
    rows, _ = taught(policy, chat, examples, replace(SFT, examples=3, epochs=12, learning_rate=3e-2))
    assert rows[-1]["train/loss"] < rows[0]["train/loss"] / 2
    assert rows[-1]["train/token_accuracy"] > rows[0]["train/token_accuracy"] + 0.3
    assert [row["step"] for row in rows] == list(range(1, 13))


def test_it_learns_the_preferences(policy, chat, examples):
    rows, _ = taught(policy, chat, examples, replace(DPO, examples=3, epochs=20, learning_rate=1e-2))
    first, last = rows[0], rows[-1]
    assert last["train/margin"] > first["train/margin"] + 0.2
    assert last["train/loss"] < first["train/loss"] - 0.1


def test_the_learning_rate_falls_linearly_to_zero(policy, chat, examples):
    rows, _ = taught(policy, chat, examples, replace(SFT, epochs=2, learning_rate=4e-4))
    # Four steps: 4, 3, 2 and 1 quarters of the first.
    assert [row["train/learning_rate"] for row in rows] == pytest.approx([4e-4, 3e-4, 2e-4, 1e-4])


@pytest.mark.parametrize("recipe", [SFT, DPO], ids=["sft", "dpo"])
def test_equal_settings_give_equal_weights_and_each_setting_counts(policy, chat, examples, recipe):
    rows, digest = taught(policy, chat, examples, recipe)
    assert taught(policy, chat, examples, recipe) == (rows, digest)
    # DPO shares the rest with SFT.
    sft = [{"seed": 2}, {"examples": 5}, {"epochs": 2}, {"batch_size": 2}, {"learning_rate": 2e-3}]
    changes = [{"beta": 0.5}] if recipe is DPO else sft
    others = {taught(policy, chat, examples, replace(recipe, **change))[1] for change in changes}
    assert len(others | {digest, weights_sha256(policy.model)}) == len(changes) + 2


@pytest.mark.parametrize("recipe", [SFT, DPO], ids=["sft", "dpo"])
def test_nothing_but_our_lines_is_shown(policy, chat, examples, recipe, capfd):
    capfd.readouterr()
    taught(policy, chat, examples, recipe)
    shown = capfd.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    assert all(line.startswith("warm_start: ") and "ETA" in line for line in lines)
    assert sum(line.startswith("warm_start: step ") for line in lines) == 2


def test_figures_that_are_not_finite_stop_it(policy, chat, examples):
    recipe = replace(SFT, learning_rate=1e38)
    lessons = make_lessons(chat, examples, recipe)
    with pytest.raises(TrainingError, match=r"in step 2 of the warm start, expected a finite number"):
        teach(policy, chat.saved_tokenizer(), lessons, recipe, lambda row, costs: None)


def test_a_missing_trl_is_named(policy, chat, examples, monkeypatch):
    monkeypatch.setitem(sys.modules, "trl", None)
    with pytest.raises(NinegridError, match="warm starts need TRL") as caught:
        teach(policy, chat.saved_tokenizer(), [], SFT, lambda row, costs: None)
    assert "pip install" in str(caught.value)


def test_the_written_policy_is_the_taught_one_and_is_where_training_begins(
    bytes_dir, tictactoe, examples, tmp_path
):
    model = model_at(bytes_dir)
    settings = SimpleNamespace(model=model, chat=ChatSettings(), engine=EngineSettings(threads=1))
    paths = PathSettings(model=str(bytes_dir), warm_start=str(tmp_path / "warm"))
    result = warm_start(bytes_dir, tictactoe, examples, settings, DPO, Run(None))
    write_warm_start(result, tmp_path / "warm")

    start = starting_model(paths)
    assert (start.folder, start.method) == (tmp_path / "warm" / "model", "dpo")
    loaded = load_policy(start.folder, model)
    record = json.loads((tmp_path / "warm" / "record.json").read_text())
    assert weights_sha256(loaded.model) == record["weights_sha256"] == weights_sha256(result.policy.model)
    assert record["weights_sha256"] != weights_sha256(load_policy(bytes_dir, model).model)
    again = ChatFormat(loaded.tokenizer, settings.chat, tictactoe)
    assert again.fingerprint() == result.chat.fingerprint()

    metrics = json.loads((tmp_path / "warm" / "metrics.json").read_text())
    assert (metrics["method"], metrics["beta"], metrics["examples"], metrics["steps"]) == ("dpo", 0.1, 6, 2)
    assert sum(metrics["chosen"].values()) == sum(metrics["rejected"].values()) == 6
    assert len((tmp_path / "warm" / "steps.csv").read_text().splitlines()) == 1 + 2
    assert len((tmp_path / "warm" / "lessons.jsonl").read_text().splitlines()) == 6
