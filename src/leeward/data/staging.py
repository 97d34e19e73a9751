"""Rows gathered on the host for batches whose transitions are known, from memory or mapped files.

The small columns (rewards, flags, row numbers) lie on the device as always, so that a batch is made
by the same arithmetic; observations and actions come with the batch, each row once, as stored.
"""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from leeward.data.allocation import mapped_file
from leeward.data.dataset import Dataset
from leeward.data.sampling import DeviceData, Scaling, gather, to_device
from leeward.errors import DataError
from leeward.types import Batch

_PAGE = 4096  # bytes that the kernel reads at least
_SLOW = 2e-5  # seconds a row from which it came from the disk, not from memory; ours


class Staged(NamedTuple):
    """The rows of batches: in NumPy as stored, then on the device in network units."""

    index: Int[Array, "*batches B"]  # pyright: ignore[reportIncompatibleMethodOverride]
    row: Shaped[Array, "*batches B S *row"]
    """Frames of the observation, then those that the next observation has besides."""
    following: Shaped[Array, "*batches B *row"] | None
    """Next observations that are no rows."""
    action: Shaped[Array, "*batches B *act"]
    next_action: Shaped[Array, "*batches B *act"]


def small_columns(dataset: Dataset, scaling: Scaling) -> DeviceData:
    """The data on the device with one row in place of all observations and actions.

    That row has the right shape and type, and nothing may be learned from it.
    """
    following = dataset.next_observation
    return to_device(
        dataclasses.replace(
            dataset,
            observation=np.asarray(dataset.observation[:1]),
            action=np.asarray(dataset.action[:1]),
            next_observation=None if following is None else np.asarray(following[:1]),
        ),
        scaling,
    )


def network_units(scaling: Scaling, staged: Staged) -> Staged:
    """Rows on the device in the units of networks, to the bit as `to_device` has them.

    Compiled within an update, the same division would be rounded otherwise.
    """

    def action(stored: Array) -> Array:
        if jnp.issubdtype(stored.dtype, jnp.integer):
            return stored
        return jnp.clip(scaling.to_network(stored), -1.0, 1.0)

    following = staged.following
    return staged._replace(
        row=_normalized(scaling, staged.row),
        following=None if following is None else _normalized(scaling, following),
        action=action(staged.action),
        next_action=action(staged.next_action),
    )


