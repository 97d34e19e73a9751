"""The shared formulas, on numbers worked by hand."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from fixed import fixed_batch
from leeward.losses import (
    entropy_regularized_likelihood,
    gradient_penalty,
    td_target,
    temperature_loss,
)
from leeward.nn.distributions import TanhNormal
from leeward.types import Batch, PRNGKey


def batch_of(reward: list[float], termination: list[float], discount: list[float]) -> Batch:
    columns = (jnp.asarray(c) for c in (reward, termination, discount))
    reward_, termination_, discount_ = columns
    return fixed_batch()._replace(reward=reward_, termination=termination_, discount=discount_)


def test_td_target_bootstraps_unless_the_task_ended() -> None:
    batch = batch_of([1.0, 1.0, -2.0], [0.0, 1.0, 0.0], [0.5, 0.5, 0.25])
    target = td_target(batch, jnp.asarray([4.0, 4.0, 8.0]))
    np.testing.assert_array_equal(target, [3.0, 1.0, 0.0])


def test_td_target_carries_no_gradient() -> None:
    batch = batch_of([1.0], [0.0], [0.5])
    slope = jax.grad(lambda value: td_target(batch, value).sum())(jnp.ones(1))
    assert slope == 0.0


def test_td_target_rejects_a_column_of_rewards() -> None:
    batch = fixed_batch()._replace(reward=jnp.ones((6, 1)))
    with jax.numpy_rank_promotion("allow"), pytest.raises(TypeCheckError):
        td_target(batch, jnp.ones(6))


def test_gradient_penalty_of_quadratics() -> None:
    """Member e has value (e + 1)/2 · ‖a‖², so a squared gradient norm of (e + 1)² · ‖a‖²."""
    action = jnp.asarray([[1.0, 2.0], [0.0, 1.0]])

    def half_norm(action: jax.Array) -> jax.Array:
        return 0.5 * jnp.square(action).sum(axis=1)

    penalty, norm = gradient_penalty([half_norm, lambda a: 2.0 * half_norm(a)], action)
    np.testing.assert_allclose(norm, [3.0, 12.0])  # means of (5, 1) and of (20, 4)
    np.testing.assert_allclose(penalty, 15.0)


def test_gradient_penalty_can_be_differentiated() -> None:
    """value = w · Σ a²: the penalty is 4 w² mean‖a‖², its slope 8 w mean‖a‖²."""
    action = jnp.asarray([[1.0, 2.0], [0.0, 1.0]])
    slope = jax.grad(
        lambda w: gradient_penalty([lambda a: w * jnp.square(a).sum(axis=1)], action)[0]
    )(1.5)
    np.testing.assert_allclose(slope, 8.0 * 1.5 * 3.0)


def test_gradient_penalty_multiplies_no_member_by_the_zeros_of_another() -> None:
    """Two members cost twice the products of one."""
    weight = jnp.ones((2, 3, 3))

    def products(members: int) -> int:
        parts = [partial(lambda w, a: jnp.square(a @ w).sum(axis=1), w) for w in weight[:members]]
        program = jax.make_jaxpr(lambda a: gradient_penalty(parts, a))(jnp.ones((4, 3)))
        return str(program).count("dot_general")

    assert products(2) == 2 * products(1)


@pytest.mark.parametrize(("log_prob", "slope"), [(-1.0, 6.0), (5.0, -6.0)])
def test_temperature_rises_while_the_entropy_is_below_its_target(
    log_prob: float, slope: float
) -> None:
    """α = 2 and H̄ = −2: the slope in log α is α(−log π − H̄)."""
    value, found = jax.value_and_grad(temperature_loss)(jnp.log(2.0), jnp.asarray(log_prob), -2.0)
    np.testing.assert_allclose([value, found], [slope, slope], rtol=1e-6)


def test_temperature_loss_is_a_mean_over_the_batch() -> None:
    loss = temperature_loss(jnp.asarray(0.0), jnp.asarray([-1.0, -3.0]), -2.0)
    np.testing.assert_allclose(loss, 4.0)


def test_temperature_loss_sends_no_gradient_to_the_policy() -> None:
    slope = jax.grad(lambda p: temperature_loss(jnp.asarray(0.3), p, -1.0))(jnp.ones(3))
    np.testing.assert_array_equal(slope, 0.0)


def test_entropy_regularization_widens_the_policy(key: PRNGKey) -> None:
    """A narrow tanh Gaussian is nearly Gaussian, whose entropy has slope 1 in the log-std.

    With a detached sample the expected slope would be zero.
    """
    samples = 4096
    action = jnp.zeros((samples, 1))

    def loss(log_std: jax.Array, log_alpha: float) -> jax.Array:
        wide = jnp.full((samples, 1), log_std)
        policy = TanhNormal(jnp.zeros((samples, 1)), wide)
        return entropy_regularized_likelihood(policy, action, jnp.asarray(log_alpha), key, 1e-6)[0]

    with_entropy = jax.grad(loss)(jnp.float32(-3.0), 0.0)
    without = jax.grad(loss)(jnp.float32(-3.0), -100.0)
    np.testing.assert_allclose(without, 1.0, rtol=1e-4)  # −log N(mean) has slope 1
    np.testing.assert_allclose(with_entropy - without, -1.0, rtol=0.02)


def test_entropy_regularization_trains_the_policy_alone(key: PRNGKey) -> None:
    policy = TanhNormal(jnp.zeros((2, 1)), jnp.zeros((2, 1)))
    slope = jax.grad(
        lambda log_alpha: entropy_regularized_likelihood(
            policy, jnp.zeros((2, 1)), log_alpha, key, 1e-6
        )[0]
    )(jnp.asarray(0.5))
    assert slope == 0.0
