"""Fixed states and batches in float64, and how they are handed to NumPy and compared."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import independent
from leeward.types import Batch, Box, Discrete, Spec

OBSERVATION_SIZE = 3
ACTION_SIZE = 2
BATCH_SIZE = 6
CONTINUOUS = Spec((OBSERVATION_SIZE,), "float32", Box((-1.0,) * ACTION_SIZE, (1.0,) * ACTION_SIZE))
DISCRETE = Spec((OBSERVATION_SIZE,), "float32", Discrete(4))


def fixed_batch(spec: Spec = CONTINUOUS, seed: int = 0) -> Batch:
    """Six transitions: two terminal, discounts of different lengths, one action on the bound."""
    draw = np.random.default_rng(seed)
    if isinstance(spec.action, Box):
        action = np.tanh(draw.normal(size=(2, BATCH_SIZE, ACTION_SIZE)))
        action[0, 0, 0] = 1.0
    else:
        action = draw.integers(0, spec.action.size, size=(2, BATCH_SIZE)).astype(np.int32)
    return Batch(
        observation=jnp.asarray(draw.normal(size=(BATCH_SIZE, OBSERVATION_SIZE))),
        action=jnp.asarray(action[0]),
        reward=jnp.asarray(draw.normal(size=BATCH_SIZE)),
        next_observation=jnp.asarray(draw.normal(size=(BATCH_SIZE, OBSERVATION_SIZE))),
        next_action=jnp.asarray(action[1]),
        termination=jnp.asarray([0.0, 1.0, 0.0, 0.0, 1.0, 0.0]),
        discount=jnp.asarray([0.99, 0.99, 0.9, 0.99, 0.9, 0.8]),
        index=jnp.arange(BATCH_SIZE),
        next_action_known=jnp.asarray([1.0, 0.0, 1.0, 0.0, 1.0, 1.0]),
    )


def randomize(state: Any, seed: int = 1) -> Any:
    """The state with every weight and every optimizer's memory drawn anew, in float64."""
    draw = np.random.default_rng(seed)

    def new(leaf: Any) -> Any:
        if isinstance(leaf, optax.ScaleByAdamState):
            first = jax.tree.map(lambda p: jnp.asarray(0.1 * draw.normal(size=p.shape)), leaf.mu)
            second = jax.tree.map(
                lambda p: jnp.asarray(0.01 * draw.uniform(0.1, 1.0, size=p.shape)), leaf.nu
            )
            return optax.ScaleByAdamState(jnp.asarray(7, jnp.int32), first, second)  # type: ignore[arg-type]
        return jnp.asarray(0.5 * draw.normal(size=leaf.shape))

    return jax.tree.map(new, state, is_leaf=lambda x: isinstance(x, optax.ScaleByAdamState))


def numbers(model: Any) -> list[np.ndarray]:
    """Every array of a model as float64: for an MLP the weight and bias of each layer in turn."""
    return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(model)]


def memory(opt_state: Any) -> independent.Adam:
    """What Adam remembers."""
    state = opt_state[0]
    return independent.Adam(int(state.count), numbers(state.mu), numbers(state.nu))


def assert_close(actual: Any, expected: list[np.ndarray], rtol: float = 1e-6) -> None:
    """Every array of `actual` equals its counterpart."""
    for i, (a, e) in enumerate(zip(numbers(actual), expected, strict=True)):
        np.testing.assert_allclose(a, e, rtol=rtol, atol=1e-9, err_msg=f"array {i}")


def assert_memory_close(opt_state: Any, expected: independent.Adam) -> None:
    """The optimizer's memory, hence the gradient itself, equals the expected one."""
    actual = memory(opt_state)
    assert actual.count == expected.count
    # The finite differences leave about 1e-10 of error in a gradient of order 1.
    for a, e in zip(actual.first + actual.second, expected.first + expected.second, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-6, atol=1e-9)
