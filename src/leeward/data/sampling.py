"""Which transitions an update sees, and how they are fetched: index arithmetic on the device.

`choose` turns (key, step) into transition numbers and `gather` into a `Batch`; both are pure, so
neither chunk length nor logging can change what a run sees, and a resumed run sees the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt, UInt32

from leeward.data.dataset import Dataset
from leeward.data.moments import mean_and_std
from leeward.errors import DataError
from leeward.types import Batch, Box, PRNGKey, Sampling, Step


class Scaling(eqx.Module):
    """The affine maps between the environment's units and the networks'. Saved with every policy.

    Observations are standardised, actions mapped from their box to [−1, 1].
    """

    observation_mean: Float[Array, "*obs"]
    observation_std: Float[Array, "*obs"]
    action_center: Float[Array, "A"]
    action_scale: Float[Array, "A"]

    def normalize(self, observation: Shaped[Array, "*batch"]) -> Shaped[Array, "*batch"]:
        """Observations as the networks see them; images (uint8) are left to the encoder."""
        if observation.dtype == jnp.uint8 and self.observation_mean.ndim > 1:
            return observation
        mean = jnp.broadcast_to(self.observation_mean, observation.shape)
        return (observation - mean) / jnp.broadcast_to(self.observation_std, observation.shape)

    def to_environment(self, action: Shaped[Array, "*batch"]) -> Shaped[Array, "*batch"]:
        """Network actions in [−1, 1] as the environment's; integers unchanged."""
        if jnp.issubdtype(action.dtype, jnp.integer):
            return action
        scale = jnp.broadcast_to(self.action_scale, action.shape)
        return action * scale + jnp.broadcast_to(self.action_center, action.shape)

    def to_network(self, action: Shaped[Array, "*batch"]) -> Shaped[Array, "*batch"]:
        """The environment's actions as the networks', in [−1, 1]; integers unchanged."""
        if jnp.issubdtype(action.dtype, jnp.integer):
            return action
        center = jnp.broadcast_to(self.action_center, action.shape)
        return (action - center) / jnp.broadcast_to(self.action_scale, action.shape)


class DeviceData(NamedTuple):
    """A data set on the device, in network units. R rows, T transitions."""

    observation: Shaped[Array, "R *obs"]
    action: Shaped[Array, "R *act"]
    reward: Float[Array, " R"]
    termination: Bool[Array, " R"]
    start: Int[Array, " T"]
    steps_left: Int[Array, " T"]
    next_observation: Shaped[Array, "T *obs"] | None
    next_action_known: Bool[Array, " R"] | None = None
    """Whether the next row holds the action taken next in the same episode; None: nowhere."""
    frame_age: Int[Array, " K"] | None = None
    """How many rows back each frame of an observation lies, K − 1 … 0; None: rows are whole."""
    frames_before: UInt[Array, " R"] | None = None
    """Earlier rows of the same episode, counted up to K − 1: no stack reaches past them."""


def fit_scaling(dataset: Dataset, normalize_observations: bool) -> Scaling:
    """Mean and std + 1e-3 of the observations that start a transition (TD3+BC, section 4).

    Without `normalize_observations`, and for images, the observation map is the identity.
    """
    space = dataset.action_space
    if isinstance(space, Box):
        low, high = np.array(space.low, np.float64), np.array(space.high, np.float64)
        center, scale = (low + high) / 2, (high - low) / 2
    else:
        center, scale = np.zeros(1), np.ones(1)
    shape = dataset.spec.observation_shape
    mean, std = np.zeros(shape), np.ones(shape)
    image = dataset.observation.dtype == np.uint8 and len(shape) > 1
    if normalize_observations and not image:
        mean, std = mean_and_std(dataset.observation, dataset.start)
        std = std + 1e-3
    return Scaling(*(jnp.asarray(v, jnp.float32) for v in (mean, std, center, scale)))


