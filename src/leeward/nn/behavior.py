"""Behavior models: what the data's actions are compared with, as networks or from the data itself.

A frozen model's outputs for all of the data are computed once (`outputs`) and gathered afterwards
(`behavior_of`).
"""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from leeward.nn.actors import (
    DeterministicActor,
    MixtureActor,
    NormalActor,
    make_deterministic_actor,
    make_mixture_actor,
    make_normal_actor,
    observation_size,
)
from leeward.nn.discrete import CategoricalActor, make_categorical_actor
from leeward.nn.distributions import Categorical, TanhMixture, TanhNormal
from leeward.nn.divergence import Behavior, mode_of
from leeward.nn.kernel import KernelDensity, Neighbors
from leeward.nn.layers import orthogonal
from leeward.types import Discrete, PRNGKey, Spec

DensityKind = Literal["gaussian", "mixture", "deterministic"]
BehaviorKind = Literal["gaussian", "mixture", "deterministic", "kernel"]
Actor = DeterministicActor | NormalActor | MixtureActor | CategoricalActor
BehaviorModel = Actor | KernelDensity
Outputs = Behavior | Neighbors
LOG_STD_FLOOR = -10.0
"""Least log-std of a behavior model (FMR), so that no divergence from it is infinite."""


def make_actor(
    kind: DensityKind, spec: Spec, hidden: tuple[int, ...], components: int, key: PRNGKey
) -> Actor:
    """A policy network, initialized as BC's; discrete actions get a categorical distribution."""
    if isinstance(spec.action, Discrete):
        return make_categorical_actor(spec, hidden, key)
    if kind == "deterministic":
        return make_deterministic_actor(spec, hidden, key)
    weights = {"initializer": orthogonal(2**0.5), "last_initializer": orthogonal(1e-2)}
    if kind == "gaussian":
        return make_normal_actor(spec, hidden, key, **weights)
    return make_mixture_actor(spec, hidden, components, key, **weights)


def make_kernel_density(
    spec: Spec, neighbors: int, bandwidth: float | Float[Array, ""]
) -> KernelDensity:
    """A kernel density that has not seen the data yet."""
    discrete = isinstance(spec.action, Discrete)
    shape, dtype = ((1,), jnp.int32) if discrete else ((1, spec.action.size), jnp.float32)
    return KernelDensity(
        observation=jnp.zeros((1, observation_size(spec))),
        action=jnp.zeros(shape, dtype),
        transition=jnp.zeros(1, jnp.int32),
        bandwidth=jnp.asarray(bandwidth, jnp.float32),
        neighbors=neighbors,
        choices=spec.action.size if discrete else 0,
    )


def distribution_of(model: BehaviorModel, observation: Float[Array, "B obs"]) -> Behavior:
    """The behavior at states that are not the data's, no std below the floor."""
    return floored(model(observation))


def outputs(
    model: BehaviorModel, observation: Float[Array, "B obs"], own: Int[Array, " B"]
) -> Outputs:
    """What `behavior_of` needs at these states of the data, whose transition numbers are `own`."""
    if isinstance(model, KernelDensity):
        return model.nearest(observation, own)
    return distribution_of(model, observation)


def behavior_of(model: BehaviorModel, output: Outputs) -> Behavior:
    """The distribution (or action) that `outputs` stand for."""
    if isinstance(output, Neighbors):
        assert isinstance(model, KernelDensity)
        return model.mixture(output)
    return output


def floored(behavior: Behavior) -> Behavior:
    """The same with no log-std below the floor."""
    if isinstance(behavior, TanhNormal | TanhMixture):
        log_std = jnp.maximum(behavior.log_std, LOG_STD_FLOOR)
        return eqx.tree_at(lambda d: d.log_std, behavior, log_std)
    return behavior


def at_floor(behavior: Behavior) -> Float[Array, " B"]:
    """The share of log-stds at the floor at every state; 0 where there are none."""
    if isinstance(behavior, TanhNormal | TanhMixture):
        reached = (behavior.log_std <= LOG_STD_FLOOR).astype(jnp.float32)
        return reached.reshape(reached.shape[0], -1).mean(axis=1)
    return jnp.zeros(jax.tree.leaves(behavior)[0].shape[0])


def misfit(
    distribution: Behavior, action: Shaped[Array, "B *act"], margin: float | Float[Array, ""]
) -> Float[Array, " B"]:
    """BC's loss of every action: squared error (mean over dimensions) or −log-likelihood."""
    if isinstance(distribution, Array):
        return jnp.square(distribution - action).mean(axis=-1)
    if isinstance(distribution, Categorical):
        return -distribution.log_prob(action)
    return -distribution.log_prob(action, margin)


def fit_quality(
    distribution: Behavior, action: Shaped[Array, "B *act"], margin: float | Float[Array, ""]
) -> dict[str, Float[Array, " B"]]:
    """How well a model foretells each action: log-likelihood, and the error of its mode."""
    found: dict[str, Array] = {}
    if not isinstance(distribution, Array):
        found["log_likelihood"] = -misfit(distribution, action, margin)
    mode = mode_of(distribution)
    if isinstance(distribution, Categorical):
        found["accuracy"] = (mode == action).astype(jnp.float32)
    else:
        found["squared_error"] = jnp.square(mode - action).mean(axis=-1)
    return found


def augmented(
    observation: Float[Array, "B obs"],
    next_observation: Float[Array, "B obs"],
    noise_std: float | Float[Array, ""],
    interpolation: float | Float[Array, ""],
    key: PRNGKey,
) -> Float[Array, "B obs"]:
    """States moved up to a share of the way to the next one, and blurred.

    Args:
        observation: where the actions were taken.
        next_observation: the states after them.
        noise_std: std of the noise, in the units of observations.
        interpolation: largest share of the way, drawn evenly from 0 on.
        key: consumed.
    """
    way_key, noise_key = jax.random.split(key)
    share = interpolation * jax.random.uniform(way_key, (observation.shape[0], 1))
    moved = observation + jnp.broadcast_to(share, observation.shape) * (
        next_observation - observation
    )
    return moved + noise_std * jax.random.normal(noise_key, observation.shape)
