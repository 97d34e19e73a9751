"""Mixtures of whole actions: their density, their samples, and why dimensions must go together."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leeward.nn.actors import JointMixtureActor
from leeward.nn.behavior import LOG_STD_FLOOR, at_floor, floored, make_actor
from leeward.nn.distributions import JointMixture, TanhMixture
from leeward.types import Box, Spec

# Either both dimensions are high or both are low.
LOGIT = np.log([0.7, 0.3])
MEAN = np.asarray([[0.8, 0.8], [-0.8, -0.8]])
LOG_STD = np.asarray([[-2.0, -2.5], [-2.2, -2.1]])


def corners(batch: int) -> JointMixture:
    """The same at every state."""
    return JointMixture(
        *(jnp.asarray(np.tile(p, (batch, *[1] * p.ndim)), jnp.float32)
          for p in (LOGIT, MEAN, LOG_STD))
    )  # fmt: skip


def test_the_density_is_the_sum_over_whole_actions() -> None:
    action = np.asarray([[0.6, 0.7], [0.6, -0.7], [-0.65, -0.6]])
    before = np.arctanh(action)
    expected = np.zeros(3)
    for weight, mean, log_std in zip([0.7, 0.3], MEAN, LOG_STD, strict=True):
        std = np.exp(log_std)
        one = np.exp(-0.5 * ((before - mean) / std) ** 2) / (std * np.sqrt(2.0 * np.pi))
        expected += weight * one.prod(axis=1)
    expected /= (1.0 - action**2).prod(axis=1)
    found = corners(3).log_prob(jnp.asarray(action, jnp.float32))
    np.testing.assert_allclose(found, np.log(expected), rtol=1e-4)
    assert found[1] < found[0] - 20.0  # one high and one low is not what was shown


def test_samples_keep_dimensions_together() -> None:
    action = np.asarray(corners(4_000).sample(jax.random.key(0)))
    high = action > 0.0
    np.testing.assert_array_equal(high[:, 0], high[:, 1])
    assert high[:, 0].mean() == pytest.approx(0.7, abs=0.03)
    np.testing.assert_allclose(corners(1).mode(), np.tanh([[0.8, 0.8]]), rtol=1e-6)
    apart = TanhMixture(
        jnp.tile(jnp.asarray(LOGIT, jnp.float32), (4_000, 2, 1)),
        *(jnp.tile(jnp.asarray(p.T, jnp.float32), (4_000, 1, 1)) for p in (MEAN, LOG_STD)),
    )
    mixed = np.asarray(apart.sample(jax.random.key(0))) > 0.0
    assert (mixed[:, 0] != mixed[:, 1]).mean() == pytest.approx(0.42, abs=0.03)


def test_its_actor_has_an_output_for_every_parameter() -> None:
    spec = Spec((3,), "float32", Box((-1.0, -1.0), (1.0, 1.0)))
    actor = make_actor("joint-mixture", spec, (4,), 5, jax.random.key(0))
    assert isinstance(actor, JointMixtureActor)
    observation = jnp.asarray(np.random.default_rng(0).normal(size=(6, 3)), jnp.float32)
    found = actor(observation)
    assert (found.logit.shape, found.mean.shape) == ((6, 5), (6, 5, 2))
    hidden = np.maximum(np.asarray(observation) @ actor.mlp.layers[0].weight, 0.0)
    output = hidden @ np.asarray(actor.mlp.layers[1].weight)
    np.testing.assert_allclose(found.logit, output[:, :5], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.log_std, output[:, 15:].reshape(6, 5, 2), rtol=1e-4, atol=1e-6)


def test_stds_have_a_floor() -> None:
    sharp = JointMixture(jnp.zeros((1, 2)), jnp.zeros((1, 2, 1)), jnp.asarray([[[-19.0], [0.0]]]))
    behavior = floored(sharp)
    assert isinstance(behavior, JointMixture)
    np.testing.assert_array_equal(behavior.log_std, [[[LOG_STD_FLOOR], [0.0]]])
    np.testing.assert_array_equal(at_floor(behavior), [0.5])
