"""What a value network asks of demonstrations: rewards, states to stress, returns to judge it."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from leeward.data.passes import over_transitions
from leeward.data.returns import return_to_go
from leeward.data.sampling import DeviceData, gather
from leeward.types import Metrics

NEGLIGIBLE = 0.05
"""Share of a return that may lie beyond a cut before it counts as unknown (ours: 300 steps at a
discount of 0.99)."""


def without_rewards(data: DeviceData) -> Bool[Array, ""]:
    """Whether every reward is 0, as readers fill in where a file has none."""
    return (data.reward[data.start] == 0.0).all()


def constant_reward(termination: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """1 a step and 0 where the task ends: what stands for rewards where there are none."""
    return 1.0 - termination


def walk_start(data: DeviceData) -> Bool[Array, " T"]:
    """The transitions that do not follow the one before them."""
    return jnp.concatenate([jnp.ones(1, bool), data.steps_left[:-1] == 1])


def walk_end(data: DeviceData) -> tuple[Bool[Array, " T"], Float[Array, " T"]]:
    """Of the walk that each transition is on: whether it ends in a termination, its last reward."""
    last = jnp.arange(data.start.shape[0]) + data.steps_left - 1
    row = data.start[last]
    return data.termination[row], data.reward[row]


def episode_emphasis(
    data: DeviceData,
    steps: int,
    start: float | Float[Array, ""],
    success: float | Float[Array, ""],
    failure: float | Float[Array, ""],
) -> Float[Array, " T"]:
    """A factor for every transition: the product of those that apply to it.

    Args:
        data: the transitions.
        steps: how many of an episode's first and last ones are stressed.
        start: factor of the first ones.
        success: factor of the last ones before a termination whose reward is above the mean.
        failure: factor of the last ones before any other termination.
    """
    number = jnp.arange(data.start.shape[0])
    begin = jax.lax.cummax(jnp.where(walk_start(data), number, 0))
    terminates, last_reward = walk_end(data)
    ending = terminates & (data.steps_left <= steps)
    good = last_reward > data.reward[data.start].mean()
    factor = jnp.where(number - begin < steps, start, 1.0)
    factor = factor * jnp.where(ending & good, success, 1.0)
    return factor * jnp.where(ending & ~good, failure, 1.0)


def expert_states(data: DeviceData, fraction: float | Float[Array, ""]) -> Float[Array, " T"]:
    """1 for transitions of the walks with the highest summed rewards, 0 for the others.

    Args:
        data: the transitions.
        fraction: share of walks that are the expert's, at least one; ties are all in. 1: all.
    """
    count = data.start.shape[0]
    first = walk_start(data)
    walk = jnp.cumsum(first) - 1
    total = jnp.zeros(count).at[walk].add(data.reward[data.start])  # [walks, then zeros]
    exists = jnp.arange(count) < first.sum()
    ranked = jnp.sort(jnp.where(exists, total, -jnp.inf), descending=True)
    wanted = jnp.ceil(fraction * first.sum() - 1e-3).astype(jnp.int32)
    least = ranked[jnp.clip(wanted - 1, 0, first.sum() - 1)]
    return (total[walk] >= least).astype(jnp.float32)


def known_returns(
    data: DeviceData, discount: float | Float[Array, ""]
) -> tuple[Float[Array, " T"], Bool[Array, " T"]]:
    """The return after each transition, and where it is known.

    It is known where the episode terminates, or is cut so late that what followed matters little.
    """
    terminates, _ = walk_end(data)
    late = jnp.power(jnp.float32(discount), data.steps_left) < NEGLIGIBLE
    return return_to_go(data, discount), terminates | late


def value_quality(
    value: Float[Array, " T"], returns: Float[Array, " T"], known: Bool[Array, " T"]
) -> Metrics:
    """Pearson's correlation and root mean square error of values against known returns.

    NaN where no return is known, or where either side does not vary.
    """
    weight = known / known.sum()
    mean = [(weight * side).sum() for side in (value, returns)]
    error = [value - mean[0], returns - mean[1]]
    deviation = [jnp.sqrt((weight * jnp.square(side)).sum()) for side in error]
    varies = [d > 1e-5 * (1.0 + jnp.abs(m)) for d, m in zip(deviation, mean, strict=True)]
    correlation = (weight * error[0] * error[1]).sum() / (deviation[0] * deviation[1])
    return {
        "return_correlation": jnp.where(varies[0] & varies[1], correlation, jnp.nan),
        "return_error": jnp.sqrt((weight * jnp.square(value - returns)).sum()),
        "return_known": known.mean(),
    }


def value_measures(
    value: Callable[[Shaped[Array, "B *obs"]], Float[Array, " B"]],
    data: DeviceData,
    discount: float | Float[Array, ""],
    rewardless: Float[Array, ""],
) -> Metrics:
    """How far a value function is to be trusted on these transitions.

    Returns:
        v_mean and v_std; td_error, the mean |r + γV(s') − V(s)|; and, where rows are in order of
        time, `value_quality` against the returns.
    """
    constant = constant_reward(data.termination.astype(jnp.float32))
    data = data._replace(reward=jnp.where(rewardless > 0.0, constant, data.reward))

    def both(number: Int[Array, " part"]) -> tuple[Float[Array, " part"], Float[Array, " part"]]:
        batch = gather(data, number, discount)
        v = value(batch.observation)
        following = batch.discount * (1.0 - batch.termination) * value(batch.next_observation)
        return v, batch.reward + following - v

    v, error = over_transitions(both, data)
    found = {"v_mean": v.mean(), "v_std": v.std(), "td_error": jnp.abs(error).mean()}
    if data.next_observation is not None:
        return found
    return found | value_quality(v, *known_returns(data, discount))
