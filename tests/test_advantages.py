"""Group-relative advantages by hand, and what ties become."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninegrid.gspo.advantages import group_advantages, informative


def test_by_hand():
    rewards = np.array([[1.0, 0.0, 0.0, -1.0], [0.8, 0.8, 0.8, 0.8]])
    # Group 0 has mean 0; group 1 is a tie.
    expected = [[1.0, 0.0, 0.0, -1.0], [0, 0, 0, 0]]
    assert group_advantages(rewards, scale_by_std=False).tolist() == expected


def test_divided_by_the_groups_standard_deviation():
    # Mean 0.5, deviations 0.5 and -0.5, population standard deviation 0.5: advantages 1 and -1.
    assert group_advantages(np.array([[1.0, 0.0]]), scale_by_std=True).tolist() == [[1.0, -1.0]]


@pytest.mark.parametrize("scale", [True, False])
def test_near_ties_carry_no_signal(scale):
    rewards = np.array([[0.1 + 0.2, 0.3], [0.3, 0.3 + 5e-7]])  # rounding, and less than the tie width
    advantages = group_advantages(rewards, scale_by_std=scale)
    assert (advantages == 0).all()
    assert informative(advantages).tolist() == [False, False]


@given(
    st.lists(st.lists(st.sampled_from([-1.0, 0.0, 0.8, 1.0]), min_size=4, max_size=4), min_size=1),
    st.booleans(),
)
def test_sum_to_zero_and_keep_the_order_of_rewards(rewards, scale):
    reward_GN = np.array(rewards)
    advantage_GN = group_advantages(reward_GN, scale_by_std=scale)
    assert np.allclose(advantage_GN.sum(1), 0)
    for reward_N, advantage_N in zip(reward_GN, advantage_GN, strict=True):
        differing = reward_N[:, None] > reward_N[None, :]
        assert (advantage_N[:, None] > advantage_N[None, :])[differing].all()
