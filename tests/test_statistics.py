"""Intervals and tests against published or hand-computed values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninegrid.evaluation.statistics import cluster_bootstrap, mcnemar, wilson_interval


def test_wilson_by_hand():
    # n = 10, 5 successes, z = 1.959964, z^2 = 3.841459: centre (0.5 + 0.192073) / 1.384146 = 0.5,
    # half width 1.959964 * sqrt(0.025 + 0.009604) / 1.384146 = 0.263407.
    assert wilson_interval(5, 10, 0.95) == pytest.approx((0.236593, 0.763407), abs=1e-5)


def test_wilson_at_the_ends_has_width():
    # 0 of 10: upper end z^2 / (n + z^2) = 3.841459 / 13.841459 = 0.277533.
    assert wilson_interval(0, 10, 0.95) == pytest.approx((0.0, 0.277533), abs=1e-5)
    assert wilson_interval(10, 10, 0.95) == pytest.approx((1 - 0.277533, 1.0), abs=1e-5)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_contains_the_rate_and_stays_in_range(case):
    successes, n = case
    low, high = wilson_interval(successes, n, 0.95)
    assert 0 <= low <= successes / n + 1e-12
    assert successes / n - 1e-12 <= high <= 1


def test_mcnemar_is_a_binomial_test_of_the_discordant_pairs():
    # 5 gained, 0 lost: both tails of (1/2)^5 = 2/32.  3 and 1: 2 * (1 + 4) / 16 = 0.625.
    assert mcnemar(5, 0) == pytest.approx(2 / 32)
    assert mcnemar(3, 1) == pytest.approx(0.625)
    assert mcnemar(0, 0) == 1.0


def test_bootstrap_of_a_constant_has_no_width():
    low, high = cluster_bootstrap(
        np.full((6, 1), 0.25), list("aabbcc"), resamples=200, confidence=0.9, seed=1
    )
    assert low == pytest.approx([0.25])
    assert high == pytest.approx([0.25])


def test_bootstrap_agrees_with_the_normal_interval_when_clusters_are_single():
    values = np.random.default_rng(0).normal(size=(400, 1))
    names = [str(i) for i in range(400)]
    low, high = cluster_bootstrap(values, names, resamples=4000, confidence=0.95, seed=1)
    half = 1.959964 * values.std() / 20  # sqrt(400) = 20
    assert low[0] == pytest.approx(values.mean() - half, abs=0.01)
    assert high[0] == pytest.approx(values.mean() + half, abs=0.01)


def test_copies_within_a_cluster_do_not_narrow_the_interval():
    values = np.random.default_rng(0).normal(size=(50, 1))
    names = [str(i) for i in range(50)]
    single = cluster_bootstrap(values, names, resamples=2000, confidence=0.95, seed=1)
    repeated = [n for n in names for _ in range(8)]
    copied = cluster_bootstrap(
        np.repeat(values, 8, axis=0), repeated, resamples=2000, confidence=0.95, seed=1
    )
    assert copied[1] - copied[0] == pytest.approx(single[1] - single[0])


def test_same_seed_same_interval():
    values = np.random.default_rng(0).normal(size=(50, 2))
    names = [str(i % 7) for i in range(50)]
    one, two = (cluster_bootstrap(values, names, resamples=300, confidence=0.95, seed=4) for _ in range(2))
    assert np.array_equal(one, two)
