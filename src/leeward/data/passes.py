"""One pass over all transitions of a data set on the device, part by part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from leeward.data.sampling import DeviceData, gather
from leeward.types import Batch

PART = 1024
"""Transitions at once (ours: as the held-out loss; fits any cache)."""
IMAGE_PART = 128
"""The same of images (ours: the patches of 84 × 84 × 4 pixels take about 60 MB)."""


def over_transitions(function: Callable[[Int[Array, " part"]], Any], data: DeviceData) -> Any:
    """`function` of all transitions' numbers, which it gets part by part: a tree of [T, …].

    For what is computed once and gathered by index ever after. The last part is filled up with the
    last transition and cut, so `function` must treat transitions apart.
    """
    return over_numbers(function, jnp.arange(data.start.shape[0]), part_size(data))


def part_size(data: DeviceData) -> int:
    """Transitions that are looked at at once."""
    return PART if data.observation.ndim == 2 else IMAGE_PART


def over_numbers(
    function: Callable[[Int[Array, " part"]], Any], number: Int[Array, " P"], most: int
) -> Any:
    """`function` of transitions' numbers, at most so many at once: a tree of [P, …]."""
    count = number.shape[0]
    part = min(most, count)
    parts = -(-count // part)
    place = jnp.minimum(jnp.arange(parts * part), count - 1)
    result = jax.lax.map(function, number[place].reshape(parts, part))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:count], result)


def mean_over(
    measured: Callable[[Batch], dict[str, Float[Array, " B"]]], data: DeviceData
) -> dict[str, Float[Array, ""]]:
    """The mean over all transitions of each number that `measured` finds for every one."""
    found = over_transitions(lambda number: measured(gather(data, number, 1.0)), data)
    return {name: numbers.mean() for name, numbers in found.items()}
