"""The bandit over trained policies: what it finds, what it costs, and what a user is left with."""

from __future__ import annotations

import numpy as np

from leeward.online_selection import EPISODES, POLICIES, online_selection


def test_with_many_tries_the_best_policy_is_found() -> None:
    policies = [np.full(10, level) for level in (10.0, 90.0, 40.0)]
    found = online_selection(policies)
    assert found.mean.shape == (EPISODES,)
    assert found.mean[-1] == found.low[-1] == 90.0
    # The first try is of any policy, and it is the one that is used.
    np.testing.assert_allclose(found.mean[0], (10.0 + 90.0 + 40.0) / 3, atol=3.0)
    # After three tries all three are known: they do not vary.
    assert found.mean[2] == 90.0


def test_a_policy_that_was_never_tried_is_never_used() -> None:
    """With scores below 0, one that counts as 0 would look best until it is tried."""
    found = online_selection([np.full(3, -50.0), np.full(3, -10.0)])
    np.testing.assert_allclose(found.mean[0], -30.0, atol=2.0)
    assert found.mean[1] == -10.0


def test_what_is_told_is_the_true_mean_and_not_the_luck_of_the_tries() -> None:
    generator = np.random.default_rng(0)
    policies = [generator.normal(50.0, 20.0, size=10) for _ in range(6)]
    found = online_selection(policies)
    truth = np.array([policy.mean() for policy in policies])
    assert found.mean.max() <= truth.max() + 1e-9
    assert found.low.min() >= truth.min() - 1e-9
    assert found.mean[-1] > found.mean[0]


def test_a_trial_uses_some_of_many_policies() -> None:
    """The best of 20 is among the 8 of a trial in 40 % of the trials."""
    policies = [np.full(2, 0.0)] * 19 + [np.full(2, 100.0)]
    found = online_selection(policies)
    np.testing.assert_allclose(found.mean[-1], 100.0 * POLICIES / 20, atol=5.0)


def test_policies_may_have_different_numbers_of_episodes() -> None:
    found = online_selection([np.array([1.0]), np.array([2.0, 2.0, 2.0])])
    assert found.mean[-1] == 2.0


def test_the_same_episodes_give_the_same_curve() -> None:
    policies = list(np.random.default_rng(1).normal(size=(4, 5)))
    one, again = online_selection(policies), online_selection(policies)
    for first, second in zip(one, again, strict=True):
        np.testing.assert_array_equal(first, second)
