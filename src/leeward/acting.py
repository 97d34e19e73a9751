"""What a policy computes, compiled: actions and densities in the environment's units.

Inputs are padded to a few batch sizes, so that a new size seldom means a new program.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from leeward.data.sampling import Scaling
from leeward.nn.distributions import Categorical, TanhMixture, TanhNormal
from leeward.types import ActFn, Box, Spec

LARGEST_BATCH = 1024
"""Observations in one call of the program; more are served in pieces (ours: bounds memory)."""


@partial(jax.jit, static_argnums=(0, 1))
def act(
    act: ActFn, spec: Spec, policy: Any, scaling: Scaling, observation: Shaped[Array, "B *obs"]
) -> Array:
    """The action in the environment's units, clipped to the box, which rounding may leave."""
    action = act(policy, scaling.normalize(observation), jax.random.key(0))
    action = scaling.to_environment(action)
    if isinstance(spec.action, Box):
        low, high = jnp.asarray(spec.action.low), jnp.asarray(spec.action.high)
        low, high = (jnp.broadcast_to(bound, action.shape) for bound in (low, high))
        return jnp.clip(action, low, high)
    return action


@partial(jax.jit, static_argnums=(0, 1))
def act_side_by_side(
    act_one: ActFn,
    spec: Spec,
    policies: Any,
    scaling: Scaling,
    observation: Shaped[Array, "N E *obs"],
) -> Array:
    """The actions of N policies, each for its own E observations."""
    return jax.vmap(lambda policy, o: act(act_one, spec, policy, scaling, o))(policies, observation)


@partial(jax.jit, static_argnums=0)
def log_prob(
    spec: Spec,
    policy: Any,
    scaling: Scaling,
    observation: Shaped[Array, "B *obs"],
    action: Shaped[Array, "B *act"],
) -> Float[Array, " B"]:
    """The density of the scaled action less Σ log(scale): that of the action in its own units."""
    density = policy(scaling.normalize(observation)).log_prob(scaling.to_network(action))
    if isinstance(spec.action, Box):
        return density - jnp.log(scaling.action_scale).sum()
    return density


def has_density(spec: Spec, policy: Any) -> bool:
    """Whether the policy, called with observations, gives a distribution of actions."""
    if not callable(policy):
        return False
    # Networks see scaled observations, or images as they are.
    dtype = jnp.uint8 if spec.observation_dtype == "uint8" else jnp.float32
    observation = jax.ShapeDtypeStruct((1, *spec.observation_shape), dtype)
    output = jax.eval_shape(lambda policy, o: policy(o), policy, observation)
    return isinstance(output, TanhNormal | TanhMixture | Categorical)


def in_pieces(call: Callable[..., Array], *inputs: np.ndarray) -> np.ndarray:
    """`call` on pieces of the inputs, each padded to a power of two by repeating its last row.

    Args:
        call: [B, …] arrays → [B, …].
        inputs: arrays of the same length, which may be 0.
    """
    count = len(inputs[0])
    if count == 0:
        rows = [np.zeros((1, *array.shape[1:]), array.dtype) for array in inputs]
        return np.array(call(*rows))[:0]
    results = []
    for begin in range(0, count, LARGEST_BATCH):
        pieces = [array[begin : begin + LARGEST_BATCH] for array in inputs]
        size = len(pieces[0])
        missing = (1 << (size - 1).bit_length()) - size
        pieces = [np.concatenate([p, np.repeat(p[-1:], missing, axis=0)]) for p in pieces]
        results.append(np.asarray(call(*pieces))[:size])
    return np.concatenate(results)