def _normalized(scaling: Scaling, rows: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
    if rows.dtype == jnp.uint8 and scaling.observation_mean.ndim > 1:
        return rows  # images stay as they are, without a copy
    return jax.jit(Scaling.normalize)(scaling, rows)


def staged_batch(
    columns: DeviceData, staged: Staged, discount: Float[Array, ""] | float, n_step: int
) -> Batch:
    """The batch that `gather` makes of the same transitions, to the bit.

    Args:
        columns: of `small_columns`.
        staged: the rows of one batch, in network units.
        discount: as `gather` has it.
        n_step: likewise.
    """
    batch = gather(columns, staged.index, discount, n_step)  # its observations are replaced
    observation = next_observation = staged.row[:, 0]
    if columns.frame_age is not None:
        frames = columns.frame_age.shape[0]
        observation = staged.row[:, :frames]
        if staged.following is None:
            next_observation = _next_stack(columns, staged, frames, n_step)
        else:
            newest = staged.following[:, None]
            next_observation = jnp.concatenate([observation[:, 1:], newest], axis=1)
    elif staged.following is not None:
        next_observation = staged.following
    else:
        next_observation = staged.row[:, 1]
    return batch._replace(
        observation=observation,
        next_observation=next_observation,
        action=staged.action,
        next_action=staged.next_action,
    )


def _next_stack(
    columns: DeviceData, staged: Staged, frames: int, n_step: int
) -> Shaped[Array, "B K *row"]:
    """The frames of the next observations, out of those that were gathered."""
    assert columns.frame_age is not None
    assert columns.frames_before is not None
    begin = columns.start[staged.index]
    walked = jnp.ones_like(begin)
    if n_step > 1:
        walked = jnp.minimum(n_step, columns.steps_left[staged.index])
    end = jnp.minimum(begin + walked, columns.reward.shape[0] - 1)
    before = columns.frames_before[end].astype(jnp.int32)
    row = end[:, None] - jnp.minimum(columns.frame_age[None, :], before[:, None])  # [B, K]
    last = staged.row.shape[1] - 1
    slot = jnp.where(
        row > begin[:, None], last - (end[:, None] - row), frames - 1 - (begin[:, None] - row)
    )
    return jnp.take_along_axis(staged.row, slot[:, :, None, None], axis=1)


class HostRows:
    """The large columns of a data set where they are, and how a batch's rows are found in them."""

    def __init__(self, dataset: Dataset, part: Dataset, frames_before: Any, n_step: int) -> None:
        """Takes note of the files.

        Args:
            dataset: all rows.
            part: the same rows with the transitions to gather, or the data set itself.
            frames_before: [R] of `DeviceData`, or None.
            n_step: steps that a transition walks.
        """
        self._start, self._n_step = part.start, n_step
        self._steps_left = part.steps_left()
        self._frames, self._last = dataset.frame_stack, len(dataset.reward) - 1
        self._before = None if frames_before is None else np.asarray(frames_before)
        self._observation, self._action = _Column(dataset.observation), _Column(dataset.action)
        self._following = None
        if dataset.next_observation is not None:
            self._following = _Column(dataset.next_observation)
            self._position = np.searchsorted(dataset.start, part.start)

    @property
    def transition_bytes(self) -> int:
        """Bytes of the rows that one transition needs."""
        fresh = 0 if self._following is not None else min(self._frames, self._n_step)
        stored = 0 if self._following is None else self._following.row_bytes
        rows = (self._frames + fresh) * self._observation.row_bytes
        return rows + stored + 2 * self._action.row_bytes

    def fetch(self, index: np.ndarray) -> Staged:
        """The rows of the transitions `index`, an array of any shape.

        Raises:
            DataError: a mapped file was changed since it was opened.
        """
        number = index.ravel()
        begin = self._start[number]
        walked = np.minimum(self._n_step, self._steps_left[number])
        # A walk of one step needs no count: it goes on from rows that start no transition too.
        end = np.minimum(begin + (walked if self._n_step > 1 else 1), self._last)
        following = None
        if self._following is not None:
            following = self._following.take(self._position[number], index.shape)
        return Staged(
            index=index,  # type: ignore[arg-type]  # NumPy's arrays go to the device as a whole
            row=self._observation.take(self._rows(begin, end), index.shape),  # type: ignore[arg-type]
            following=following,  # type: ignore[arg-type]
            action=self._action.take(begin, index.shape),  # type: ignore[arg-type]
            next_action=self._action.take(end, index.shape),  # type: ignore[arg-type]
        )

    def _rows(self, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
        """[M, S]: the rows of each observation, and those that the next one has besides."""
        age = np.arange(self._frames - 1, -1, -1)
        if self._before is not None:
            age = np.minimum(age[None], self._before[begin][:, None])  # [M, K]
        rows = begin[:, None] - age
        if self._following is not None:
            return rows
        fresh = np.arange(min(self._frames, self._n_step) - 1, -1, -1)
        return np.concatenate([rows, np.maximum(end[:, None] - fresh, 0)], axis=1)


class _Column:
    """One column, in memory or mapped."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = np.asarray(array)
        self.row_bytes = self._array.nbytes // len(self._array)
        self._file, self._offset = mapped_file(self._array) or (None, 0)
        self._stamp = None if self._file is None else _stamp(self._file)
        self._from_disk = self._file is not None  # until found to come from memory

    def take(self, row: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The rows `row` [M] or [M, S], reshaped to shape, S, row."""
        if self._file is not None and _stamp(self._file) != self._stamp:
            raise DataError(
                f"{self._file} was changed while it was trained on: put the old file back and "
                "resume, or start a new run"
            )
        if self._from_disk:
            self._ask_ahead(row)
        begin = time.perf_counter()
        found = self._array.take(row.ravel(), axis=0, mode="clip")  # no copy of `found`, as "raise"
        self._from_disk = self._file is not None and time.perf_counter() - begin > _SLOW * row.size
        return found.reshape(*shape, *row.shape[1:], *self._array.shape[1:])

    def _ask_ahead(self, row: np.ndarray) -> None:
        """Lets the kernel read what will be needed, all at once and in the order of the disk.

        Else every row would wait for its own read, one after another.
        """
        if self._file is None or not hasattr(os, "posix_fadvise"):  # not on macOS
            return
        row = row.reshape(len(row), -1)
        first = (self._offset + row.min(axis=1) * self.row_bytes) // _PAGE
        order = np.argsort(first)
        first = first[order]
        stop = (self._offset + (row.max(axis=1)[order] + 1) * self.row_bytes - 1) // _PAGE + 1
        stop = np.maximum.accumulate(stop)
        gap = np.flatnonzero(first[1:] > stop[:-1])  # pages between two reads are not asked for
        begins, stops = first[np.append(0, gap + 1)], stop[np.append(gap, len(stop) - 1)]
        descriptor = os.open(self._file, os.O_RDONLY)
        try:
            for begin, end in zip(begins.tolist(), stops.tolist(), strict=True):
                size = (end - begin) * _PAGE
                os.posix_fadvise(descriptor, begin * _PAGE, size, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(descriptor)


def _stamp(file: Path) -> tuple[int, int] | None:
    """(bytes, time of change); None where the file is gone."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns
