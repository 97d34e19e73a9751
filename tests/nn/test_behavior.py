"""Behavior models: kernel densities, floors, augmented states; FMR's weights and schedules."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leeward.nn.behavior import (
    LOG_STD_FLOOR,
    at_floor,
    augmented,
    behavior_of,
    fit_quality,
    floored,
    make_kernel_density,
    outputs,
)
from leeward.nn.distributions import Categorical, TanhNormal
from leeward.nn.divergence import normal_kl
from leeward.nn.feedback import Weighting, decayed, feedback_weight, standardize, warmed_up
from leeward.nn.kernel import LARGEST_REFERENCE, KernelMixture, evenly
from leeward.types import Box, Discrete, Spec

SPEC = Spec((1,), "float32", Box((-1.0,), (1.0,)))
PLACES = jnp.asarray([[0.0], [1.0], [2.0], [10.0]])
ACTIONS = jnp.asarray([[-0.5], [0.0], [0.5], [1.0]])


def test_a_kernel_density_takes_the_nearest_transitions_but_not_its_own() -> None:
    model = make_kernel_density(SPEC, 2, 0.25).filled(PLACES, ACTIONS, jnp.arange(4))
    mixture = behavior_of(model, outputs(model, PLACES[:1], jnp.asarray([0])))
    assert isinstance(mixture, KernelMixture)
    # From 0 the others are at 1, 2 and 10: squared distances 1 and 4, their mean is 2.5.
    np.testing.assert_allclose(mixture.center[0, :, 0], [0.0, 0.5])
    np.testing.assert_allclose(mixture.logit[0], [-0.2, -0.8], rtol=1e-5)
    np.testing.assert_allclose(np.exp(mixture.log_std), 0.25, rtol=1e-6)
    elsewhere = model(jnp.asarray([[0.1]]))
    assert isinstance(elsewhere, KernelMixture)
    np.testing.assert_allclose(elsewhere.center[0, :, 0], [-0.5, 0.0])


def test_a_kernel_density_of_integers_is_a_share_of_votes() -> None:
    model = make_kernel_density(SPEC._replace(action=Discrete(3)), 2, 0.3)
    model = model.filled(PLACES, jnp.asarray([0, 0, 2, 1], jnp.int32), jnp.arange(4))
    votes = model(jnp.asarray([[1.5]]))  # 1 and 2 are equally near
    assert isinstance(votes, Categorical)
    np.testing.assert_allclose(
        jax.nn.softmax(votes.logit), [[0.7 * 0.5 + 0.1, 0.1, 0.7 * 0.5 + 0.1]], rtol=1e-5
    )


def test_large_data_are_thinned_evenly() -> None:
    np.testing.assert_array_equal(evenly(5), np.arange(5))
    million = evenly(1_000_000)
    assert len(million) == LARGEST_REFERENCE
    np.testing.assert_array_equal(np.diff(million), 100)


def test_stds_have_a_floor_so_that_kl_stays_finite() -> None:
    sharp = TanhNormal(jnp.asarray([[0.0, 5.0]]), jnp.asarray([[-19.0, 0.0]]))
    behavior = floored(sharp)
    assert isinstance(behavior, TanhNormal)
    np.testing.assert_array_equal(behavior.log_std, [[LOG_STD_FLOOR, 0.0]])
    np.testing.assert_array_equal(at_floor(behavior), [0.5])
    policy = TanhNormal(jnp.asarray([[8.0, -8.0]]), jnp.asarray([[2.0, 2.0]]))
    assert np.isfinite(normal_kl(policy, behavior)).all()


def test_fits_are_judged_by_likelihood_and_error() -> None:
    action = jnp.asarray([[0.2, -0.4]])
    point = fit_quality(jnp.asarray([[0.0, 0.0]]), action, 1e-6)
    assert sorted(point) == ["squared_error"]
    np.testing.assert_allclose(point["squared_error"], [0.1], rtol=1e-6)
    votes = Categorical(jnp.log(jnp.asarray([[0.2, 0.8]])))
    found = fit_quality(votes, jnp.asarray([0], jnp.int32), 1e-6)
    np.testing.assert_allclose(found["log_likelihood"], [np.log(0.2)], rtol=1e-5)
    np.testing.assert_array_equal(found["accuracy"], [0.0])


def test_augmented_states_lie_on_the_way_to_the_next() -> None:
    here, there = jnp.zeros((500, 2)), jnp.tile(jnp.asarray([[1.0, -2.0]]), (500, 1))
    key = jax.random.key(0)
    moved = np.asarray(augmented(here, there, 0.0, 0.5, key))
    np.testing.assert_allclose(moved[:, 1], -2.0 * moved[:, 0], atol=1e-6)
    assert 0.0 <= moved[:, 0].min() < 0.02
    assert 0.48 < moved[:, 0].max() <= 0.5
    np.testing.assert_array_equal(augmented(here, there, 0.0, 0.0, key), here)
    blurred = np.asarray(augmented(here, there, 0.3, 0.0, key))
    assert blurred.std() == pytest.approx(0.3, abs=0.02)


# --- Weights ---


@pytest.mark.parametrize(
    ("weighting", "expected"),
    [
        ("low-value", np.log1p(np.exp([2.0, 1.0, 0.0, -2.0]))),
        ("centered", np.asarray([-1.75, -0.75, 0.25, 2.25])),
        ("reversed", np.asarray([1.75, 0.75, -0.25, -2.25])),
    ],
)
def test_weights_follow_the_clipped_signal(weighting: Weighting, expected: np.ndarray) -> None:
    signal = jnp.asarray([-7.0, -1.0, 0.0, 2.0])
    found = feedback_weight(signal, weighting, 2.0)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    slope = jax.grad(lambda s: feedback_weight(s, weighting, 2.0).sum())(signal)
    np.testing.assert_array_equal(slope, 0.0)


def test_a_signal_that_does_not_vary_weighs_all_states_alike() -> None:
    """A std below a thousandth of its size is what a fit leaves over."""
    left_over = jnp.asarray(np.random.default_rng(0).normal(size=100))
    for std, expected in ((0.0, 0.0), (0.05, 0.0), (0.2, 1.0)):
        found = standardize(100.0 + std * left_over)
        assert float(found.std()) == pytest.approx(expected, abs=0.01)
        assert (np.asarray(found) == 0.0).all() == (expected == 0.0)
    np.testing.assert_allclose(standardize(jnp.asarray([1.0, 3.0])), [-1.0, 1.0], rtol=1e-4)


def test_the_weight_of_the_divergence_is_scheduled() -> None:
    steps = jnp.asarray([0, 50, 100, 900])
    warm = [float(warmed_up(0.2, step, 100)) for step in steps]
    np.testing.assert_allclose(warm, [1e-5, 0.5 * (0.2 + 1e-5), 0.2, 0.2], rtol=1e-5)
    assert float(warmed_up(0.0, steps[1], 100)) == 0.0
    np.testing.assert_allclose(decayed(0.2, 0.5, jnp.asarray(3)), 0.025, rtol=1e-6)
