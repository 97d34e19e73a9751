"""Critics: values of observations and actions, one or an ensemble."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from leeward.nn.actors import continuous_size, observation_size
from leeward.nn.layers import MLP, Initializer, fan_in_uniform, make_mlp
from leeward.types import PRNGKey, Spec


class Critic(eqx.Module):
    """Q(s, a), an MLP on the concatenated observation and action."""

    mlp: MLP

    def __call__(
        self, observation: Float[Array, "*batch obs"], action: Float[Array, "*batch A"]
    ) -> Float[Array, "*batch"]:
        """The value of taking `action` at `observation`."""
        return self.mlp(jnp.concatenate([observation, action], axis=-1))[..., 0]


class Ensemble(eqx.Module):
    """E critics that share nothing. A tuple: on CPU faster than one batched matrix product."""

    member: tuple[Critic, ...]

    def __call__(
        self, observation: Float[Array, "*batch obs"], action: Float[Array, "*batch A"]
    ) -> Float[Array, "E *batch"]:
        """Every member's value, stacked."""
        return jnp.stack([critic(observation, action) for critic in self.member])


class Value(eqx.Module):
    """V(s), an MLP."""

    mlp: MLP

    def __call__(self, observation: Float[Array, "*batch obs"]) -> Float[Array, "*batch"]:
        """The value of `observation`."""
        return self.mlp(observation)[..., 0]


def make_critic(
    spec: Spec,
    hidden: tuple[int, ...],
    key: PRNGKey,
    *,
    initializer: Initializer = fan_in_uniform,
    last_initializer: Initializer | None = None,
    layer_norm: bool = False,
) -> Critic:
    """One critic with the given hidden sizes."""
    sizes = (observation_size(spec) + continuous_size(spec), *hidden, 1)
    return Critic(
        make_mlp(
            sizes,
            key,
            initializer=initializer,
            last_initializer=last_initializer,
            layer_norm=layer_norm,
        )
    )


def make_ensemble(
    size: int,
    spec: Spec,
    hidden: tuple[int, ...],
    key: PRNGKey,
    *,
    initializer: Initializer = fan_in_uniform,
    last_initializer: Initializer | None = None,
    layer_norm: bool = False,
) -> Ensemble:
    """`size` critics, each from its own key."""
    return Ensemble(
        tuple(
            make_critic(
                spec,
                hidden,
                member_key,
                initializer=initializer,
                last_initializer=last_initializer,
                layer_norm=layer_norm,
            )
            for member_key in jax.random.split(key, size)
        )
    )


def make_value(
    spec: Spec,
    hidden: tuple[int, ...],
    key: PRNGKey,
    *,
    initializer: Initializer = fan_in_uniform,
    last_initializer: Initializer | None = None,
    layer_norm: bool = False,
) -> Value:
    """A state-value network with the given hidden sizes."""
    return Value(
        make_mlp(
            (observation_size(spec), *hidden, 1),
            key,
            initializer=initializer,
            last_initializer=last_initializer,
            layer_norm=layer_norm,
        )
    )
