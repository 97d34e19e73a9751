"""The row layout in HDF5: a `Dataset` as it is, for observations too large to store twice.

It has D4RL's columns `observations`, `actions`, `rewards`, `terminals` and `timeouts`, one row of
`Dataset` a row, and two more: `recorded` (False where a row only holds an observation: one after
an episode's last step, or one before its first) and `episode_start` (each episode's first row).
The next observation of a step is the next row of its episode.

Where `metadata/frame_stack` is n > 1 every row holds one image, and the observation of a row is
the last n images of its episode up to that row, oldest first. Before the episode's first row its
first image is repeated. An episode whose first stack is another one has rows before its first step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from leeward.data.columns import (
    ActionKind,
    check_finite,
    check_inside_box,
    convert,
    infer_action_space,
)
from leeward.data.dataset import Dataset
from leeward.data.hdf5 import read_column
from leeward.data.hints import Hints, action_bounds, check_space, described
from leeward.data.stream import Column, ColumnStream
from leeward.data.write import file_metadata
from leeward.errors import DataError
from leeward.types import Box, Discrete

_BLOCK = 1024  # rows written at once; ours: 7 MiB of Atari frames


def is_row_file(keys: Sequence[str]) -> bool:
    """Whether a file with these columns has the row layout."""
    return "recorded" in keys and "episode_start" in keys


def row_columns(observation_shape: tuple[int, ...], dtype: str, space: Box | Discrete) -> dict:
    """The columns of a file in the row layout, for `ColumnStream`."""
    action = (
        Column((), "int32") if isinstance(space, Discrete) else Column((space.size,), "float32")
    )
    return {
        "observations": Column(observation_shape, dtype),
        "actions": action,
        "rewards": Column((), "float32"),
        "terminals": Column((), "bool"),
        "timeouts": Column((), "bool"),
        "recorded": Column((), "bool"),
        "episode_start": Column((), "int64"),
    }


def read_row_file(
    path: Path, file: h5py.File, in_file: dict[str, Any], hints: Hints, notes: list[str]
) -> Dataset:
    """The data set in an open file of the row layout.

    Raises:
        DataError: a column that lacks, or does not fit the others.
    """
    names = ("observations", "actions", "rewards", "terminals", "timeouts")
    rows = Rows(*(read_column(file, key) for key in (*names, "recorded", "episode_start")))
    return from_rows(path, rows, in_file, hints, notes)


class Rows(NamedTuple):
    """The columns of the row layout, one row a step or an episode's further observation."""

    observation: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    termination: np.ndarray
    truncation: np.ndarray
    recorded: np.ndarray
    episode_start: np.ndarray


def from_rows(
    path: Path, given: Rows, in_file: Mapping[str, Any], hints: Hints, notes: list[str]
) -> Dataset:
    """The data set of columns in the row layout.

    Args:
        path: where they are from, for messages.
        given: the columns.
        in_file: what is said beside them.
        hints: what the caller says.
        notes: remarks so far, kept in the metadata.

    Raises:
        DataError: a column that does not fit the others.
    """
    name = str(hints.metadata.get("name", path.stem))
    metadata = described(path, in_file, hints, notes)
    check_space(name, given.action, hints.action_space, metadata.get("env"))
    low, high, count = action_bounds(path, in_file, hints)
    kind: ActionKind = "unknown" if low is None and high is None else "continuous"
    columns = convert(
        name,
        given.observation,
        given.action,
        given.reward,
        given.termination,
        given.truncation,
        None,
        kind=kind if count is None else "discrete",
    )
    rows = len(columns.reward)
    recorded, begin = _layout_flag(path, given.recorded, rows), given.episode_start
    _check_episodes(path, begin, rows)
    if not recorded.any():
        raise DataError(f"{path}: no row is 'recorded', so there is no step")
    if hints.strict:
        check_finite(name, columns)
    action = columns.action[recorded] if columns.action.ndim > 1 else columns.action
    space, space_notes = infer_action_space(name, action, low, high, count)
    if hints.strict:
        check_inside_box(name, action, space)
    termination, truncation = columns.termination & recorded, columns.truncation & recorded
    follows = np.ones(rows, bool)  # does the next row belong to the same episode?
    follows[begin[1:] - 1] = False
    follows[-1] = False
    start = np.flatnonzero(recorded & (follows | termination))
    if hints.strict and len(start) == 0:
        raise DataError(f"{name} has no transition: no row has a next observation")
    if space_notes:
        metadata["notes"] = [*metadata.get("notes", ()), *space_notes]
    return Dataset(
        observation=columns.observation,
        action=columns.action if isinstance(space, Box) else columns.action.astype(np.int32),
        reward=columns.reward,
        termination=termination,
        truncation=truncation,
        start=start,
        episode_start=begin.astype(np.int64),
        recorded=recorded,
        action_space=space,
        metadata=metadata,
    )


