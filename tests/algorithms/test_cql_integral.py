"""CQL's sampled logsumexp against the integral over a one-dimensional action that it estimates."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leeward.algorithms.cql import Config, conservative_gap, init, make_contrast
from leeward.nn.many import ensemble_each
from leeward.types import Batch, Box, Spec

SPEC = Spec((2,), "float32", Box((-1.0,), (1.0,)))
COUNT = 4096  # actions of each kind
STATES = 5


def one_dimensional(seed: int) -> Batch:
    draw = np.random.default_rng(seed)
    rows = {name: jnp.asarray(draw.normal(size=(STATES, 2)), jnp.float32) for name in ("s", "t")}
    action = jnp.asarray(draw.uniform(-1.0, 1.0, size=(STATES, 1)), jnp.float32)
    zeros = jnp.zeros(STATES)
    return Batch(
        observation=rows["s"],
        action=action,
        reward=zeros,
        next_observation=rows["t"],
        next_action=action,
        termination=zeros,
        discount=zeros,
        index=jnp.arange(STATES),
        next_action_known=zeros,
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_gap_is_the_integral_of_exp_q_less_the_data_s_q(seed: int) -> None:
    """log Σ exp(Q)/density over 3N draws is log 3N + log ∫ exp(Q(s, a)) da, up to noise."""
    config = dataclasses.replace(Config(), hidden=(32,), sampled_actions=COUNT)
    state = init(config, SPEC, jax.random.key(seed))
    steep = jax.tree.map(lambda leaf: 3.0 * leaf, state.critic)  # exp(Q) far from constant
    state = state._replace(critic=steep)
    batch = one_dimensional(seed)
    next_policy = state.actor(batch.next_observation)
    contrast = make_contrast(
        config, state, batch, next_policy, jnp.zeros(STATES), jax.random.key(seed + 10)
    )
    q = ensemble_each(state.critic, batch.observation, contrast.action)
    gap = np.asarray(conservative_gap(config, q[:, :, :-1], q[:, :, -1], contrast))

    grid = np.linspace(-1.0, 1.0, 2001)
    everywhere = jnp.broadcast_to(jnp.asarray(grid, jnp.float32)[None, :, None], (STATES, 2001, 1))
    value = np.exp(np.asarray(ensemble_each(state.critic, batch.observation, everywhere)))
    assert (value.max(axis=2) / value.min(axis=2)).max() > 1.5
    integral = np.log(((value[:, :, 1:] + value[:, :, :-1]) / 2 * np.diff(grid)).sum(axis=2))
    data_q = np.asarray(state.critic(batch.observation, batch.action))
    np.testing.assert_allclose(gap, np.log(3 * COUNT) + integral - data_q, atol=0.03)
