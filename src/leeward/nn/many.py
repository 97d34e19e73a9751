"""Many actions of every state at once, as flat rows: XLA on CPU is slower on 3-D arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from leeward.nn.critics import Ensemble

Distribution = TypeVar("Distribution")
Batch = TypeVar("Batch")


def repeat_rows(rows: Float[Array, "B size"], count: int) -> Float[Array, "BN size"]:
    """Every row `count` times in succession, B·count rows in all."""
    shape = (rows.shape[0], count, rows.shape[1])
    return jnp.broadcast_to(rows[:, None, :], shape).reshape(-1, rows.shape[1])


def ensemble_each(
    ensemble: Ensemble, observation: Float[Array, "B obs"], action: Float[Array, "B N A"]
) -> Float[Array, "E B N"]:
    """Every member's Q of each of N actions at every observation."""
    batch, count, size = action.shape
    q = ensemble(repeat_rows(observation, count), action.reshape(-1, size))  # [E, BN]
    return q.reshape(-1, batch, count)


def map_in_parts(
    function: Callable[[Batch], Float[Array, "part *rest"]], batch: Batch, part_size: int
) -> Float[Array, "B *rest"]:
    """`function(batch)`, which treats rows apart, part by part on CPU: hidden units stay in cache.

    Elsewhere, and where parts do not divide the batch, all rows go at once.
    """
    size = jax.tree.leaves(batch)[0].shape[0]
    if jax.default_backend() != "cpu" or size % part_size or size == part_size:
        return function(batch)
    parts = jax.tree.map(lambda leaf: leaf.reshape(-1, part_size, *leaf.shape[1:]), batch)
    result = jax.lax.map(function, parts)
    return result.reshape(size, *result.shape[2:])


def spread(distribution: Distribution, count: int) -> Distribution:
    """A batch of distributions [B, …], every one repeated [B, count, …]: many samples a state."""

    def repeat(parameter: Float[Array, "B *rest"]) -> Float[Array, "B N *rest"]:
        shape = (parameter.shape[0], count, *parameter.shape[1:])
        return jnp.broadcast_to(parameter[:, None], shape)

    return jax.tree.map(repeat, distribution)