def write_row_file(path: Path, dataset: Dataset) -> None:
    """Writes a data set whose next observations are rows; what is read back is the same.

    Episodes without a transition are left out. A step that starts none is kept where it is its
    episode's last; elsewhere it becomes a row that only holds an observation.

    Raises:
        DataError: stored next observations, no transition, or a folder that cannot be written.
        DiskError: the disk is full.
    """
    name = dataset.metadata.get("name", "the data set")
    if dataset.next_observation is not None:
        raise DataError(f"{name} keeps next observations that are no rows")
    if dataset.transitions == 0:
        raise DataError(f"{name} has no transition")
    kept = kept_rows(dataset)
    shape, dtype = dataset.observation.shape[1:], str(dataset.observation.dtype)
    with ColumnStream(path, row_columns(shape, dtype, dataset.action_space)) as stream:
        stream.append({"episode_start": kept.episode_start, "recorded": kept.recorded})
        stream.append({"terminals": kept.termination, "timeouts": kept.truncation})
        for begin in range(0, len(kept.row), _BLOCK):
            row = kept.row[begin : begin + _BLOCK]
            stream.append(
                {
                    "observations": dataset.observation[row],
                    "actions": dataset.action[row],
                    "rewards": dataset.reward[row],
                }
            )
        stream.finish(file_metadata(dataset))


class KeptRows(NamedTuple):
    """The rows that a data set's transitions need, and the columns that change without the rest."""

    row: np.ndarray
    """[K]: numbers of the rows."""
    episode_start: np.ndarray
    """[E']: where among the kept rows each episode begins."""
    follows: np.ndarray
    """[K] bool: the next kept row belongs to the same episode."""
    recorded: np.ndarray
    """[K] bool, as the next two."""
    termination: np.ndarray
    truncation: np.ndarray


def kept_rows(dataset: Dataset) -> KeptRows:
    """From every episode's first transition, with the images of its stack, to its last's end.

    A row that starts no transition is a step only where it is its episode's last.
    """
    episode = dataset.episode_of_row
    end = np.append(dataset.episode_start[1:], len(dataset.reward))
    chosen, first = np.unique(episode[dataset.start], return_index=True)
    last = dataset.start[np.append(first[1:], len(dataset.start)) - 1]
    earliest = np.maximum(
        dataset.start[first] - (dataset.frame_stack - 1),
        dataset.episode_start[chosen],
    )
    stop = np.minimum(last + 2, end[chosen])
    row = np.concatenate([np.arange(a, b) for a, b in zip(earliest, stop, strict=True)])
    begin = np.concatenate([[0], np.cumsum(stop - earliest)[:-1]]).astype(np.int64)
    started = np.zeros(len(episode), bool)
    started[dataset.start] = True
    last_step = dataset.recorded & ~dataset.termination
    last_step &= np.isin(np.arange(len(episode)), end - 1)
    recorded = (started | last_step)[row]
    follows = np.ones(len(row), bool)
    follows[begin[1:] - 1] = False
    follows[-1] = False
    stops = recorded & ~(follows & np.append(recorded[1:], False))
    termination = dataset.termination[row] & recorded
    truncation = (dataset.truncation[row] & recorded) | (stops & ~termination)
    return KeptRows(row, begin, follows, recorded, termination, truncation)


def _layout_flag(path: Path, recorded: np.ndarray, rows: int) -> np.ndarray:
    if recorded.shape != (rows,) or not np.isin(recorded, (0, 1)).all():
        raise DataError(
            f"{path}: 'recorded' must hold true or false for each of {rows} rows, "
            f"got shape {recorded.shape}"
        )
    return recorded.astype(bool)


def _check_episodes(path: Path, begin: np.ndarray, rows: int) -> None:
    """Raises DataError where `episode_start` is no ascending list of rows from 0 on."""
    whole = begin.ndim == 1 and len(begin) and begin.dtype.kind in "iu"
    if not whole or begin[0] != 0 or (np.diff(begin) <= 0).any() or begin[-1] >= rows:
        raise DataError(
            f"{path}: 'episode_start' must be row numbers that ascend from 0 and stay below {rows}"
        )
