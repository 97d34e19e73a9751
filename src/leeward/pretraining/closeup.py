"""V at single states, for figures: states on two main axes, and whole walks beside returns."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from leeward.data.demonstrations import constant_reward, known_returns
from leeward.data.sampling import DeviceData, observe

SCATTERED = 400
"""States on the two main axes (ours: more only hide one another)."""
LONGEST = 1_000
"""Steps up to which a walk is shown."""


def choose(data: DeviceData) -> dict[str, np.ndarray]:
    """Transitions spread over the data, and three walks: the worst, the middle and the best.

    Returns:
        transition [P], their numbers; walk [P], −1 of scattered ones, else 0 to 2; component
        [P, 2], scattered states on their two main axes, NaN of the others; explained [2], the
        share of the states' variance along each axis.
    """
    count = data.start.shape[0]
    size = min(SCATTERED, count)
    parts = [np.arange(size, dtype=np.int64) * count // size]
    parts += shown_walks(np.asarray(data.steps_left), np.asarray(data.reward[data.start]))
    transition = np.concatenate(parts).astype(np.int32)
    walk = np.concatenate([np.full(len(part), i - 1) for i, part in enumerate(parts)])
    scattered = np.asarray(observe(data, data.start[jnp.asarray(parts[0], jnp.int32)]))
    place, explained = main_axes(scattered.reshape(size, -1))
    component = np.full((len(transition), 2), np.nan, np.float32)
    component[:size] = place
    return {
        "transition": transition,
        "walk": walk.astype(np.int32),
        "component": component,
        "explained": explained.astype(np.float32),
    }


def shown_walks(steps_left: np.ndarray, reward: np.ndarray) -> list[np.ndarray]:
    """The transitions of the walks with the lowest, the middle and the highest return.

    Args:
        steps_left: [T] of every transition, in order of time; walks of one step are left out.
        reward: [T].
    """
    ends = np.flatnonzero(steps_left == 1)
    begins = np.concatenate([[0], ends[:-1] + 1])
    long = ends > begins
    begins, ends = begins[long], ends[long]
    if not len(ends):
        return []
    total = np.concatenate([[0.0], np.cumsum(reward, dtype=np.float64)])
    order = np.argsort(total[ends + 1] - total[begins], kind="stable")
    picked = dict.fromkeys((order[0], order[len(order) // 2], order[-1]))
    spans = [(int(begins[i]), int(ends[i]) + 1) for i in picked]
    return [np.arange(begin, min(end, begin + LONGEST)) for begin, end in spans]


def main_axes(states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(states on their two principal axes [P, 2], shares of the variance along these [2]).

    An axis points to where its largest loading is positive, so that figures do not flip.

    Args:
        states: [P, size].
    """
    centered = states.astype(np.float64) - states.mean(axis=0, dtype=np.float64)
    _, strength, axis = np.linalg.svd(centered, full_matrices=False)
    axis = axis[:2]
    largest = np.abs(axis).argmax(axis=1)
    axis = axis * np.where(axis[np.arange(len(axis)), largest] < 0.0, -1.0, 1.0)[:, None]
    total = max(float((strength**2).sum()), np.finfo(np.float64).tiny)
    place, explained = np.zeros((len(states), 2)), np.zeros(2)
    place[:, : len(axis)] = centered @ axis.T
    explained[: len(axis)] = strength[: len(axis)] ** 2 / total
    return place, explained


def returns_at(
    data: DeviceData, discount: float | Float[Array, ""], rewardless: Float[Array, ""]
) -> Float[Array, " T"]:
    """The return after each transition; NaN where it is not known."""
    if data.next_observation is not None:
        return jnp.full(data.start.shape[0], jnp.nan)
    constant = constant_reward(data.termination.astype(jnp.float32))
    data = data._replace(reward=jnp.where(rewardless > 0.0, constant, data.reward))
    returns, known = known_returns(data, discount)
    return jnp.where(known, returns, jnp.nan)
