"""Credit on the tree of rollouts: values by hand, and what must hold of every tree."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninegrid.gspo.credit import branch_advantages

REPLIES = st.lists(
    st.tuples(st.lists(st.integers(0, 2), min_size=0, max_size=5), st.sampled_from([-1.0, 0.0, 0.8, 1.0])),
    min_size=2,
    max_size=12,
)


def test_by_hand():
    """Four replies: "a b s" worth 1, "a c s" worth 0, "a c s" again, and "x s" worth -1.

    Root: (1 + 0 + 0 - 1) / 4 = 0.  Node a: 1/3; its edge gets 1/3 - 0.  Below it b: 1 - 1/3 = 2/3 and
    c: 0 - 1/3.  x: -1 - 0.  After that each child holds the same samples as its parent: 0.
    """
    a, b, c, x, s = range(5)
    replies = [(a, b, s), (a, c, s), (a, c, s), (x, s)]
    found = branch_advantages(replies, np.array([1.0, 0.0, 0.0, -1.0]), scale_by_std=False)
    assert found[0].tolist() == pytest.approx([1 / 3, 2 / 3, 0])
    assert found[1].tolist() == found[2].tolist() == pytest.approx([1 / 3, -1 / 3, 0])
    assert found[3].tolist() == pytest.approx([-1, 0])


def test_divided_by_the_spread():
    # Rewards 1 and -1 have the standard deviation 1; 3 and -3 three times as much.
    replies = [(0, 9), (1, 9)]
    for height in (1.0, 3.0):
        found = branch_advantages(replies, np.array([height, -height]), scale_by_std=True)
        assert [row.tolist() for row in found] == [[1.0, 0.0], [-1.0, 0.0]]


def test_only_the_forks_are_credited():
    """Well-formed replies that differ in the move alone: the move gets all of it, the format nothing."""
    replies = [(5, 6, move, 7, 8) for move in (1, 2, 3)]
    found = branch_advantages(replies, np.array([1.0, 0.0, -1.0]), scale_by_std=False)
    assert [row.tolist() for row in found] == [[0, 0, 1, 0, 0], [0, 0, 0, 0, 0], [0, 0, -1, 0, 0]]


def test_equal_rewards_teach_nothing():
    found = branch_advantages([(0, 1), (2,), (0, 3)], np.array([0.8, 0.8, 0.8]), scale_by_std=True)
    assert not any(row.any() for row in found)


@given(REPLIES)
def test_along_a_reply_credit_adds_up_to_the_group_relative_advantage(drawn):
    stop = 9  # a stop token, so that no reply is the beginning of another
    replies = [(*tokens, stop) for tokens, _ in drawn]
    worth = dict(zip(replies, (r for _, r in drawn), strict=True))  # equal replies earn the same
    rewards = np.array([worth[reply] for reply in replies])
    found = branch_advantages(replies, rewards, scale_by_std=False)
    for row, reply, reward in zip(found, replies, rewards, strict=True):
        assert len(row) == len(reply)
        assert row.sum() == pytest.approx(reward - rewards.mean(), abs=1e-9)


@given(REPLIES)
def test_at_every_fork_credit_is_zero_on_average(drawn):
    replies = [(*tokens, 9) for tokens, _ in drawn]
    rewards = np.array([reward for _, reward in drawn])
    found = branch_advantages(replies, rewards, scale_by_std=False)
    for depth in range(max(map(len, replies))):
        for prefix in {reply[:depth] for reply in replies}:
            here = [
                row[depth]
                for row, reply in zip(found, replies, strict=True)
                if reply[:depth] == prefix and len(reply) > depth
            ]
            assert sum(here) == pytest.approx(0, abs=1e-9)
