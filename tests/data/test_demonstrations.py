"""What value networks ask of demonstrations, against sums worked out by hand."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from leeward.data.dataset import Dataset
from leeward.data.demonstrations import (
    constant_reward,
    episode_emphasis,
    known_returns,
    value_measures,
    value_quality,
    without_rewards,
)
from leeward.data.passes import PART, mean_over, over_transitions
from leeward.data.sampling import DeviceData, fit_scaling, to_device

# Episodes of 4, 3 and 3 steps: a success, a failure, one that is cut.
REWARD = np.asarray([0, 0, 0, 1, 0, 0, -1, 0, 0, 0], float)
ENDS = np.asarray([0, 0, 0, 1, 0, 0, 1, 0, 0, 0], bool)
CUT = np.asarray([0, 0, 0, 0, 0, 0, 0, 0, 0, 1], bool)


def device_data(reward: np.ndarray = REWARD, gap: float = 0.5) -> DeviceData:
    """Observations are row numbers; ends have next observations of their own."""
    rows = len(reward)
    following = np.arange(1.0, rows + 1.0)
    following[[3, 6, 9]] += gap
    dataset = Dataset.from_arrays(
        np.arange(rows, dtype=float)[:, None],
        np.linspace(-1.0, 1.0, rows)[:, None],
        reward,
        ENDS,
        CUT,
        next_observation=following[:, None],
    )
    return to_device(dataset, fit_scaling(dataset, normalize_observations=False))


def test_zeros_stand_for_missing_rewards() -> None:
    assert without_rewards(device_data(np.zeros(10)))
    assert not without_rewards(device_data())
    np.testing.assert_array_equal(constant_reward(jnp.asarray([0.0, 1.0])), [1.0, 0.0])


def test_starts_successes_and_failures_are_stressed() -> None:
    found = episode_emphasis(device_data(), 2, 2.0, 3.0, 5.0)
    np.testing.assert_array_equal(found, [2, 2, 3, 3, 2, 10, 5, 2, 2, 1])


def test_returns_are_known_where_the_rest_is_small() -> None:
    returns, known = known_returns(device_data(), 0.5)
    np.testing.assert_allclose(returns[:4], [0.125, 0.25, 0.5, 1.0])
    np.testing.assert_array_equal(known, [True] * 7 + [False] * 3)  # 0.5³ is above 0.05
    assert known_returns(device_data(), 0.3)[1][7]  # 0.3³ is below


def test_values_are_correlated_with_known_returns() -> None:
    draw = np.random.default_rng(0)
    value, returns = draw.normal(size=(2, 20))
    known = draw.uniform(size=20) < 0.6
    found = value_quality(jnp.asarray(value), jnp.asarray(returns), jnp.asarray(known))
    expected = np.corrcoef(value[known], returns[known])[0, 1]
    assert found["return_correlation"] == pytest.approx(expected, rel=1e-4)
    error = np.sqrt(np.square(value - returns)[known].mean())
    assert found["return_error"] == pytest.approx(error, rel=1e-5)
    assert found["return_known"] == pytest.approx(known.mean())
    constant = value_quality(jnp.ones(20), jnp.asarray(returns), jnp.asarray(known))
    assert np.isnan(constant["return_correlation"])


def test_td_errors_bootstrap_where_episodes_are_cut_and_not_where_they_end() -> None:
    data = device_data()

    def value(observation: jnp.ndarray) -> jnp.ndarray:
        return 10.0 * observation[:, 0]

    found = value_measures(value, data, 0.5, jnp.float32(0.0))
    v = 10.0 * np.arange(10)
    following = np.append(v[1:], 105.0) * ~ENDS
    error = np.abs(REWARD + 0.5 * following - v).mean()
    assert found["td_error"] == pytest.approx(error, rel=1e-6)
    assert found["v_mean"] == pytest.approx(45.0)
    assert found["return_correlation"] < 1.0
    replaced = value_measures(value, data, 0.5, jnp.float32(1.0))
    error = np.abs(1.0 - ENDS + 0.5 * following - v).mean()
    assert replaced["td_error"] == pytest.approx(error, rel=1e-6)


def test_a_pass_reaches_every_transition_once() -> None:
    data = device_data()
    np.testing.assert_array_equal(over_transitions(lambda n: n * n, data), np.arange(10) ** 2)
    many = data._replace(start=jnp.arange(PART + 3))
    found = over_transitions(lambda n: (n, {"pair": jnp.stack([n, -n], axis=1)}), many)
    np.testing.assert_array_equal(found[0], np.arange(PART + 3))
    np.testing.assert_array_equal(found[1]["pair"][-1], [PART + 2, -PART - 2])
    mean = mean_over(lambda batch: {"place": batch.observation[:, 0]}, data)
    assert mean["place"] == pytest.approx(4.5)
