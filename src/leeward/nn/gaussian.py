"""Gaussian policies whose mean is squashed but whose density is not.

IQL, AWAC and CRR weigh the log-likelihood of the data's actions. A density that is squashed by tanh
has a spike at the bounds, which actions on the bounds would climb; a plain normal has none.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from leeward.nn.actors import continuous_size, observation_size
from leeward.nn.distributions import normal_log_prob
from leeward.nn.layers import MLP, Initializer, fan_in_uniform, make_mlp
from leeward.types import PRNGKey, Spec

LOG_STD_RANGE = (-5.0, 2.0)
"""Clip of the log-std (authors' IQL code, policy.py and learner.py)."""


class Normal(eqx.Module):
    """A diagonal Gaussian over R^A; what it draws is clipped to [−1, 1]."""

    mean: Float[Array, "*batch A"]
    log_std: Float[Array, "*batch A"]

    def mode(self) -> Float[Array, "*batch A"]:
        """The mean, clipped to [−1, 1]."""
        return jnp.clip(self.mean, -1.0, 1.0)

    def sample(self, key: PRNGKey) -> Float[Array, "*batch A"]:
        """A reparameterized sample, clipped to [−1, 1]."""
        noise = jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return jnp.clip(self.mean + jnp.exp(self.log_std) * noise, -1.0, 1.0)

    def log_prob(self, action: Float[Array, "*batch A"]) -> Float[Array, "*batch"]:
        """log π(action), of the density before clipping."""
        return normal_log_prob(action, self.mean, self.log_std).sum(axis=-1)


class FixedStdActor(eqx.Module):
    """tanh of an MLP as mean, and a log-std that does not depend on the observation."""

    mlp: MLP
    log_std: Float[Array, " A"]

    def __call__(self, observation: Float[Array, "*batch obs"]) -> Normal:
        """The distribution of the action."""
        return self.around(self.mlp(observation))

    def with_dropout(
        self,
        observation: Float[Array, "*batch obs"],
        rate: float | Float[Array, ""],
        key: PRNGKey,
    ) -> Normal:
        """The distribution with every hidden unit dropped with probability `rate` in training."""
        return self.around(dropout_mlp(self.mlp, observation, rate, key))

    def around(self, output: Float[Array, "*batch A"]) -> Normal:
        """The distribution for the MLP's output."""
        log_std = jnp.clip(self.log_std, *LOG_STD_RANGE)
        return Normal(jnp.tanh(output), jnp.broadcast_to(log_std, output.shape))


class LearnedStdActor(eqx.Module):
    """tanh of one half of an MLP's outputs as mean, the other half as log-std."""

    mlp: MLP

    def __call__(self, observation: Float[Array, "*batch obs"]) -> Normal:
        """The distribution of the action."""
        mean, log_std = jnp.split(self.mlp(observation), 2, axis=-1)
        return Normal(jnp.tanh(mean), jnp.clip(log_std, *LOG_STD_RANGE))


def dropout_mlp(
    mlp: MLP,
    features: Float[Array, "*batch in"],
    rate: float | Float[Array, ""],
    key: PRNGKey,
) -> Float[Array, "*batch out"]:
    """The MLP with hidden units dropped after their ReLU, the others scaled by 1/(1 − rate)."""
    keys = jax.random.split(key, len(mlp.layers) - 1)
    for layer, layer_key in zip(mlp.layers[:-1], keys, strict=True):
        features = jax.nn.relu(layer(features))
        kept = jax.random.bernoulli(layer_key, 1.0 - rate, features.shape)
        features = jnp.where(kept, features / (1.0 - rate), 0.0)
    return mlp.layers[-1](features)


def make_fixed_std_actor(
    spec: Spec,
    hidden: tuple[int, ...],
    key: PRNGKey,
    *,
    initializer: Initializer = fan_in_uniform,
    last_initializer: Initializer | None = None,
) -> FixedStdActor:
    """An actor with one log-std per dimension, 0 at the start."""
    size = continuous_size(spec)
    sizes = (observation_size(spec), *hidden, size)
    mlp = make_mlp(sizes, key, initializer=initializer, last_initializer=last_initializer)
    return FixedStdActor(mlp, jnp.zeros(size))


def make_learned_std_actor(
    spec: Spec,
    hidden: tuple[int, ...],
    key: PRNGKey,
    *,
    initializer: Initializer = fan_in_uniform,
    last_initializer: Initializer | None = None,
) -> LearnedStdActor:
    """An actor whose log-std depends on the observation."""
    sizes = (observation_size(spec), *hidden, 2 * continuous_size(spec))
    return LearnedStdActor(
        make_mlp(sizes, key, initializer=initializer, last_initializer=last_initializer)
    )
