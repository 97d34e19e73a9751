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

from leeward.errors import SpecError
from leeward.nn.actors import (
    DeterministicActor,
    JointMixtureActor,
    MixtureActor,
    NormalActor,
    make_deterministic_actor,
    make_joint_mixture_actor,
    make_mixture_actor,
    make_normal_actor,
    observation_size,
)
from leeward.nn.discrete import CategoricalActor, make_categorical_actor
from leeward.nn.distributions import Categorical, JointMixture, TanhMixture, TanhNormal
from leeward.nn.divergence import Behavior, mode_of
from leeward.nn.encoders import Encoded, on_features
from leeward.nn.kernel import KernelDensity, Neighbors
from leeward.nn.layers import orthogonal
from leeward.types import Discrete, PRNGKey, Spec

DensityKind = Literal["gaussian", "mixture", "joint-mixture", "deterministic"]
BehaviorKind = Literal["gaussian", "mixture", "joint-mixture", "deterministic", "kernel"]
Actor = (
    DeterministicActor | NormalActor | MixtureActor | JointMixtureActor | CategoricalActor | Encoded
)
BehaviorModel = Actor | KernelDensity
Outputs = Behavior | Neighbors
LOG_STD_FLOOR = -10.0
"""Least log-std of a behavior model (FMR), so that no divergence from it is infinite."""


def continuous_only(setting: str, kind: str) -> str:
    """Why a density of continuous actions is refused where actions are discrete."""
    return (
        f"--{setting} {kind} is for continuous actions, and discrete ones get a categorical "
        f"distribution: leave --{setting} out, and --preset where that sets it"
    )


def make_actor(
    kind: DensityKind, spec: Spec, hidden: tuple[int, ...], components: int, key: PRNGKey
) -> Actor:
    """A policy network, initialized as BC's; discrete actions get a categorical distribution.

    Images go through convolutions first.
    """
    if isinstance(spec.action, Discrete):
        return make_categorical_actor(spec, hidden, key)
    weights = {"initializer": orthogonal(2**0.5), "last_initializer": orthogonal(1e-2)}

    def make(spec: Spec, key: PRNGKey) -> Actor:
        if kind == "deterministic":
            return make_deterministic_actor(spec, hidden, key)
        if kind == "gaussian":
            return make_normal_actor(spec, hidden, key, **weights)
        make_mixture = make_mixture_actor if kind == "mixture" else make_joint_mixture_actor
        return make_mixture(spec, hidden, components, key, **weights)

    return on_features(make, spec, key)


def make_kernel_density(
    spec: Spec, neighbors: int, bandwidth: float | Float[Array, ""]
) -> KernelDensity:
    """A kernel density that has not seen the data yet.

    Raises:
        SpecError: images, which no distance of pixels compares.
    """
    if len(spec.observation_shape) != 1:
        raise SpecError(
            "--behavior kernel compares states as vectors, which images of shape "
            f"{spec.observation_shape} are not: use another --behavior, such as gaussian"
        )
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


def distribution_of(model: BehaviorModel, observation: Shaped[Array, "B *obs"]) -> Behavior:
    """The behavior at states that are not the data's, no std below the floor."""
    return floored(model(observation))


def outputs(
    model: BehaviorModel, observation: Shaped[Array, "B *obs"], own: Int[Array, " B"]
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
    if isinstance(behavior, TanhNormal | TanhMixture | JointMixture):
        log_std = jnp.maximum(behavior.log_std, LOG_STD_FLOOR)
        return eqx.tree_at(lambda d: d.log_std, behavior, log_std)
    return behavior


def at_floor(behavior: Behavior) -> Float[Array, " B"]:
    """The share of log-stds at the floor at every state; 0 where there are none."""
    if isinstance(behavior, TanhNormal | TanhMixture | JointMixture):
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


def blurred(
    observation: Shaped[Array, "B *obs"], std: float | Float[Array, ""], key: PRNGKey
) -> Float[Array, "B *obs"]:
    """Observations with normal noise, its std in their units; 1 is white where they are images."""
    noise = jax.random.normal(key, observation.shape)
    if observation.dtype == jnp.uint8:
        return observation.astype(jnp.float32) + 255.0 * std * noise
    return observation + std * noise


def augmented(
    observation: Shaped[Array, "B *obs"],
    next_observation: Shaped[Array, "B *obs"],
    noise_std: float | Float[Array, ""],
    interpolation: float | Float[Array, ""],
    key: PRNGKey,
) -> Float[Array, "B *obs"]:
    """States moved up to a share of the way to the next one, and blurred.

    Args:
        observation: where the actions were taken.
        next_observation: the states after them.
        noise_std: std of the noise, in the units of observations; 1 is white in images.
        interpolation: largest share of the way, drawn evenly from 0 on.
        key: consumed.
    """
    way_key, noise_key = jax.random.split(key)
    one_each = (observation.shape[0], *[1] * (observation.ndim - 1))

    def moved(here: Float[Array, "B *obs"], there: Float[Array, "B *obs"]) -> Array:
        share = interpolation * jax.random.uniform(way_key, one_each)
        return here + jnp.broadcast_to(share, here.shape) * (there - here)

    if observation.dtype != jnp.uint8:
        return blurred(moved(observation, next_observation), noise_std, noise_key)

    def move(image: Array, following: Array) -> Array:
        noise = 255.0 * noise_std  # pixels are scaled by the encoder
        return blurred(moved(image, following), noise, noise_key)

    # Noise of a whole batch of images costs as much as a layer: it is not drawn to be nothing.
    wanted = jnp.maximum(jnp.asarray(noise_std), jnp.asarray(interpolation)) > 0.0
    images = observation.astype(jnp.float32), next_observation.astype(jnp.float32)
    return jax.lax.cond(wanted, move, lambda image, following: image, *images)
