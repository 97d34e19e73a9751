"""Kernel density of actions: what the data did at the states nearest to a given one."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from leeward.nn.distributions import MARGIN, Categorical, normal_log_prob
from leeward.types import PRNGKey

LARGEST_REFERENCE = 10_000
"""Transitions that are compared with a state, evenly drawn (ours: bounds time and memory)."""


class KernelMixture(eqx.Module):
    """A mixture of K normals of one width around actions that the data took; dimensions joint."""

    logit: Float[Array, "*batch K"]
    center: Float[Array, "*batch K A"]
    log_std: Float[Array, "*batch 1"]

    def mode(self) -> Float[Array, "*batch A"]:
        """The action of the heaviest component: the one taken at the nearest state."""
        chosen = jax.nn.one_hot(jnp.argmax(self.logit, axis=-1), self.logit.shape[-1])
        return (self.center * chosen[..., None]).sum(axis=-2)

    def sample(self, key: PRNGKey) -> Float[Array, "*batch A"]:
        """A sample, clipped to [−1, 1]; no gradient reaches the weights."""
        component_key, noise_key = jax.random.split(key)
        component = jax.random.categorical(component_key, self.logit)
        chosen = jax.nn.one_hot(component, self.logit.shape[-1], dtype=self.center.dtype)
        center = (self.center * chosen[..., None]).sum(axis=-2)
        noise = jax.random.normal(noise_key, center.shape, center.dtype)
        std = jnp.broadcast_to(jnp.exp(self.log_std), center.shape)
        return jnp.clip(center + std * noise, -1.0, 1.0)

    def log_prob(
        self, action: Float[Array, "*batch A"], margin: float | Float[Array, ""] = MARGIN
    ) -> Float[Array, "*batch"]:
        """log of the density at `action`; it is not squashed, so no margin is needed."""
        del margin
        spread = jnp.broadcast_to(action[..., None, :], self.center.shape)  # [..., K, A]
        log_std = jnp.broadcast_to(self.log_std[..., None], self.center.shape)
        component = normal_log_prob(spread, self.center, log_std).sum(axis=-1)
        return jax.nn.logsumexp(jax.nn.log_softmax(self.logit, axis=-1) + component, axis=-1)


class Neighbors(eqx.Module):
    """The K reference transitions nearest to each state, and the logits of their weights."""

    index: Int[Array, "*batch K"]
    logit: Float[Array, "*batch K"]


class KernelDensity(eqx.Module):
    """Reference transitions; the behavior at a state is a mixture over its K nearest ones.

    Weights are Gaussian in the distance of states, with the root mean square distance of the K
    neighbors as their width, so that no scale has to be chosen (ours).
    """

    observation: Float[Array, "P obs"]
    action: Shaped[Array, "P *act"]
    transition: Int[Array, " P"]
    """The number of each reference transition in the data, so that none is its own neighbor."""
    bandwidth: Float[Array, ""]
    """Std around an action in units of [−1, 1]; of integers the share that is spread evenly."""
    neighbors: int = eqx.field(static=True)
    choices: int = eqx.field(static=True)
    """Number of discrete actions; 0 where they are continuous."""

    def filled(
        self,
        observation: Float[Array, "P obs"],
        action: Shaped[Array, "P *act"],
        transition: Int[Array, " P"],
    ) -> KernelDensity:
        """The same with these reference transitions."""
        return KernelDensity(
            observation, action, transition, self.bandwidth, self.neighbors, self.choices
        )

    def nearest(self, observation: Float[Array, "B obs"], own: Int[Array, " B"]) -> Neighbors:
        """The neighbors of each state, without the transition numbered `own` (−1: none)."""
        size = (observation.shape[0], self.observation.shape[0])
        squared = (
            jnp.broadcast_to(jnp.square(observation).sum(axis=1)[:, None], size)
            + jnp.broadcast_to(jnp.square(self.observation).sum(axis=1)[None, :], size)
            - 2.0 * observation @ self.observation.T
        )  # [B, P]
        itself = own[:, None] == self.transition[None, :]
        squared = jnp.where(itself, jnp.inf, jnp.maximum(squared, 0.0))
        closeness, index = jax.lax.top_k(-squared, max(1, min(self.neighbors, size[1] - 1)))
        width = -closeness.mean(axis=1, keepdims=True) + 1e-12
        return Neighbors(index, 0.5 * closeness / jnp.broadcast_to(width, closeness.shape))

    def mixture(self, near: Neighbors) -> KernelMixture | Categorical:
        """The distribution of actions over these neighbors."""
        if self.choices:
            share = jax.nn.one_hot(self.action[near.index], self.choices)  # [B, K, C]
            weight = jax.nn.softmax(near.logit, axis=-1)[..., None]
            probability = (weight * share).sum(axis=-2)
            even = self.bandwidth / self.choices
            return Categorical(jnp.log((1.0 - self.bandwidth) * probability + even))
        log_std = jnp.broadcast_to(jnp.log(self.bandwidth), (*near.logit.shape[:-1], 1))
        return KernelMixture(near.logit, self.action[near.index], log_std)

    def __call__(self, observation: Float[Array, "B obs"]) -> KernelMixture | Categorical:
        """The distribution of the action at states that are none of the reference's."""
        return self.mixture(self.nearest(observation, jnp.full(observation.shape[0], -1)))


def evenly(count: int) -> np.ndarray:
    """Numbers of at most LARGEST_REFERENCE of `count` transitions, evenly spaced [P] int32."""
    size = min(count, LARGEST_REFERENCE)
    return (np.arange(size, dtype=np.int64) * count // size).astype(np.int32)
