"""What the online learner saw, kept on the device, and one step of learning from it."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from leeward.algorithms import sac
from leeward.data.sampling import DeviceData, gather
from leeward.rollout import Columns
from leeward.types import Metrics, PRNGKey, Spec


class Replay(NamedTuple):
    """All that the learner saw, in network units; rows past the steps made are unused."""

    data: DeviceData
    truncation: Bool[Array, " R"]


class Transition(NamedTuple):
    """One step of the environment, in network units."""

    observation: Float[Array, " obs"] | np.ndarray
    action: Float[Array, " A"] | np.ndarray
    reward: Float[Array, ""] | np.float32
    next_observation: Float[Array, " obs"] | np.ndarray
    termination: Bool[Array, ""] | bool
    truncation: Bool[Array, ""] | bool


def make_replay(spec: Spec, rows: int) -> Replay:
    """Empty rows."""
    shape = (rows, *spec.observation_shape)
    data = DeviceData(
        observation=jnp.zeros(shape),
        action=jnp.zeros((rows, spec.action.size)),
        reward=jnp.zeros(rows),
        termination=jnp.zeros(rows, bool),
        start=jnp.arange(rows, dtype=jnp.int32),
        steps_left=jnp.ones(rows, jnp.int32),
        next_observation=jnp.zeros(shape),
    )
    return Replay(data, jnp.zeros(rows, bool))


@partial(jax.jit, donate_argnums=0)
def remember(replay: Replay, transition: Transition, row: Int[Array, ""]) -> Replay:
    """The replay with one row set, in place."""
    data = replay.data
    assert data.next_observation is not None
    return Replay(
        data._replace(
            observation=data.observation.at[row].set(transition.observation),
            action=data.action.at[row].set(transition.action),
            reward=data.reward.at[row].set(transition.reward),
            termination=data.termination.at[row].set(transition.termination),
            next_observation=data.next_observation.at[row].set(transition.next_observation),
        ),
        replay.truncation.at[row].set(transition.truncation),
    )


@partial(jax.jit, donate_argnums=1)
def learn(
    config: sac.Config, state: sac.State, replay: Replay, key: PRNGKey, row: Int[Array, ""]
) -> tuple[sac.State, Metrics]:
    """One update on a batch of all rows up to `row`.

    Apart from `remember`: in a program that also writes, XLA copies whole columns before it reads.
    """
    index_key, update_key = jax.random.split(jax.random.fold_in(key, row))
    index = jax.random.randint(index_key, (config.batch_size,), 0, row + 1)
    batch = gather(replay.data, index, config.discount)
    return sac.update(config, state, batch, update_key, row)


@jax.jit
def explore(
    policy: Any, observation: Float[Array, " obs"], key: PRNGKey, step: Int[Array, ""]
) -> Float[Array, " A"]:
    """A sampled action in network units, which `key` and `step` fix."""
    return sac.explore(policy, observation, jax.random.fold_in(key, step))


def first_rows(replay: Replay, rows: int) -> Replay:
    """The first rows alone, on the host."""
    return jax.tree.map(lambda column: np.array(column)[:rows], replay)


def grow(replay: Replay, spec: Spec, rows: int) -> Replay:
    """The same rows at the head of a larger replay."""
    return jax.tree.map(
        lambda old, empty: jnp.asarray(np.concatenate([old, np.asarray(empty)[len(old) :]])),
        replay,
        make_replay(spec, rows),
    )


def to_columns(replay: Replay, center: np.ndarray, scale: np.ndarray) -> Columns:
    """All rows as they are written to files.

    Args:
        replay: rows on the host.
        center: [A], of the action box.
        scale: [A], half its width.
    """
    data = replay.data
    columns = (
        data.observation,
        center + scale * np.asarray(data.action),  # exactly what the environment was given
        data.reward,
        data.next_observation,
        data.termination,
        replay.truncation,
    )
    return Columns(*(np.asarray(column) for column in columns))
