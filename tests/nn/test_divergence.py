"""Divergences: closed forms against integrals, estimates against closed forms, their gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leeward.nn.distributions import Categorical, JointMixture, TanhMixture, TanhNormal
from leeward.nn.divergence import DivergenceKind, divergence
from leeward.nn.kernel import KernelMixture

SAMPLES = 20_000
GRID = np.linspace(-12.0, 12.0, 20_001)  # before tanh
FIRST = {"logit": [0.4, -0.3], "mean": [-0.6, 0.8], "log_std": [-0.5, -0.9]}
SECOND = {"logit": [-0.2, 0.5], "mean": [0.1, 0.9], "log_std": [-0.2, -0.4]}


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def normal(mean: Any, log_std: Any) -> TanhNormal:
    """One state, one action dimension."""
    return TanhNormal(jnp.reshape(mean, (1, 1)), jnp.reshape(log_std, (1, 1)))


def mixture(parts: dict[str, Any]) -> TanhMixture:
    """One state, one action dimension, two components."""
    return TanhMixture(
        *(jnp.reshape(jnp.asarray(parts[name]), (1, 1, 2)) for name in ("logit", "mean", "log_std"))
    )


def joint_mixture(parts: dict[str, Any]) -> JointMixture:
    """The same as a mixture of whole actions."""
    logit, mean, log_std = (jnp.asarray(parts[name]) for name in ("logit", "mean", "log_std"))
    return JointMixture(logit[None], mean[None, :, None], log_std[None, :, None])


def density(parts: dict[str, Any]) -> np.ndarray:
    """Before tanh, over the grid; divergences are the same there."""
    logit, mean, log_std = (np.asarray(parts[n], float) for n in ("logit", "mean", "log_std"))
    weight = np.exp(logit) / np.exp(logit).sum()
    z = (GRID[:, None] - mean) / np.exp(log_std)
    return (weight * np.exp(-0.5 * z**2 - log_std) / np.sqrt(2 * np.pi)).sum(axis=1)


def integrated(kind: str, first: np.ndarray, second: np.ndarray) -> float:
    """The divergence by the trapezoid rule."""

    def kl(p: np.ndarray, q: np.ndarray) -> float:
        terms = np.where(p > 0.0, p * (np.log(np.maximum(p, 1e-300)) - np.log(q)), 0.0)
        return float(np.trapezoid(terms, GRID))

    if kind == "kl":
        return kl(first, second)
    return 0.5 * (kl(first, (first + second) / 2) + kl(second, (first + second) / 2))


def single(mean: float, log_std: float) -> dict[str, Any]:
    return {"logit": [0.0], "mean": [mean], "log_std": [log_std]}


def test_kl_of_gaussians_is_the_integral_and_sums_over_dimensions() -> None:
    first = TanhNormal(jnp.asarray([[0.3, -1.0]]), jnp.asarray([[-0.5, 0.2]]))
    second = TanhNormal(jnp.asarray([[-0.4, 0.5]]), jnp.asarray([[0.1, -0.3]]))
    found = divergence("kl", first, second, jax.random.key(0), 1, 1e-6)
    expected = integrated("kl", density(single(0.3, -0.5)), density(single(-0.4, 0.1)))
    expected += integrated("kl", density(single(-1.0, 0.2)), density(single(0.5, -0.3)))
    np.testing.assert_allclose(found, [expected], rtol=1e-6)
    itself = divergence("kl", first, first, jax.random.key(0), 1, 1e-6)
    np.testing.assert_allclose(itself, 0.0, atol=1e-12)


def test_divergences_of_categoricals_are_exact() -> None:
    p, q = np.asarray([0.7, 0.2, 0.1]), np.asarray([0.2, 0.5, 0.3])
    first, second = (Categorical(jnp.log(jnp.asarray(d))[None] + 3.0) for d in (p, q))
    middle = (p + q) / 2
    expected = {
        "kl": (p * np.log(p / q)).sum(),
        "js": 0.5 * ((p * np.log(p / middle)).sum() + (q * np.log(q / middle)).sum()),
    }
    kinds: tuple[DivergenceKind, ...] = ("kl", "js")
    for kind in kinds:
        found = divergence(kind, first, second, jax.random.key(0), 1, 1e-6)
        np.testing.assert_allclose(found, [expected[kind]], rtol=1e-12)


@pytest.mark.parametrize(
    ("kind", "make"), [("kl", mixture), ("js", mixture), ("kl", joint_mixture)]
)
def test_mixtures_are_estimated_with_their_gradient(
    kind: DivergenceKind, make: Callable[[dict[str, Any]], TanhMixture | JointMixture]
) -> None:
    """Value and gradient, the mixture's weights included, against integrals and their slopes."""

    def sampled(parts: dict[str, Any]) -> jax.Array:
        key = jax.random.key(3)
        return divergence(kind, make(parts), make(SECOND), key, SAMPLES, 1e-9)[0]

    first = {name: jnp.asarray(value) for name, value in FIRST.items()}
    found, gradient = jax.jit(jax.value_and_grad(sampled))(first)
    other = density(SECOND)
    assert found == pytest.approx(integrated(kind, density(FIRST), other), abs=0.01)
    for name in FIRST:
        for i in range(2):
            ends = []
            for sign in (1.0, -1.0):
                moved = {n: list(v) for n, v in FIRST.items()}
                moved[name][i] += sign * 1e-4
                ends.append(integrated(kind, density(moved), other))
            slope = (ends[0] - ends[1]) / 2e-4
            assert gradient[name][i] == pytest.approx(slope, abs=0.02), f"{name} {i}"