def to_device(
    dataset: Dataset,
    scaling: Scaling,
    put: Callable[[np.ndarray], Shaped[Array, "R *obs"]] = jax.device_put,
) -> DeviceData:
    """The data in network units, on the default device.

    Args:
        dataset: the data.
        scaling: the maps to network units.
        put: what brings observations, the largest part, to where they are to lie.
    """
    if dataset.transitions == 0:
        raise DataError(f"{dataset.metadata.get('name', 'the data set')} has no transition left")
    action = dataset.action
    if isinstance(dataset.action_space, Box):
        # An action on the bound must stay on it: rounding could leave the box by one bit.
        action = np.asarray(jnp.clip(scaling.to_network(jnp.asarray(action)), -1.0, 1.0))
    observation, next_observation = (
        None if rows is None else _network_units(rows, scaling, put)
        for rows in (dataset.observation, dataset.next_observation)
    )
    assert observation is not None
    stack = dataset.frame_stack
    return DeviceData(
        observation=observation,
        action=jnp.asarray(action),
        reward=jnp.asarray(dataset.reward, jnp.float32),
        termination=jnp.asarray(dataset.termination),
        start=jnp.asarray(dataset.start, jnp.int32),
        steps_left=jnp.asarray(dataset.steps_left()),
        next_observation=next_observation,
        next_action_known=next_action_known(dataset),
        frame_age=jnp.arange(stack - 1, -1, -1) if stack > 1 else None,
        frames_before=frames_before(dataset) if stack > 1 else None,
    )


def _network_units(
    rows: np.ndarray, scaling: Scaling, put: Callable[[np.ndarray], Shaped[Array, "R *obs"]]
) -> Shaped[Array, "R *obs"]:
    """Observations on the device; images are not touched, nor copied where memory is shared."""
    if rows.dtype == np.uint8 and rows.ndim > 2:
        return put(rows)
    return jax.jit(Scaling.normalize)(scaling, put(rows))


def select_transitions(data: DeviceData, part: Dataset) -> DeviceData:
    """`data` with only the transitions of `part`, whose rows are the same."""
    start = jnp.asarray(part.start, jnp.int32)
    next_observation = data.next_observation
    if next_observation is not None:
        next_observation = next_observation[jnp.searchsorted(data.start, start)]
    return data._replace(
        start=start, steps_left=jnp.asarray(part.steps_left()), next_observation=next_observation
    )


def frames_before(dataset: Dataset) -> UInt[Array, " R"]:
    """Earlier rows of each row's episode, counted up to the stack's size less one."""
    rows = np.arange(len(dataset.reward))
    before = rows - dataset.episode_start[dataset.episode_of_row]
    return jnp.asarray(np.minimum(before, dataset.frame_stack - 1), jnp.uint8)


def next_action_known(dataset: Dataset) -> Bool[Array, " R"] | None:
    """Whether the action taken after each row is the next row's.

    It is not at an episode's end, whether or not an extra row holds the last observation, nor where
    next observations are stored apart: the next row may belong to another moment.
    """
    if not dataset.next_rows_chain():
        return None
    episode = dataset.episode_of_row
    known = np.zeros(len(dataset.reward), bool)
    known[:-1] = (episode[1:] == episode[:-1]) & dataset.recorded[1:]
    return jnp.asarray(known)


