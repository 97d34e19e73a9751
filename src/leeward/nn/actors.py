"""Actors: from observations to an action or a distribution over actions, in [−1, 1]."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from leeward.errors import SpecError
from leeward.nn.distributions import JointMixture, TanhMixture, TanhNormal
from leeward.nn.layers import MLP, Initializer, fan_in_uniform, make_mlp
from leeward.types import Box, PRNGKey, Spec

LOG_STD_RANGE = (-20.0, 2.0)
"""Clip of the log-std (SAC and Fisher-BRC reference code)."""


class DeterministicActor(eqx.Module):
    """tanh of an MLP."""

    mlp: MLP

    def __call__(self, observation: Float[Array, "*batch obs"]) -> Float[Array, "*batch A"]:
        """The action in [−1, 1]."""
        return jnp.tanh(self.mlp(observation))


class NormalActor(eqx.Module):
    """A tanh-squashed diagonal Gaussian whose mean and log-std come from one MLP."""

    mlp: MLP

    def __call__(self, observation: Float[Array, "*batch obs"]) -> TanhNormal:
        """The distribution of the action."""
        mean, log_std = jnp.split(self.mlp(observation), 2, axis=-1)
        return TanhNormal(mean, jnp.clip(log_std, *LOG_STD_RANGE))


class MixtureActor(eqx.Module):
    """A mixture of tanh-squashed normals for every action dimension, from one MLP."""

    mlp: MLP
    components: int = eqx.field(static=True)

    def __call__(self, observation: Float[Array, "*batch obs"]) -> TanhMixture:
        """The distribution of the action."""
        output = self.mlp(observation)
        output = output.reshape(*output.shape[:-1], 3, -1, self.components)
        logit, mean, log_std = output[..., 0, :, :], output[..., 1, :, :], output[..., 2, :, :]
        return TanhMixture(logit, mean, jnp.clip(log_std, *LOG_STD_RANGE))


def sample_action(
    actor: Callable[..., Any], observation: Float[Array, "*batch obs"], key: PRNGKey
) -> Float[Array, "*batch A"]:
    """A sample of the actor's distribution: how policies that have one act while they learn."""
    return actor(observation).sample(key)


class JointMixtureActor(eqx.Module):
    """A mixture of tanh-squashed Gaussians of whole actions, from one MLP."""

    mlp: MLP
    components: int = eqx.field(static=True)

    def __call__(self, observation: Float[Array, "*batch obs"]) -> JointMixture:
        """The distribution of the action."""
        output = self.mlp(observation)
        logit, rest = output[..., : self.components], output[..., self.components :]
        rest = rest.reshape(*rest.shape[:-1], 2, self.components, -1)
        mean, log_std = rest[..., 0, :, :], rest[..., 1, :, :]
        return JointMixture(logit, mean, jnp.clip(log_std, *LOG_STD_RANGE))


def observation_size(spec: Spec) -> int:
    """Number of features of a flat observation.

    Raises:
        SpecError: observations that are not vectors.
    """
    if len(spec.observation_shape) != 1:
        raise SpecError(
            f"this network needs vector observations, got shape {spec.observation_shape}"
        )
    return math.prod(spec.observation_shape)


def continuous_size(spec: Spec) -> int:
    """Number of action dimensions A.

    Raises:
        SpecError: discrete actions.
    """
    if not isinstance(spec.action, Box):
        raise SpecError(f"this network needs continuous actions, got {spec.action}")
    return spec.action.size


def make_deterministic_actor(
    spec: Spec,
    hidden: tuple[int, ...],
    key: PRNGKey,
    *,
    initializer: Initializer = fan_in_uniform,
    last_initializer: Initializer | None = None,
    layer_norm: bool = False,
) -> DeterministicActor:
    """A deterministic actor with the given hidden sizes."""
    sizes = (observation_size(spec), *hidden, continuous_size(spec))
    return DeterministicActor(
        make_mlp(
            sizes,
            key,
            initializer=initializer,
            last_initializer=last_initializer,
            layer_norm=layer_norm,
        )
    )


def make_normal_actor(
    spec: Spec,
    hidden: tuple[int, ...],
    key: PRNGKey,
    *,
    initializer: Initializer = fan_in_uniform,
    last_initializer: Initializer | None = None,
) -> NormalActor:
    """A Gaussian actor with the given hidden sizes."""
    sizes = (observation_size(spec), *hidden, 2 * continuous_size(spec))
    return NormalActor(
        make_mlp(sizes, key, initializer=initializer, last_initializer=last_initializer)
    )


def make_mixture_actor(
    spec: Spec,
    hidden: tuple[int, ...],
    components: int,
    key: PRNGKey,
    *,
    initializer: Initializer = fan_in_uniform,
    last_initializer: Initializer | None = None,
) -> MixtureActor:
    """A mixture actor with the given hidden sizes and number of components."""
    sizes = (observation_size(spec), *hidden, 3 * continuous_size(spec) * components)
    mlp = make_mlp(sizes, key, initializer=initializer, last_initializer=last_initializer)
    return MixtureActor(mlp, components)


def make_joint_mixture_actor(
    spec: Spec,
    hidden: tuple[int, ...],
    components: int,
    key: PRNGKey,
    *,
    initializer: Initializer = fan_in_uniform,
    last_initializer: Initializer | None = None,
) -> JointMixtureActor:
    """A mixture of whole actions with the given hidden sizes and number of components."""
    sizes = (observation_size(spec), *hidden, (1 + 2 * continuous_size(spec)) * components)
    mlp = make_mlp(sizes, key, initializer=initializer, last_initializer=last_initializer)
    return JointMixtureActor(mlp, components)
