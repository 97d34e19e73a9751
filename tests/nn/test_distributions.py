"""Distributions over actions: densities against integrals, SciPy and finite differences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from leeward.nn.distributions import (
    MARGIN,
    Categorical,
    TanhMixture,
    TanhNormal,
    inside,
    normal_log_prob,
    tanh_log_slope,
)
from leeward.types import PRNGKey

LOGIT = np.asarray([0.3, -1.0, 1.2])
MEAN = np.asarray([-1.0, 0.2, 0.9])
LOG_STD = np.asarray([-0.7, -1.5, 0.1])


@jax.jit
def log_prob(distribution: Any, action: jax.Array, margin: float = MARGIN) -> jax.Array:
    """log_prob as one program, which compiles faster than its parts."""
    return distribution.log_prob(action, margin)


@jax.jit
def sample_and_log_prob(distribution: Any, key: PRNGKey) -> tuple[jax.Array, jax.Array]:
    """sample_and_log_prob as one program."""
    return distribution.sample_and_log_prob(key)


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def mixture(batch: int) -> TanhMixture:
    """The same one-dimensional mixture in every row: [batch, 1, 3]."""
    return TanhMixture(*(jnp.tile(p, (batch, 1, 1)) for p in (LOGIT, MEAN, LOG_STD)))


def normal(batch: int, mean: float, log_std: float) -> TanhNormal:
    return TanhNormal(jnp.full((batch, 1), mean), jnp.full((batch, 1), log_std))


def integral(log_density: np.ndarray, before: np.ndarray) -> float:
    """∫ density over actions tanh(before), by the trapezoid rule in `before`."""
    return float(np.trapezoid(np.exp(log_density) * (1.0 - np.tanh(before) ** 2), before))


@pytest.mark.parametrize("case", ["normal", "mixture"])
def test_densities_integrate_to_one_over_actions(case: str) -> None:
    before = np.linspace(-7.0, 7.0, 20_001)
    distribution = normal(20_001, 0.4, -0.3) if case == "normal" else mixture(20_001)
    density = log_prob(distribution, jnp.tanh(before)[:, None], 1e-12)
    assert integral(np.asarray(density), before) == pytest.approx(1.0, abs=1e-5)


def test_normal_log_prob_is_scipy_s() -> None:
    value, mean, log_std = np.random.default_rng(0).normal(size=(3, 50))
    expected = scipy.stats.norm.logpdf(value, mean, np.exp(log_std))
    found = normal_log_prob(jnp.asarray(value), jnp.asarray(mean), jnp.asarray(log_std))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_tanh_normal_log_prob_is_scipy_s_with_a_change_of_variables() -> None:
    draw = np.random.default_rng(1)
    before, mean = draw.normal(size=(2, 20, 3))
    log_std = draw.normal(size=(20, 3))
    expected = scipy.stats.norm.logpdf(before, mean, np.exp(log_std))
    expected = (expected - np.log(1.0 - np.tanh(before) ** 2)).sum(axis=1)
    policy = TanhNormal(jnp.asarray(mean), jnp.asarray(log_std))
    np.testing.assert_allclose(log_prob(policy, jnp.tanh(before)), expected, rtol=1e-8)


def test_tanh_mixture_log_prob_is_scipy_s_with_a_change_of_variables() -> None:
    draw = np.random.default_rng(2)
    logit, mean, log_std = draw.normal(size=(3, 20, 2, 4))
    before = draw.normal(size=(20, 2))
    weight = scipy.special.log_softmax(logit, axis=2)
    component = scipy.stats.norm.logpdf(before[:, :, None], mean, np.exp(log_std))
    expected = scipy.special.logsumexp(weight + component, axis=2)
    expected = (expected - np.log(1.0 - np.tanh(before) ** 2)).sum(axis=1)
    policy = TanhMixture(*(jnp.asarray(p) for p in (logit, mean, log_std)))
    np.testing.assert_allclose(log_prob(policy, jnp.tanh(before)), expected, rtol=1e-8)


def test_a_mixture_of_equal_components_is_one_normal() -> None:
    policy = TanhMixture(jnp.ones((1, 2, 5)), jnp.full((1, 2, 5), 0.3), jnp.full((1, 2, 5), -0.5))
    action = jnp.asarray([[0.2, -0.9]])
    single = TanhNormal(jnp.full((1, 2), 0.3), jnp.full((1, 2), -0.5))
    np.testing.assert_allclose(log_prob(policy, action), log_prob(single, action), rtol=1e-12)


def test_tanh_log_slope_is_exact_where_tanh_saturates() -> None:
    near = np.linspace(-3.0, 3.0, 50)
    np.testing.assert_allclose(
        tanh_log_slope(jnp.asarray(near)), np.log(1.0 - np.tanh(near) ** 2), rtol=1e-10
    )
    # For large |v|, log(1 − tanh²) → log 4 − 2|v|, while 1 − tanh² itself underflows.
    far = np.asarray([-500.0, -40.0, 40.0, 500.0])
    np.testing.assert_allclose(
        tanh_log_slope(jnp.asarray(far)), np.log(4.0) - 2.0 * np.abs(far), rtol=1e-12
    )
    slope = jax.vmap(jax.grad(tanh_log_slope))(jnp.asarray(far))
    np.testing.assert_allclose(slope, [2.0, 2.0, -2.0, -2.0])


@pytest.mark.parametrize("mean", [-30.0, 0.0, 30.0])
def test_a_sample_s_log_prob_is_exact_even_where_tanh_saturates(mean: float) -> None:
    key = jax.random.key(1)
    action, found = sample_and_log_prob(normal(1, mean, -2.0), key)
    before = mean + np.exp(-2.0) * float(jax.random.normal(key, (1, 1))[0, 0])
    log_slope = 2.0 * (np.log(2.0) - abs(before) - np.log1p(np.exp(-2.0 * abs(before))))
    expected = scipy.stats.norm.logpdf(before, mean, np.exp(-2.0)) - log_slope
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    np.testing.assert_allclose(action, np.tanh(before))
    assert (abs(float(action[0, 0])) == 1.0) == (mean != 0.0)


@pytest.mark.parametrize("case", ["normal", "mixture"])
def test_log_prob_of_a_sample_is_the_density_at_it(case: str) -> None:
    distribution = normal(100, 0.3, -0.5) if case == "normal" else mixture(100)
    action, found = sample_and_log_prob(distribution, jax.random.key(2))
    np.testing.assert_allclose(found, log_prob(distribution, action, 1e-12), rtol=1e-6)
    np.testing.assert_allclose(action, distribution.sample(jax.random.key(2)), rtol=1e-12)


@pytest.mark.parametrize("case", ["normal", "mixture"])
def test_samples_follow_the_density(case: str) -> None:
    """Kolmogorov-Smirnov: 4,000 samples before tanh against the exact distribution function."""
    distribution = normal(4000, 0.3, -0.5) if case == "normal" else mixture(4000)
    before = np.arctanh(np.asarray(sample_and_log_prob(distribution, jax.random.key(3))[0])[:, 0])

    def cumulative(value: np.ndarray) -> np.ndarray:
        if case == "normal":
            return scipy.stats.norm.cdf(value, 0.3, np.exp(-0.5))
        weight = scipy.special.softmax(LOGIT)
        return (weight * scipy.stats.norm.cdf(value[:, None], MEAN, np.exp(LOG_STD))).sum(axis=1)

    assert scipy.stats.kstest(before, cumulative).pvalue > 0.01


def test_an_action_on_the_bound_has_the_density_at_the_margin() -> None:
    distribution = normal(2, 0.3, -0.5)
    for margin in (MARGIN, 0.01):
        on_bound = log_prob(distribution, jnp.asarray([[1.0], [-1.0]]), margin)
        at_margin = log_prob(distribution, jnp.asarray([[1.0 - margin], [margin - 1.0]]), 1e-12)
        np.testing.assert_allclose(on_bound, at_margin, rtol=1e-6)


@pytest.mark.parametrize("case", ["normal", "mixture"])
def test_no_gradient_reaches_an_action_beyond_the_margin(case: str) -> None:
    distribution = normal(3, 0.3, -0.5) if case == "normal" else mixture(3)
    slope = jax.grad(lambda action: log_prob(distribution, action, 0.01).sum())
    found = np.asarray(slope(jnp.asarray([[1.0], [-0.995], [0.98]])))[:, 0]
    np.testing.assert_array_equal(found[:2], 0.0)
    assert found[2] != 0.0


def test_float32_stays_finite_on_the_bound_with_the_default_margin() -> None:
    with jax.enable_x64(False):
        policy = TanhNormal(jnp.zeros((1, 1)), jnp.zeros((1, 1)))
        action = jnp.ones((1, 1))
        assert float(inside(action, MARGIN)[0, 0]) < 1.0
        assert np.isfinite(log_prob(policy, action)).all()
        # Half of (atanh(1 − 1e-6))², and a density of the slope there, log(2e-6).
        expected = -0.5 * 7.2543**2 - 0.5 * np.log(2.0 * np.pi) - np.log(2e-6)
        np.testing.assert_allclose(log_prob(policy, action), expected, rtol=2e-2)


def test_a_mixture_sample_s_gradient_is_that_of_its_chosen_components() -> None:
    """Finite differences of the mean of samples, every sample keeping its component."""
    batch, key = 64, jax.random.key(4)
    component_key, noise_key = jax.random.split(key)
    component = np.asarray(jax.random.categorical(component_key, mixture(batch).logit))
    noise = np.asarray(jax.random.normal(noise_key, component.shape))
    assert len(np.unique(component)) == 3

    def slow_mean(mean: np.ndarray, log_std: np.ndarray) -> float:
        before = mean[component] + np.exp(log_std[component]) * noise
        return float(np.tanh(before).mean())

    def mean_sample(mean: jax.Array, log_std: jax.Array, logit: jax.Array) -> jax.Array:
        rows = (jnp.tile(p, (batch, 1, 1)) for p in (logit, mean, log_std))
        return TanhMixture(*rows).sample(key).mean()

    parameters = (jnp.asarray(MEAN), jnp.asarray(LOG_STD), jnp.asarray(LOGIT))
    slope = jax.grad(mean_sample, argnums=(0, 1, 2))(*parameters)
    for i in range(3):
        step = 1e-6 * np.eye(3)[i]
        by_mean = (slow_mean(MEAN + step, LOG_STD) - slow_mean(MEAN - step, LOG_STD)) / 2e-6
        by_std = (slow_mean(MEAN, LOG_STD + step) - slow_mean(MEAN, LOG_STD - step)) / 2e-6
        np.testing.assert_allclose(slope[0][i], by_mean, rtol=1e-6)
        np.testing.assert_allclose(slope[1][i], by_std, rtol=1e-6)
    np.testing.assert_array_equal(slope[2], 0.0)  # the choice itself has no gradient


def test_modes_are_deterministic() -> None:
    assert float(normal(1, 0.3, -0.5).mode()[0, 0]) == pytest.approx(np.tanh(0.3))
    # The likeliest component by weight, 2, though the narrow component 1 has the highest peak.
    assert float(mixture(1).mode()[0, 0]) == pytest.approx(np.tanh(0.9))


def test_distributions_take_any_leading_axes() -> None:
    draw = np.random.default_rng(5)
    parameters = jnp.asarray(draw.normal(size=(3, 2, 4, 2, 5)))  # [2, 4] of [A=2, K=5]
    action = jnp.asarray(draw.uniform(-1, 1, size=(2, 4, 2)))

    flat = TanhMixture(*parameters.reshape(3, 8, 2, 5))
    found = log_prob(TanhMixture(*parameters), action)
    np.testing.assert_allclose(found.reshape(8), log_prob(flat, action.reshape(8, 2)))
    assert TanhMixture(*parameters).sample(jax.random.key(0)).shape == (2, 4, 2)


def test_rows_have_noise_of_their_own() -> None:
    for distribution in (normal(64, 0.0, 0.0), mixture(64)):
        action, _ = sample_and_log_prob(distribution, jax.random.key(0))
        assert len(np.unique(np.asarray(action))) == 64


def test_categorical_is_scipy_s() -> None:
    logit = np.random.default_rng(6).normal(size=(7, 4))
    policy = Categorical(jnp.asarray(logit))
    probability = scipy.special.softmax(logit, axis=1)
    action = np.asarray([0, 1, 2, 3, 0, 1, 2])
    np.testing.assert_allclose(
        policy.log_prob(jnp.asarray(action)), np.log(probability[np.arange(7), action]), rtol=1e-12
    )
    np.testing.assert_allclose(
        policy.entropy(), scipy.stats.entropy(probability, axis=1), rtol=1e-12
    )
    np.testing.assert_array_equal(policy.mode(), logit.argmax(axis=1))


def test_categorical_samples_follow_their_probabilities() -> None:
    logit = np.asarray([0.0, 1.0, -1.0])
    sample = Categorical(jnp.tile(logit, (3000, 1))).sample(jax.random.key(7))
    count = np.bincount(np.asarray(sample), minlength=3)
    assert scipy.stats.chisquare(count, 3000 * scipy.special.softmax(logit)).pvalue > 0.01
