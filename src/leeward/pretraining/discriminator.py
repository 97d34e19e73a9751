"""A discriminator of expert states: its logit supplements a value network.

Expert states are the data's own, or those of the episodes with the highest returns; against them
stand the states of the other episodes and states beside the data, moved by noise. There is no
generator: the policy's own states, which it would have to tell apart, are not known offline.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Shaped

from leeward.data.passes import over_transitions
from leeward.data.sampling import DeviceData, observe
from leeward.nn.behavior import blurred
from leeward.nn.critics import Value
from leeward.nn.encoders import Encoded
from leeward.optim import descend
from leeward.types import Batch, Metrics

Network = Value | Encoded


class State(NamedTuple):
    """The network, its optimizer's memory, and which transitions are the expert's."""

    network: Network
    opt: optax.OptState
    expert: Float[Array, " T"]  # filled in on entering the phase


def init(network: Network) -> State:
    """A state that has seen no data yet."""
    return State(network, optax.adam(0.0).init(network), jnp.ones(1))  # type: ignore[arg-type]


def cross_entropy(
    logit: Float[Array, " B"], beside: Float[Array, " B"], expert: Float[Array, " B"]
) -> Float[Array, ""]:
    """½ mean over expert states of softplus(−l) + ½ mean over all others of softplus(l).

    Args:
        logit: of the data's states.
        beside: of states beside the data.
        expert: 1 where the data's state is the expert's.
    """
    other = 1.0 - expert
    right = (expert * jax.nn.softplus(-logit)).sum() / jnp.maximum(expert.sum(), 1.0)
    wrong = jax.nn.softplus(beside).sum() + (other * jax.nn.softplus(logit)).sum()
    return 0.5 * (right + wrong / (beside.shape[0] + other.sum()))


def update(
    state: State, batch: Batch, beside: Shaped[Array, "B *obs"], rate: float | Float[Array, ""]
) -> tuple[State, Metrics]:
    """One Adam step on the cross-entropy."""
    expert = state.expert[batch.index]

    def loss(network: Network) -> tuple[Float[Array, ""], Metrics]:
        total = cross_entropy(network(batch.observation), network(beside), expert)
        return total, {"value/discriminator_loss": total}

    network, opt, metrics = descend(loss, state.network, optax.adam(rate), state.opt)
    return state._replace(network=network, opt=opt), metrics


def measure(
    state: State,
    data: DeviceData,
    expert: Float[Array, " T"],
    noise: float | Float[Array, ""],
) -> Metrics:
    """discriminator_accuracy: the mean of the shares of expert and of other states it tells.

    Args:
        state: the discriminator.
        data: the transitions it is judged by.
        expert: which of them are the expert's.
        noise: std of the noise that leads beside the data.
    """

    def both(number: Int[Array, " part"]) -> tuple[Float[Array, " part"], Float[Array, " part"]]:
        key = jax.random.fold_in(jax.random.key(0), number[0])  # the same for every run
        observation = observe(data, data.start[number])
        return state.network(observation), state.network(blurred(observation, noise, key))

    logit, beside = over_transitions(both, data)
    other = 1.0 - expert
    right = (expert * (logit > 0.0)).sum() / jnp.maximum(expert.sum(), 1.0)
    wrong = (beside < 0.0).sum() + (other * (logit < 0.0)).sum()
    return {"discriminator_accuracy": 0.5 * (right + wrong / (beside.shape[0] + other.sum()))}