def choose(
    sampling: Sampling, count: int, batch_size: int, seed_key: PRNGKey, key: PRNGKey, step: Step
) -> Int[Array, " B"]:
    """Numbers of the transitions of one update.

    "uniform" draws with replacement from `key`. "epoch" walks a permutation of all transitions
    that depends on `seed_key` and the epoch alone; the short batch at its end is dropped.
    """
    if sampling == "uniform":
        return jax.random.randint(key, (batch_size,), 0, count)
    batches = count // batch_size
    epoch_key = jax.random.fold_in(seed_key, step // batches)
    position = (step % batches) * batch_size + jnp.arange(batch_size)
    return permute(position, count, epoch_key)


def permute(position: Int[Array, " B"], count: int, key: PRNGKey) -> Int[Array, " B"]:
    """Where a pseudo-random permutation of 0 … count − 1, drawn by `key`, sends each position.

    An eight-round Feistel network on the next even number of bits, applied again wherever it leaves
    the range (cycle walking): memory and time do not depend on `count`, and any position can be
    asked for alone, which is what makes epochs resumable. With four rounds, counts below about 60
    are visibly biased (chi-square over 20,000 keys); with eight none is.
    """
    half = max(1, ((count - 1).bit_length() + 1) // 2)
    mask = jnp.uint32((1 << half) - 1)
    round_key = jax.random.bits(key, (8,), jnp.uint32)

    def mix(value: UInt32[Array, " B"], salt: UInt32[Array, ""]) -> UInt32[Array, " B"]:
        value = (value ^ jnp.broadcast_to(salt, value.shape)) * jnp.uint32(0x9E3779B1)
        value = (value ^ (value >> 15)) * jnp.uint32(0x85EBCA77)
        return (value ^ (value >> 13)) & mask

    def feistel(value: UInt32[Array, " B"]) -> UInt32[Array, " B"]:
        left, right = value >> half, value & mask
        for i in range(8):
            left, right = right, left ^ mix(right, round_key[i])
        return (left << half) | right

    def outside(value: UInt32[Array, " B"]) -> Bool[Array, ""]:
        return jnp.any(value >= count)

    def again(value: UInt32[Array, " B"]) -> UInt32[Array, " B"]:
        return jnp.where(value >= count, feistel(value), value)

    walked = jax.lax.while_loop(outside, again, feistel(position.astype(jnp.uint32)))
    return walked.astype(jnp.int32)


def observe(data: DeviceData, row: Int[Array, " B"]) -> Shaped[Array, "B *obs"]:
    """The observations of these rows, frames stacked [B, K, …], the oldest first."""
    if data.frame_age is None or data.frames_before is None:
        return data.observation[row]
    before = data.frames_before[row].astype(jnp.int32)
    age = jnp.minimum(data.frame_age[None, :], before[:, None])  # [B, K]
    return data.observation[row[:, None] - age]


def gather(
    data: DeviceData, index: Int[Array, " B"], discount: Float[Array, ""] | float, n_step: int = 1
) -> Batch:
    """The transitions `index` as a batch; rewards of `n_step` steps are summed with discounts.

    An n-step walk stops early at a termination, an episode's end or a row without a successor; it
    then bootstraps from where it stopped, with the discount of the steps it made.
    """
    row = data.start[index]
    walked = jnp.ones_like(index)
    reward = data.reward[row]
    if n_step > 1:
        walked = jnp.minimum(n_step, data.steps_left[index])
        ahead = row[:, None] + jnp.arange(n_step)[None, :]  # [B, n]
        within = jnp.arange(n_step)[None, :] < walked[:, None]
        weight = jnp.where(within, jnp.power(discount, jnp.arange(n_step))[None, :], 0.0)
        # Rows past the walk are masked, so clamping them to the data is harmless.
        last = data.reward.shape[0] - 1
        reward = (weight * data.reward[jnp.minimum(ahead, last)]).sum(axis=1)
    end_row = row + walked  # the row after the last step walked
    last_row = data.reward.shape[0] - 1
    observation = observe(data, row)
    if data.next_observation is None:
        next_observation = observe(data, jnp.minimum(end_row, last_row))
    elif data.frame_age is None:
        next_observation = data.next_observation[index]
    else:  # the newest frame behind those of this observation but the oldest
        newest = data.next_observation[index][:, None]
        next_observation = jnp.concatenate([observation[:, 1:], newest], axis=1)
    known = jnp.zeros(index.shape)
    if data.next_action_known is not None:
        known = data.next_action_known[end_row - 1].astype(jnp.float32)
    return Batch(
        observation=observation,
        action=data.action[row],
        reward=reward,
        next_observation=next_observation,
        next_action=data.action[jnp.minimum(end_row, last_row)],
        termination=data.termination[end_row - 1].astype(jnp.float32),
        discount=jnp.power(jnp.float32(discount), walked),
        index=index,
        next_action_known=known,
    )


def check_sampling(dataset: Dataset, sampling: Sampling, batch_size: int, n_step: int) -> None:
    """Raises DataError where a batch of this kind cannot be drawn from the data."""
    name = dataset.metadata.get("name", "the data set")
    if dataset.frame_stack > 1 and not (
        dataset.observation.dtype == np.uint8 and dataset.observation.ndim == 3
    ):
        raise DataError(
            f"{name} says that {dataset.frame_stack} frames make one observation, but its rows are "
            f"{dataset.observation.dtype} of shape {dataset.observation.shape[1:]}: stacked frames "
            "must be gray images of bytes (uint8)"
        )
    if sampling == "epoch" and dataset.transitions < batch_size:
        raise DataError(
            f"{name} has {dataset.transitions} transitions, fewer than one batch of {batch_size}: "
            "use --sampling uniform or a smaller --batch-size"
        )
    if n_step > 1 and not dataset.next_rows_chain():
        raise DataError(
            f"{name} keeps next observations that do not chain row to row, so n-step returns "
            "cannot be computed: use --n-step 1"
        )


def sample(
    config: Any, sampling: Sampling, data: DeviceData, seed_key: PRNGKey, key: PRNGKey, step: Step
) -> Batch:
    """The batch of one update, by the config's batch size, discount and n-step (where it has them).

    `seed_key` is the run's key (it fixes the permutation of epochs), `key` this update's.
    """
    count = data.start.shape[0]
    index = choose(sampling, count, config.batch_size, seed_key, key, step)
    return gather(data, index, getattr(config, "discount", 1.0), getattr(config, "n_step", 1))
