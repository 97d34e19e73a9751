"""Monte-Carlo returns of the data, computed once on the device."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from leeward.data.sampling import DeviceData
from leeward.errors import DataError


def check_returns_known(rows_chain: bool) -> None:
    """Raises DataError where next observations do not chain row to row: no return is known then."""
    if not rows_chain:
        raise DataError(
            "the return after each transition is not known in data whose next observations do not "
            "chain row to row: use data in order of time, or an algorithm without such returns"
        )


def return_to_go(
    data: DeviceData, discount: float | Float[Array, ""], repeat_last_reward: bool = False
) -> Float[Array, " T"]:
    """The discounted sum of rewards from each transition to the end of its episode.

    A walk stops where `DeviceData.steps_left` says so: after a termination, at an episode's end and
    before a row that starts no transition. What would have followed a stop that is no termination
    is counted as 0 or, with `repeat_last_reward`, as the last reward for ever, which is right for
    tasks that cost the same at every step until they are solved (AntMaze −1).

    Raises:
        DataError: next observations that do not chain row to row, so that no return is known.
    """
    check_returns_known(data.next_observation is None)
    reward = data.reward[data.start]  # [T]
    goes_on = data.steps_left > 1
    if repeat_last_reward:
        cut = ~goes_on & ~data.termination[data.start]
        reward = jnp.where(cut, reward / (1.0 - discount), reward)
    factor = jnp.where(goes_on, jnp.asarray(discount, reward.dtype), 0.0)

    # return[i] = reward[i] + factor[i] · return[i + 1], as a scan over pairs (factor, reward).
    def join(later: tuple[Array, Array], earlier: tuple[Array, Array]) -> tuple[Array, Array]:
        return earlier[0] * later[0], earlier[1] + earlier[0] * later[1]

    return jax.lax.associative_scan(join, (factor, reward), reverse=True)[1]
