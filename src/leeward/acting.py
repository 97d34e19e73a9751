"""What a policy computes: actions and densities in the environment's units.

Compiled programs get inputs padded to a few batch sizes, so that a new size seldom means a new
program. Between two steps of a simulator, small networks are called in NumPy instead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from leeward import numpy_program
from leeward.data.sampling import Scaling
from leeward.nn.distributions import Categorical, JointMixture, TanhMixture, TanhNormal
from leeward.types import ActFn, Box, Spec

LARGEST_BATCH = 1024
"""Observations in one call of the program; more are served in pieces (ours: bounds memory)."""
SMALL = 50_000_000
"""Multiplications a step up to which NumPy acts (ours: 1 ms, beside which dispatch is little)."""


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


def actor(
    act_one: ActFn, spec: Spec, policies: Any, scaling: Scaling, shape: tuple[int, ...]
) -> Callable[[np.ndarray], np.ndarray]:
    """The same for many calls with observations of one `shape`, [N, E, *obs].

    Vector observations and small networks of common layers are computed in NumPy, everything else
    by the compiled program; they agree up to rounding.
    """
    leaves, tree = jax.tree.flatten((policies, scaling))
    if spec.observation_dtype != "uint8" and shape[1] * sum(x.size for x in leaves) <= SMALL:
        shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        program = _in_numpy(act_one, spec, tree, shapes, shape)
        if program is not None:
            call = program.bind([np.asarray(leaf) for leaf in leaves])
            return lambda observation: np.array(call(observation))
    return lambda observation: np.array(
        act_side_by_side(act_one, spec, policies, scaling, observation)
    )


@lru_cache(maxsize=32)
def _in_numpy(
    act_one: ActFn,
    spec: Spec,
    tree: Any,
    shapes: tuple[tuple[tuple[int, ...], Any], ...],
    shape: tuple[int, ...],
) -> numpy_program.Program | None:
    def call(*arrays: Array) -> Array:
        policies, scaling = jax.tree.unflatten(tree, arrays[:-1])
        return act_side_by_side(act_one, spec, policies, scaling, arrays[-1])

    known = [jax.ShapeDtypeStruct(*leaf) for leaf in shapes]
    return numpy_program.trace(call, known, jax.ShapeDtypeStruct(shape, np.float32))


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


@partial(jax.jit, static_argnums=(0, 1))
def sample(
    spec: Spec,
    count: int,
    policy: Any,
    scaling: Scaling,
    observation: Shaped[Array, "B *obs"],
    number: Int[Array, " B"],
) -> Array:
    """[B, count, …] actions drawn at each observation, in the environment's units and its box.

    The draws depend on the observation's `number` and on nothing else that stands beside it.
    """

    def draw(own: Array, number: Array) -> Array:
        distribution = policy(scaling.normalize(own[None]))
        keys = jax.random.split(jax.random.fold_in(jax.random.key(0), number), count)
        return jax.vmap(lambda key: distribution.sample(key)[0])(keys)

    action = scaling.to_environment(jax.vmap(draw)(observation, number))
    if isinstance(spec.action, Box):
        return jnp.clip(action, *(jnp.asarray(bound)[None, None, :] for bound in spec.action))
    return action


def has_density(spec: Spec, policy: Any) -> bool:
    """Whether the policy, called with observations, gives a distribution of actions."""
    if not callable(policy):
        return False
    # Networks see scaled observations, or images as they are.
    dtype = jnp.uint8 if spec.observation_dtype == "uint8" else jnp.float32
    observation = jax.ShapeDtypeStruct((1, *spec.observation_shape), dtype)
    output = jax.eval_shape(lambda policy, o: policy(o), policy, observation)
    return isinstance(output, TanhNormal | TanhMixture | JointMixture | Categorical)


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