def test_estimates_of_gaussians_agree_with_closed_forms() -> None:
    """A mixture of one component is a Gaussian; Jensen-Shannon has an integral."""
    first = single(0.3, -0.5)
    alone = TanhMixture(jnp.zeros((1, 1, 1)), jnp.full((1, 1, 1), 0.3), jnp.full((1, 1, 1), -0.5))
    second = normal(-0.4, 0.1)
    key, other = jax.random.key(1), density(single(-0.4, 0.1))
    found = jax.jit(lambda a, b: divergence("kl", a, b, key, SAMPLES, 1e-9))(alone, second)
    np.testing.assert_allclose(found, [integrated("kl", density(first), other)], atol=0.02)
    js = jax.jit(lambda a, b: divergence("js", a, b, key, SAMPLES, 1e-9))(normal(0.3, -0.5), second)
    np.testing.assert_allclose(js, [integrated("js", density(first), other)], atol=0.01)


def test_jensen_shannon_is_bounded_where_kl_is_not() -> None:
    near, far = normal(-3.0, -5.0), normal(3.0, -5.0)
    key = jax.random.key(0)
    assert divergence("kl", near, far, key, 2, 1e-6)[0] > 1e5
    assert divergence("js", near, far, key, 2, 1e-6)[0] == pytest.approx(np.log(2.0), rel=1e-6)


def test_a_kernel_density_is_compared_by_samples() -> None:
    """Its density is over actions, not squashed: log policy carries tanh's slope."""
    kernel = KernelMixture(
        jnp.asarray([[0.2, -0.5]]), jnp.asarray([[[-0.3], [0.5]]]), jnp.asarray([[-1.0]])
    )
    policy = normal(0.2, -1.0)
    found = divergence("kl", policy, kernel, jax.random.key(2), SAMPLES, 1e-9)
    action = np.tanh(GRID)
    weight = np.exp([0.2, -0.5]) / np.exp([0.2, -0.5]).sum()
    z = (action[:, None] - np.asarray([-0.3, 0.5])) / np.exp(-1.0)
    behavior = (weight * np.exp(-0.5 * z**2) / np.exp(-1.0) / np.sqrt(2 * np.pi)).sum(axis=1)
    p = density(single(0.2, -1.0))  # before tanh
    slope = 2.0 * (np.log(2.0) - GRID - np.logaddexp(0.0, -2.0 * GRID))
    log_p = np.log(np.maximum(p, 1e-300)) - slope
    expected = np.trapezoid(p * (log_p - np.log(behavior)), GRID)
    np.testing.assert_allclose(found, [expected], atol=0.02)
    np.testing.assert_allclose(
        jnp.exp(kernel.log_prob(jnp.asarray([[0.1]]))),
        [(weight * np.exp(-0.5 * ((0.1 - np.asarray([-0.3, 0.5])) / np.exp(-1.0)) ** 2)).sum()
         / np.exp(-1.0) / np.sqrt(2 * np.pi)],
        rtol=1e-9,
    )  # fmt: skip
    np.testing.assert_array_equal(kernel.mode(), [[-0.3]])


@pytest.mark.parametrize(
    "other", [lambda: normal(0.5, -1.0), lambda: jnp.asarray([[np.tanh(0.5)]])]
)
def test_deterministic_actions_are_compared_by_squared_distance(other: Callable[[], Any]) -> None:
    action = jnp.asarray([[0.1]])
    expected = [(0.1 - np.tanh(0.5)) ** 2]
    for pair in ((action, other()), (other(), action)):
        found = divergence("kl", *pair, jax.random.key(0), 1, 1e-6)
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_no_gradient_reaches_the_behavior() -> None:
    def total(behavior: TanhNormal) -> jax.Array:
        return divergence("kl", normal(0.3, -0.5), behavior, jax.random.key(0), 1, 1e-6).sum()

    slopes = jax.grad(total)(normal(0.0, 0.0))
    assert all((np.asarray(leaf) == 0.0).all() for leaf in jax.tree.leaves(slopes))
