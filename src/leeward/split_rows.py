"""`SplitRows`: rows that lie in parts on several devices and are indexed as if they were whole."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Shaped

from leeward.data.sampling import DeviceData

AXIS = "devices"
"""The one axis of a mesh: devices side by side."""
SPLIT = ("observation", "next_observation")
"""Columns of the data that may be split: the others are small."""


class SplitRows(eqx.Module):
    """This device's part of rows that lie in equal parts, in order, on the devices of `AXIS`.

    Exists only inside a program that every device runs on its own arrays. All of them index at the
    same moment: each hears what the others ask for, and answers with the rows that it has. D
    devices that ask for n rows each move (D − 1)·n rows between every two of them and need room
    for D·n.
    """

    part: Shaped[Array, "part *obs"]

    @property
    def ndim(self) -> int:
        """Axes of the rows as a whole."""
        return self.part.ndim

    def __getitem__(self, row: Int[Array, "*index"]) -> Shaped[Array, "*index *obs"]:
        """The rows with these numbers, as one array has them."""
        size = self.part.shape[0]
        asked = jax.lax.all_gather(row.reshape(-1), AXIS)  # [D, n]
        own = asked - size * jax.lax.axis_index(AXIS)
        here = (own >= 0) & (own < size)
        found = self.part[jnp.clip(own, 0, size - 1)]  # [D, n, *obs]
        here = here.reshape(*here.shape, *[1] * (found.ndim - 2))
        # One device has each row and all others add zeros, so the sum is the row itself.
        answer = jax.lax.psum_scatter(jnp.where(here, found, jnp.zeros_like(found)), AXIS)
        return answer.reshape(*row.shape, *self.part.shape[1:])


def as_if_whole(data: DeviceData) -> DeviceData:
    """Data whose observations are this device's part, for code that indexes whole columns."""
    parts: dict[str, Any] = {
        name: SplitRows(getattr(data, name)) for name in SPLIT if getattr(data, name) is not None
    }
    return data._replace(**parts)
