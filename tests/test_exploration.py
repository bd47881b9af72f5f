"""The entropy bonus and the shuffled control, on replies made by hand."""

import math

import numpy as np
import pytest

from ninegrid.config import bind
from ninegrid.errors import SettingsError
from ninegrid.gspo.control import Shuffle
from ninegrid.gspo.exploration import EntropyBonus
from ninegrid.gspo.settings import TrainSettings, entropy_bonus
from ninegrid.policy.rollout import Rollout, Turn
from ninegrid.tasks.protocol import Example, Judgement
from ninegrid.tree.engine import Completion

VALID = frozenset({"legal", "optimal", "win"})
BOARD = Example("b", "g", {})


def reply(outcome, probability=0.5, decision=1, length=3):
    """A reply of ``length`` tokens whose deciding token was drawn with ``probability``."""
    logprobs = np.full(length, -0.1, dtype=np.float32)
    if decision is not None:
        logprobs[decision] = math.log(probability)
    completion = Completion(tuple(range(length)), logprobs, np.zeros(length, dtype=np.float32), "stop")
    return Rollout(BOARD, 0, (1, 2), completion, "", Judgement(outcome), (Turn(0, length, decision),))


def test_the_bonus_by_hand():
    """Three valid replies of probability 1/2, 1/2 and 1/8: surprises ln 2, ln 2 and 3 ln 2, mean 5/3 ln 2."""
    group = [
        reply("legal"),
        reply("win"),
        reply("optimal", 1 / 8),
        reply("occupied", 1 / 8),
        reply("no_tool_call"),
    ]
    credit = [np.array([0.0, float(i), 0.0]) for i in range(5)]
    found = EntropyBonus(0.3, VALID).add(credit, group)
    ln2 = math.log(2)
    for i, extra in enumerate([-2 / 3 * 0.3 * ln2, -2 / 3 * 0.3 * ln2, 4 / 3 * 0.3 * ln2, 0.0, 0.0]):
        assert found[i].tolist() == pytest.approx([0.0, i + extra, 0.0], abs=1e-6)
    assert [c.tolist() for c in credit] == [[0.0, float(i), 0.0] for i in range(5)]  # left as they were


def test_credit_of_whole_replies_is_spread_over_their_tokens_first():
    found = EntropyBonus(1.0, VALID).add(
        [np.array([2.0]), np.array([-2.0])], [reply("win"), reply("legal", 0.25)]
    )
    half = math.log(2) / 2
    assert found[0].tolist() == pytest.approx([2.0, 2.0 - half, 2.0], abs=1e-6)
    assert found[1].tolist() == pytest.approx([-2.0, -2.0 + half, -2.0], abs=1e-6)


def test_no_bonus_where_nothing_can_be_compared():
    credit = [np.array([1.0]), np.array([-1.0])]
    unreadable = [reply("no_tool_call", decision=None), reply("occupied")]
    assert EntropyBonus(1.0, VALID).add(credit, unreadable) == credit
    assert EntropyBonus(0.0, VALID).add(credit, [reply("win"), reply("legal", 0.1)]) == credit


def test_the_bonus_points_along_the_gradient_of_entropy():
    """Summed over many draws, (bonus x score function) is the gradient of the entropy of a softmax."""
    logits = np.array([1.0, 0.0, -1.0])
    p = np.exp(logits) / np.exp(logits).sum()
    draws = np.random.default_rng(0).choice(3, size=60_000, p=p)
    credit = EntropyBonus(1.0, VALID).add([np.zeros(3)] * len(draws), [reply("win", p[a]) for a in draws])
    weight = np.array([c[1] for c in credit])
    estimate = sum(weight[draws == a].sum() * (np.eye(3)[a] - p) for a in range(3)) / len(draws)
    entropy = -(p * np.log(p)).sum()
    exact = -p * (np.log(p) + entropy)  # dH / dz_k
    assert estimate == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [("constant", [0.2, 0.2, 0.2]), ("linear", [0.2, 0.1, 0.0]), ("cosine", [0.2, 0.1, 0.0])],
)
def test_the_bonus_follows_its_schedule(schedule, expected):
    settings = TrainSettings(algorithm="gspo_token", steps=10, entropy_bonus=0.2, entropy_schedule=schedule)
    assert [entropy_bonus(settings, step) for step in (0, 5, 10)] == pytest.approx(expected)


STEERED = TrainSettings(
    algorithm="gspo_token", steps=10, entropy_bonus=0.2, entropy_target=0.7, entropy_schedule="linear"
)


@pytest.mark.parametrize(
    ("step", "last", "expected"),
    [
        (0, None, 0.2),
        (0, (0.2, 0.7), 0.2),  # on target
        (0, (0.2, 0.2), 0.2 * math.exp(0.5)),  # too little entropy
        (0, (0.5, 1.2), 0.5 * math.exp(-0.5)),  # raised before, now more than enough
        (0, (0.2, 1.9), 0.2),  # never below the schedule
        (0, (1.9, 0.0), 2.0),  # never above the most
        (5, (0.3, 0.35), 0.3),  # the target has decayed to 0.35, the scheduled bonus to 0.1
        (5, None, 0.1),
    ],
)
def test_the_bonus_is_raised_while_there_is_too_little_entropy(step, last, expected):
    assert entropy_bonus(STEERED, step, last) == pytest.approx(expected)


def test_steering_needs_a_bonus_to_begin_with():
    with pytest.raises(SettingsError, match=r"entropy_bonus = 0\.0, allowed: > 0 with train\.entropy_target"):
        bind(TrainSettings, {"algorithm": "gspo_token", "entropy_target": 0.5}, "train")


def test_algorithms_with_one_advantage_for_each_reply_take_no_bonus():
    with pytest.raises(SettingsError, match=r"entropy_bonus = 0\.1, allowed: 0 with train\.algorithm = gspo"):
        bind(TrainSettings, {"entropy_bonus": 0.1})


REWARDS = np.array([[1.0, 0.8, 0.0, -1.0, -1.0], [0.5, 0.4, 0.3, 0.2, 0.1]])
GROUP = [reply("win"), reply("optimal"), reply("legal"), reply("occupied"), reply("no_tool_call")]


@pytest.mark.parametrize("kind", ["shuffle_all", "shuffle_valid"])
def test_a_board_keeps_its_rewards(kind):
    dealt = Shuffle(kind, VALID, (1, 2)).deal(REWARDS, [GROUP, GROUP])
    assert np.sort(dealt, axis=1).tolist() == np.sort(REWARDS, axis=1).tolist()
    assert dealt.tolist() == Shuffle(kind, VALID, (1, 2)).deal(REWARDS, [GROUP, GROUP]).tolist()
    assert REWARDS[0].tolist() == [1.0, 0.8, 0.0, -1.0, -1.0]


def test_what_a_shuffle_moves():
    """Over many keys each reward goes to each reply that takes part about equally often, and to no other."""
    mean = {}
    for kind in ("shuffle_all", "shuffle_valid"):
        deals = [Shuffle(kind, VALID, (1, k)).deal(REWARDS[:1], [GROUP])[0] for k in range(2000)]
        mean[kind] = np.mean(deals, axis=0)
    assert mean["shuffle_all"] == pytest.approx([-0.04] * 5, abs=0.1)
    assert mean["shuffle_valid"] == pytest.approx([0.6, 0.6, 0.6, -1.0, -1.0], abs=0.05)
