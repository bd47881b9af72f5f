"""The training loop on the talker: what moves the weights, what must not, and what is written down."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ninegrid.chat.format import ChatSettings
from ninegrid.errors import SettingsError, TrainingError
from ninegrid.gspo.algorithms.names import FACTS
from ninegrid.gspo.batch import RolloutBatch, boards_of_round, choose_groups, make_batch
from ninegrid.gspo.checkpoint import Checkpoints, State, digest
from ninegrid.gspo.health import health_row
from ninegrid.gspo.settings import TrainSettings, learning_rate
from ninegrid.gspo.trainer import Trainer
from ninegrid.gspo.update import Scored, Updater, UpdateStats
from ninegrid.policy.agent import open_agent
from ninegrid.policy.loading import weights_sha256
from ninegrid.policy.settings import LocalSource, ModelSettings
from ninegrid.reward import RewardTable
from ninegrid.tree.padded_engine import PaddedEngine
from ninegrid.tree.settings import DecodingSettings, EngineSettings
from ninegrid.tree.tree_engine import TreeEngine

SETTINGS = TrainSettings(
    steps=4, n_boards=4, n_samples=8, learning_rate=1e-2, clip_low=0.2, clip_high=0.2, checkpoint_every=0
)


@pytest.fixture
def agent(talker_dir, tictactoe):
    settings = SimpleNamespace(
        model=ModelSettings(name="talker", source=LocalSource("local", str(talker_dir)), device="cpu"),
        chat=ChatSettings(worked_examples=1),
        decoding=DecodingSettings(max_new_tokens=4),
        engine=EngineSettings(threads=1),
    )
    return open_agent(talker_dir, tictactoe, settings)


@pytest.fixture
def published(tictactoe):
    return RewardTable(dict(tictactoe.score))


@pytest.fixture(scope="module")
def examples(tictactoe):
    return tictactoe.generate(40, 3)


def train(agent, table, examples, settings, folder):
    trainer = Trainer(agent.policy, agent.sampler, table, settings, Checkpoints(folder, "run"))
    return trainer.run(examples, lambda row, costs: None)


def groups_of(agent, examples, settings=SETTINGS):
    return next(agent.sampler.groups(examples[: settings.n_boards], settings.n_samples, ("t", 1)))


def test_it_learns(agent, published, examples, tmp_path):
    rows = train(agent, published, examples, replace(SETTINGS, steps=25), tmp_path)
    first, last = (np.mean([r["rollout/rewards_mean"] for r in part]) for part in (rows[:3], rows[-3:]))
    assert first < -0.3
    assert last > first + 0.3


@pytest.mark.parametrize("optimizer", ["adamw", "adamw_8bit"])
def test_a_constant_reward_leaves_the_weights_alone(agent, tictactoe, examples, tmp_path, optimizer):
    constant = RewardTable(dict.fromkeys(tictactoe.outcomes, 0.5))
    before = weights_sha256(agent.policy.model)
    # Weight decay would move them if the optimiser took a step without a gradient.
    settings = replace(SETTINGS, weight_decay=0.1, optimizer=optimizer)
    rows = train(agent, constant, examples, settings, tmp_path)
    assert weights_sha256(agent.policy.model) == before
    assert {r["train/updates"] for r in rows} == {0}
    assert {r["train/informative_groups"] for r in rows} == {0.0}


@pytest.mark.parametrize("optimizer", ["adamw", "adamw_8bit"])
def test_spread_moves_the_weights(agent, published, examples, tmp_path, optimizer):
    before = weights_sha256(agent.policy.model)
    rows = train(agent, published, examples, replace(SETTINGS, steps=1, optimizer=optimizer), tmp_path)
    assert weights_sha256(agent.policy.model) != before
    assert rows[0]["train/weight_change"] > 0
    assert rows[0]["train/logprob_diff"] < 1e-4
    assert rows[0]["train/ratio_min"] == pytest.approx(1, abs=1e-4)
    assert rows[0]["train/clip_fraction"] == 0


def updater_of(agent, optimizer, settings):
    return Updater(agent.policy.model, agent.sampler.engine, optimizer, settings, agent.sampler.decoding)


def gradients(agent, batch, settings):
    updater = updater_of(agent, _NoStep(agent.policy.model), settings)
    stats = updater.update(batch)
    return {n: p.grad.clone() for n, p in agent.policy.model.named_parameters()}, stats


class _NoStep(torch.optim.SGD):
    """An optimiser with learning rate 0: the gradient can be looked at after the update."""

    def __init__(self, model):
        super().__init__(model.parameters(), lr=0.0)


def test_small_passes_give_the_same_gradient(agent, published, examples):
    batch = make_batch(groups_of(agent, examples), published, SETTINGS)
    loose = replace(SETTINGS, max_grad_norm=1e9)
    whole, whole_stats = gradients(agent, batch, loose)
    parts, part_stats = gradients(agent, batch, replace(loose, max_tokens_per_pass=150))
    assert part_stats.tokens > whole_stats.tokens  # what parts share beyond the trunk is run in each
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=1e-4, atol=1e-6)
    assert part_stats.losses == pytest.approx(whole_stats.losses, abs=1e-6)


def test_the_gradient_is_that_of_the_objective_written_out(agent, published, examples):
    """On-policy the gradient is -mean(A / |y| * sum of d log p): computed here sample by sample."""
    batch = make_batch(groups_of(agent, examples), published, SETTINGS)
    found, _ = gradients(agent, batch, replace(SETTINGS, max_grad_norm=1e9))
    model = agent.policy.model
    model.zero_grad()
    for rollout, advantage in zip(batch.rollouts, batch.advantages.flatten(), strict=True):
        tokens = [*rollout.prompt, *rollout.completion.tokens]
        logp = torch.log_softmax(model(torch.tensor([tokens])).logits[0], -1)
        n, start = len(rollout.completion.tokens), len(rollout.prompt)
        total = sum(logp[start + t - 1, tokens[start + t]] for t in range(n))
        (-advantage / n * total / len(batch.rollouts)).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("limit", [10**6, 1])
def test_one_number_for_a_reply_counts_for_each_of_its_tokens_beside_others_with_many(
    agent, published, examples, limit
):
    # With credit=sequence an entropy bonus spreads the credit of valid replies alone.
    settings = replace(SETTINGS, algorithm="gspo_token", max_tokens_per_pass=limit)
    batch = make_batch(groups_of(agent, examples), published, settings)
    spread_out = [
        [np.full(len(r.completion.tokens), c) for c, r in zip(credits, group, strict=True)]
        for credits, group in zip(batch.credit, batch.groups, strict=True)
    ]
    mixed = [
        [alone if i % 2 else many for i, (alone, many) in enumerate(zip(*pair, strict=True))]
        for pair in zip(batch.credit, spread_out, strict=True)
    ]
    (expected, _), (found, _) = (
        gradients(agent, replace(batch, credit=credit), settings) for credit in (spread_out, mixed)
    )
    assert any(gradient.any() for gradient in expected.values())
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient)


def on_both_engines(agent, batch, settings, optimizer_of):
    """The gradient of a last update on the tree and on padded rows, each from the same weights."""
    start = {k: v.clone() for k, v in agent.policy.model.state_dict().items()}
    found = []
    for engine in (TreeEngine(agent.policy.model), PaddedEngine(agent.policy.model)):
        agent.policy.model.load_state_dict(start)
        optimizer = optimizer_of(agent.policy.model)
        Updater(agent.policy.model, engine, optimizer, settings, agent.sampler.decoding).update(batch)
        found.append({n: p.grad.clone() for n, p in agent.policy.model.named_parameters()})
    return found


ALGORITHMS = [
    (name, credit)
    for name, facts in FACTS.items()
    for credit in ("sequence", "branch")
    if facts.per_token or credit == "sequence"
]


@pytest.mark.parametrize(("algorithm", "credit"), ALGORITHMS)
@pytest.mark.parametrize("passes", [1, 3])
def test_tree_and_padded_gradients_agree(agent, published, examples, algorithm, credit, passes):
    """On-policy, and after two updates, when ratios differ from 1 and clipping acts."""
    settings = replace(
        SETTINGS, algorithm=algorithm, credit=credit, passes=passes, clip_low=0.05, clip_high=0.05
    )
    batch = make_batch(groups_of(agent, examples), published, settings)
    tree, padded = on_both_engines(
        agent, batch, settings, lambda model: torch.optim.SGD(model.parameters(), lr=0.1)
    )
    assert any(gradient.any() for gradient in padded.values())
    for name, gradient in padded.items():
        assert (tree[name] - gradient).norm() <= 1e-4 * gradient.norm() + 1e-9, name


@pytest.mark.parametrize("algorithm", [name for name, facts in FACTS.items() if facts.per_token])
@pytest.mark.parametrize("passes", [1, 2])
def test_tokens_after_the_last_advantage_are_left_out_without_a_trace(
    agent, published, examples, algorithm, passes, monkeypatch
):
    settings = replace(SETTINGS, algorithm=algorithm, credit="branch", passes=passes, max_grad_norm=1e9)
    batch = make_batch(groups_of(agent, examples), published, settings)
    start = {k: v.clone() for k, v in agent.policy.model.state_dict().items()}

    def run():
        agent.policy.model.load_state_dict(start)
        optimizer = torch.optim.SGD(agent.policy.model.parameters(), lr=0.1)
        stats = updater_of(agent, optimizer, settings).update(batch)
        return stats, {n: p.grad.clone() for n, p in agent.policy.model.named_parameters()}

    cut_stats, cut = run()
    monkeypatch.setattr(
        "ninegrid.gspo.update._scored_sample",
        lambda rollout, credit, *, cut: Scored(rollout, credit, len(rollout.completion.tokens)),
    )
    whole_stats, whole = run()
    assert cut_stats.tokens < whole_stats.tokens
    assert cut_stats.losses == pytest.approx(whole_stats.losses, abs=1e-6)
    for name, gradient in whole.items():
        torch.testing.assert_close(cut[name], gradient, rtol=1e-3, atol=1e-6)


def test_rewards_of_equal_replies_teach_nothing_with_branch_credit(agent, tictactoe, examples):
    constant = RewardTable(dict.fromkeys(tictactoe.outcomes, 0.5))
    settings = replace(SETTINGS, algorithm="gspo_token", credit="branch")
    batch = make_batch(groups_of(agent, examples), constant, settings)
    stats = updater_of(agent, _NoStep(agent.policy.model), settings).update(batch)
    assert (stats.tokens, stats.losses) == (0, [])


@pytest.mark.parametrize(
    ("algorithm", "credit"), [("gspo_token", "branch"), ("dapo", "sequence"), ("rloo", "sequence")]
)
def test_other_algorithms_learn_too(agent, published, examples, tmp_path, algorithm, credit):
    settings = replace(SETTINGS, steps=25, algorithm=algorithm, credit=credit)
    rows = train(agent, published, examples, settings, tmp_path)
    first, last = (np.mean([r["rollout/rewards_mean"] for r in part]) for part in (rows[:3], rows[-3:]))
    assert last > first + 0.3


def test_a_bonus_keeps_the_decision_undecided(agent, published, examples, tmp_path):
    """The entropy of the decision after training with a large steered bonus, and without any."""
    start = {k: v.clone() for k, v in agent.policy.model.state_dict().items()}
    plain = replace(SETTINGS, steps=25, algorithm="gspo_token", credit="branch")
    with_bonus = replace(plain, entropy_bonus=0.5, entropy_target=3.3)
    ends, bonuses = {}, {}
    for name, settings in {"plain": plain, "bonus": with_bonus}.items():
        agent.policy.model.load_state_dict(start)
        rows = train(agent, published, examples, settings, tmp_path / name)
        ends[name] = np.mean([r["rollout/decision_entropy"] for r in rows[-5:]])
        bonuses[name] = [r["train/entropy_bonus"] for r in rows]
    assert ends["bonus"] > ends["plain"] + 0.1
    assert set(bonuses["plain"]) == {0.0}
    assert max(bonuses["bonus"]) > min(bonuses["bonus"]) == 0.5


@pytest.mark.parametrize("control", ["shuffle_all", "shuffle_valid"])
def test_a_control_keeps_the_rewards_and_moves_the_weights_elsewhere(
    agent, published, examples, tmp_path, control
):
    start = {k: v.clone() for k, v in agent.policy.model.state_dict().items()}
    rows, ends = [], set()
    for name in ("none", control):
        agent.policy.model.load_state_dict(start)
        rows += train(agent, published, examples, replace(SETTINGS, steps=1, control=name), tmp_path / name)
        ends.add(weights_sha256(agent.policy.model))
    assert rows[0]["rollout/rewards_mean"] == pytest.approx(rows[1]["rollout/rewards_mean"])
    assert rows[0]["rollout/rewards_std"] == pytest.approx(rows[1]["rollout/rewards_std"])
    assert len(ends) == 2


def test_leave_one_out_advantages_by_hand(agent, published, examples):
    batch = make_batch(groups_of(agent, examples), published, replace(SETTINGS, algorithm="rloo"))
    rewards = batch.rewards[0]
    for index, advantage in enumerate(batch.advantages[0]):
        others = np.delete(rewards, index)
        assert advantage == pytest.approx(rewards[index] - others.mean(), abs=1e-12)


FEW = replace(SETTINGS, steps=6, n_samples=2, learning_rate=1e-9)
"""Two samples of a board often earn the same."""


def test_more_rounds_are_sampled_until_enough_boards_can_teach(agent, published, examples, tmp_path):
    one = train(agent, published, examples, FEW, tmp_path / "one")
    assert {row["rollout/boards"] for row in one} == {4}
    assert min(row["train/trained_groups"] for row in one) < 4  # else there is nothing to show
    settings = replace(FEW, rounds=5)
    more = train(agent, published, examples, settings, tmp_path / "more")
    assert all(row["rollout/boards"] <= 20 for row in more)
    assert all(row["train/trained_groups"] == 4 or row["rollout/boards"] == 20 for row in more)
    assert max(row["rollout/boards"] for row in more) > 4
    # The share that is logged is that of all sampled boards, not of the chosen ones.
    assert any(row["train/informative_groups"] < 1 and row["train/trained_groups"] == 4 for row in more)


def test_rounds_go_on_through_the_boards(agent, published, examples, tmp_path, monkeypatch):
    """No board is asked twice before all have been asked, however many rounds a step takes."""
    asked = []
    groups = agent.sampler.groups

    def watched(boards, *rest, **named):
        asked.extend(board.id for board in boards)
        return groups(boards, *rest, **named)

    monkeypatch.setattr(agent.sampler, "groups", watched)
    train(agent, published, examples, replace(FEW, rounds=3), tmp_path)
    first = asked[: len(examples)]
    assert len(set(first)) == len(first) > FEW.steps * FEW.n_boards


def test_groups_that_teach_come_first(agent, published, examples):
    batch = make_batch(groups_of(agent, examples), published, SETTINGS)
    tied = RolloutBatch(batch.groups, batch.rewards, np.zeros_like(batch.advantages), batch.credit)
    assert choose_groups(tied, 3) == [0, 1, 2]
    tied.advantages[3, 0] = 1.0
    assert choose_groups(tied, 3) == [0, 1, 3]
    assert choose_groups(tied, 1) == [3]


def test_the_cost_of_each_step_is_told(agent, published, examples, tmp_path):
    costs = []
    trainer = Trainer(agent.policy, agent.sampler, published, SETTINGS, Checkpoints(tmp_path, "run"))
    trainer.run(examples, lambda row, cost: costs.append(cost))
    for cost in costs:
        parts = cost["time/rollout_seconds"] + cost["time/update_seconds"]
        assert 0 < parts <= cost["time/step_seconds"] * 1.001
        assert cost["memory/peak_gb"] > 0.1


def test_gradients_are_clipped_to_the_norm(agent, published, examples):
    batch = make_batch(groups_of(agent, examples), published, SETTINGS)
    found, stats = gradients(agent, batch, replace(SETTINGS, max_grad_norm=1e-3))
    assert stats.grad_norms[0] > 1e-3
    norm = math.sqrt(sum(float(g.norm()) ** 2 for g in found.values()))
    assert norm == pytest.approx(1e-3, rel=1e-3)


def test_clipping_acts_from_the_second_pass_on(agent, published, examples):
    settings = replace(SETTINGS, passes=3, learning_rate=0.05, clip_low=0.01, clip_high=0.01)
    optimizer = torch.optim.SGD(agent.policy.model.parameters(), lr=0.5)
    batch = make_batch(groups_of(agent, examples), published, SETTINGS)
    stats = updater_of(agent, optimizer, settings).update(batch)
    scored = len(stats.clipped) // 3
    assert len(stats.losses) == 3
    assert not any(stats.clipped[:scored])
    assert any(stats.clipped[scored:])
    assert max(stats.ratios) > 1.01


def test_minibatches_deal_the_boards_in_turn(agent, published, examples):
    batch = make_batch(groups_of(agent, examples), published, SETTINGS)
    settings = replace(SETTINGS, minibatches=2, passes=2)
    assert settings.updates == 4
    optimizer = torch.optim.SGD(agent.policy.model.parameters(), 1e-3)
    stats = updater_of(agent, optimizer, settings).update(batch)
    assert len(stats.losses) == 4
    # Every scored sample was scored once in each of the two passes.
    assert len(stats.ratios) == 2 * int((batch.advantages != 0).sum())


@pytest.mark.parametrize(
    "settings",
    [
        replace(SETTINGS, steps=6, checkpoint_every=2),
        replace(
            FEW, learning_rate=1e-2, rounds=3, checkpoint_every=2, algorithm="gspo_token", credit="branch"
        ),
    ],
    ids=["gspo", "rounds and branch credit"],
)
def test_a_killed_run_ends_like_one_that_was_not(agent, published, examples, tmp_path, settings):
    start = {k: v.clone() for k, v in agent.policy.model.state_dict().items()}
    whole_rows = train(agent, published, examples, settings, tmp_path / "whole")
    whole = weights_sha256(agent.policy.model)

    def again():
        agent.policy.model.load_state_dict(start)
        return Trainer(agent.policy, agent.sampler, published, settings, Checkpoints(tmp_path / "cut", "run"))

    def stop_at_five(row, costs):
        if row["step"] == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        again().run(examples, stop_at_five)
    seen = []
    rows = again().run(examples, lambda row, costs: seen.append(row))
    assert [r["step"] for r in seen] == [1, 2, 3, 4, 5, 6]
    assert rows == whole_rows
    assert weights_sha256(agent.policy.model) == whole


def test_a_damaged_checkpoint_is_named_with_the_way_out(tmp_path):
    checkpoints = Checkpoints(tmp_path, "run")
    checkpoints.folder.mkdir()
    (checkpoints.folder / "checkpoint.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(TrainingError, match="rm -r"):
        checkpoints.load()


def test_a_checkpoint_that_cannot_be_written_is_one_message(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(TrainingError, match=r"train\.checkpoint_every=0"):
        Checkpoints(tmp_path / "file", "run").save(State(1, 1, {}, {}, [], []))


def test_old_checkpoints_of_other_runs_are_pruned(tmp_path):
    for run in ("a", "b", "c", "d"):
        Checkpoints(tmp_path, run).save(State(1, 1, {}, {}, [], []))
    assert len(list(tmp_path.iterdir())) == 3
    assert (tmp_path / "d" / "checkpoint.pt").exists()


def test_the_digest_tells_runs_apart():
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_what_is_not_finite_stops_before_the_update_and_names_the_board(
    agent, published, examples, tmp_path, what
):
    groups = groups_of(agent, examples)
    batch = make_batch(groups, published, SETTINGS)
    row = int(np.flatnonzero((batch.advantages != 0).any(1))[0])
    column = int(np.flatnonzero(batch.advantages[row])[0])
    before = weights_sha256(agent.policy.model)
    if what == "loss":
        groups[row][column].completion.logprobs[0] = np.nan
    else:
        agent.policy.model.lm_head.weight.register_hook(lambda gradient: gradient * torch.inf)
    optimizer = torch.optim.SGD(agent.policy.model.parameters(), lr=1.0)
    updater = updater_of(agent, optimizer, SETTINGS)
    with pytest.raises(TrainingError, match=groups[row][0].example.id):
        updater.update(batch)
    assert weights_sha256(agent.policy.model) == before


def test_a_policy_that_diverged_is_refused_not_judged(agent, examples):
    with torch.no_grad():
        agent.policy.model.lm_head.weight.fill_(math.nan)
    with pytest.raises(TrainingError, match="not finite"):
        groups_of(agent, examples)


def test_weights_that_overflow_stop_the_training(agent, published, examples, tmp_path):
    with pytest.raises(TrainingError, match="not finite"):
        train(agent, published, examples, replace(SETTINGS, learning_rate=1e38), tmp_path)


def test_rewards_that_are_not_finite_are_refused(agent, published, examples):
    broken = RewardTable({**published.outcomes, **dict.fromkeys(published.outcomes, math.inf)})
    with pytest.raises(TrainingError, match=examples[0].id), np.errstate(invalid="ignore"):
        make_batch(groups_of(agent, examples), broken, SETTINGS)


def test_more_boards_than_there_are_is_refused(agent, published, examples, tmp_path):
    with pytest.raises(SettingsError, match=r"train\.n_boards = 4, but there are 3"):
        train(agent, published, examples[:3], SETTINGS, tmp_path)


def test_the_length_penalty_is_paid_per_token(agent, published, examples):
    table = replace(published, length_penalty=0.25)
    batch = make_batch(groups_of(agent, examples), table, SETTINGS)
    plain = make_batch(batch.groups, published, SETTINGS)
    lengths = [[len(r.completion.tokens) for r in group] for group in batch.groups]
    np.testing.assert_allclose(plain.rewards - batch.rewards, 0.25 * np.array(lengths))
    assert len({n for row in lengths for n in row}) > 1


def test_the_row_counts_what_happened(agent, published, examples, tictactoe):
    batch = make_batch(groups_of(agent, examples), published, SETTINGS)
    row = health_row(3, batch, [0, 1, 2, 3], UpdateStats(), tictactoe, 1e-3, 0.2)
    outcomes = [r.judgement.outcome for r in batch.rollouts]
    assert row["step"] == 3
    assert row["rollout/outcome/no_tool_call"] == outcomes.count("no_tool_call") / 32
    assert sum(v for k, v in row.items() if k.startswith("rollout/outcome/")) == pytest.approx(1)
    legal = sum(o in ("legal", "optimal", "win") for o in outcomes) / 32
    assert row["rollout/milestone/legal"] == legal
    assert row["rollout/rewards_mean"] == pytest.approx(row["rollout/score_mean"])
    shares = ("train/informative_groups", "train/groups_equal_reward", "train/groups_all_truncated")
    assert sum(row[name] for name in shares) == pytest.approx(1)
    assert row["train/loss"] is None
    assert row["train/updates"] == 0
    assert list(row)[-1] == "train/loss"
    entropy = [r.decision_entropy for r in batch.rollouts if r.decision_entropy is not None]
    assert row["rollout/decision_entropy"] == pytest.approx(np.mean(entropy))


def test_groups_cut_at_the_limit_are_counted_apart(agent, tictactoe, examples, published):
    groups = groups_of(agent, examples)
    cut = [[replace(r, completion=replace(r.completion, finish="length")) for r in g] for g in groups]
    constant = RewardTable(dict.fromkeys(tictactoe.outcomes, 0.0))
    row = health_row(1, make_batch(cut, constant, SETTINGS), [0], UpdateStats(), tictactoe, 0.1, 0.0)
    assert row["train/groups_all_truncated"] == 1
    assert row["train/groups_equal_reward"] == 0
    assert row["rollout/truncated_rate"] == 1


def test_boards_are_a_fresh_permutation_of_each_epoch(examples):
    epoch = [b.id for step in range(10) for b in boards_of_round(examples, step, 4, seed=1)]
    assert sorted(epoch) == sorted(e.id for e in examples)  # 10 steps of 4 are all 40 boards
    following = [b.id for step in range(10, 20) for b in boards_of_round(examples, step, 4, seed=1)]
    assert following != epoch
    assert sorted(following) == sorted(epoch)
    other = [b.id for step in range(10) for b in boards_of_round(examples, step, 4, seed=2)]
    assert other != epoch


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        # Warm-up over two steps to 1: 0.5 and 1; then decay over the remaining four.
        ("constant", [0.5, 1, 1, 1, 1, 1]),
        ("linear", [0.5, 1, 1, 0.75, 0.5, 0.25]),
        ("cosine", [0.5, 1, 1, 0.5 * (1 + math.sqrt(0.5)), 0.5, 0.5 * (1 - math.sqrt(0.5))]),
    ],
)
def test_learning_rate_schedules_by_hand(schedule, expected):
    settings = TrainSettings(steps=6, learning_rate=1.0, warmup_steps=2, schedule=schedule)
    assert [learning_rate(settings, step) for step in range(6)] == pytest.approx(expected)


def test_the_schedule_reaches_the_optimiser(agent, published, examples, tmp_path):
    settings = replace(SETTINGS, steps=3, schedule="linear", warmup_steps=1)
    rows = train(agent, published, examples, settings, tmp_path)
    assert [r["train/learning_rate"] for r in rows] == pytest.approx([1e-2, 1e-2, 5e-3])
    # The step size of AdamW is the learning rate: a ten-thousandth of it moves the weights so much less.
    slow = train(agent, published, examples, replace(settings, learning_rate=1e-6), tmp_path)
    assert 0 < slow[0]["train/weight_change"] < 1e-3 * rows[0]["train/weight_change"]
