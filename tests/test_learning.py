"""The claim itself, on the real model: some GSPO steps change what SmolLM2 does on boards it never saw."""

import pytest

from ninegrid.evaluation.compare import Comparison
from ninegrid.evaluation.evaluate import evaluate
from ninegrid.evaluation.settings import EvalSettings
from ninegrid.gspo.checkpoint import Checkpoints
from ninegrid.gspo.settings import TrainSettings
from ninegrid.gspo.trainer import Trainer
from ninegrid.params import compose
from ninegrid.policy.agent import open_agent
from ninegrid.reward import RewardTable
from ninegrid.settings import validate
from ninegrid.tasks.dataset import BoardSettings, build_dataset

pytestmark = pytest.mark.slow


def test_smollm2_learns_to_call_the_tool(smollm2_dir, tictactoe, tmp_path):
    agent = open_agent(smollm2_dir, tictactoe, validate(compose([])))
    assert agent.sampler.engine.name == "tree"
    boards = build_dataset(tictactoe, BoardSettings(count=300))
    heldout = boards.heldout[:32]
    table = RewardTable(dict(tictactoe.score))
    measured = EvalSettings(resamples=2000)

    before = evaluate(agent.sampler, heldout, measured, table, "before")
    training = TrainSettings(steps=7, n_boards=3, n_samples=8, learning_rate=2e-5, checkpoint_every=0)
    rows = Trainer(agent.policy, agent.sampler, table, training, Checkpoints(tmp_path, "run")).run(
        boards.train, lambda row, costs: None
    )
    after = evaluate(agent.sampler, heldout, measured, table, "after")

    assert max(row["train/logprob_diff"] or 0 for row in rows) < 1e-4
    found = Comparison(tictactoe, measured, frozenset()).compare(before, after)["sampled"]
    assert found["milestones"]["legal"]["before"] < 0.4
    assert found["milestones"]["legal"]["after"] > 0.7
    assert found["score"]["low"] > 0
