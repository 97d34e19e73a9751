"""A data set as a file: HDF5 in D4RL's or the row layout, or .npz, whichever fits and is asked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import numpy as np

from leeward.data.dataset import Dataset
from leeward.data.reduce import compact
from leeward.data.row_file import write_row_file
from leeward.data.stream import Column, ColumnStream, disk_errors
from leeward.data.write import file_metadata, write_dataset
from leeward.errors import DataError
from leeward.types import Discrete

FileLayout = Literal["rows", "d4rl"]
SUFFIXES = (".hdf5", ".h5", ".npz")
"""Endings of files that can be written."""
_BLOCK = 256  # transitions written at once; ours: 15 MiB of stacked Atari frames


def write_file(path: Path, dataset: Dataset, layout: FileLayout | None = None) -> None:
    """Writes a data set; `load_dataset` reads the same transitions back.

    Args:
        path: its ending says the format.
        dataset: any data set.
        layout: of HDF5: "rows" keeps every observation once, "d4rl" both observations of every
            transition, with frames stacked. Default: rows for images, else D4RL's columns with
            next observations only where these are not the next rows.

    Raises:
        DataError: a layout that cannot hold the data, no transition, or a place that cannot be
            written.
        DiskError: the disk is full.
    """
    if dataset.transitions == 0:
        raise DataError(f"{dataset.metadata.get('name', 'the data set')} has no transition")
    dataset = _without_origin(dataset)
    image = dataset.observation.dtype == np.uint8 and dataset.observation.ndim > 2
    if path.suffix == ".npz":
        if layout is not None or dataset.frame_stack > 1:
            raise DataError(f"{path}: stacked frames and layouts need .hdf5")
        _write_npz(path, dataset)
    elif layout == "d4rl":
        write_transitions(path, dataset)
    elif layout == "rows" or (image and dataset.next_observation is None):
        write_row_file(path, dataset)
    else:
        write_dataset(path, dataset)


def write_transitions(path: Path, dataset: Dataset) -> None:
    """Writes observations, actions, rewards, terminals, next_observations: one row a transition.

    Frames are stacked, so that loaders that know no stacks read them. Time limits are kept in
    `timeouts` where there are any.

    Raises:
        DataError: a place that cannot be written.
        DiskError: the disk is full.
    """
    stack = dataset.frame_stack
    shape = ((stack,) if stack > 1 else ()) + dataset.observation.shape[1:]
    observation = Column(shape, str(dataset.observation.dtype))
    discrete = isinstance(dataset.action_space, Discrete)
    columns = {
        "observations": observation,
        "actions": Column(dataset.action.shape[1:], "int64" if discrete else "float32"),
        "rewards": Column((), "float32"),
        "terminals": Column((), "bool"),
        "next_observations": observation,
    }
    truncation = dataset.truncation[dataset.start]
    if truncation.any():
        columns["timeouts"] = Column((), "bool")
    metadata = {key: value for key, value in file_metadata(dataset).items() if key != "frame_stack"}
    with ColumnStream(path, columns) as stream:
        for begin in range(0, dataset.transitions, _BLOCK):
            index = np.arange(begin, min(begin + _BLOCK, dataset.transitions))
            row = dataset.start[index]
            block = {
                "observations": frame_stacks(dataset, row),
                "actions": dataset.action[row],
                "rewards": dataset.reward[row],
                "terminals": dataset.termination[row],
                "next_observations": _next_observations(dataset, index),
                "timeouts": truncation[index],
            }
            stream.append({key: block[key] for key in columns})
        stream.finish(metadata)


def frame_stacks(dataset: Dataset, row: np.ndarray) -> np.ndarray:
    """[n, *obs], or [n, stack, *image]: the observations of rows, oldest image first.

    Before an episode's first row its first image is repeated.
    """
    stack = dataset.frame_stack
    if stack == 1:
        return dataset.observation[row]
    first = dataset.episode_start[np.searchsorted(dataset.episode_start, row, "right") - 1]
    index = np.maximum(row[:, None] + np.arange(1 - stack, 1)[None, :], first[:, None])
    return dataset.observation[index]


def _next_observations(dataset: Dataset, index: np.ndarray) -> np.ndarray:
    """The next observations of transitions; after an unknown one, the transition's own.

    That happens at terminations only, where nothing is learned from it.
    """
    if dataset.next_observation is not None:
        return dataset.next_observation[index]
    row = dataset.start[index]
    following = np.minimum(row + 1, len(dataset.reward) - 1)
    first = np.searchsorted(dataset.episode_start, np.stack([row, following]), "right")
    return frame_stacks(dataset, np.where(first[0] == first[1], following, row))


def _without_origin(dataset: Dataset) -> Dataset:
    """The data set without what its file said of a shard, which is true of that file alone."""
    in_file = dict(dataset.metadata.get("file_metadata", {}))
    for key in ("converted_from", "records_kept", "records_left_out"):
        in_file.pop(key, None)
    return dataset.with_metadata(file_metadata=in_file)


def _write_npz(path: Path, dataset: Dataset) -> None:
    """One array a column and what the readers understand of the metadata, whole or not at all."""
    dataset = compact(dataset)
    index = np.arange(dataset.transitions)
    row = dataset.start
    columns: dict[str, Any] = {
        "observations": dataset.observation[row],
        "actions": dataset.action[row],
        "rewards": dataset.reward[row],
        "terminals": dataset.termination[row],
        "timeouts": _cut(dataset),
        "next_observations": _next_observations(dataset, index),
    }
    short = {key: np.asarray(value) for key, value in file_metadata(dataset).items()}
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                np.savez_compressed(file, allow_pickle=False, **{**short, **columns})
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _cut(dataset: Dataset) -> np.ndarray:
    """[T] bool: transitions after which the recording stops, marked or not."""
    row = dataset.start
    goes_on = np.zeros(len(row), bool)
    episode = dataset.episode_of_row[row]
    goes_on[:-1] = episode[1:] == episode[:-1]
    if dataset.next_observation is None:
        goes_on[:-1] &= np.diff(row) == 1
    return (dataset.truncation[row] | ~goes_on) & ~dataset.termination[row]
