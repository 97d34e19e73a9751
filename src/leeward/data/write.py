"""Writing D4RL-layout HDF5: compressed, in chunks of whole rows, and whole or not at all."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from leeward.data.dataset import Dataset
from leeward.data.hints import NAMES
from leeward.errors import DataError, DiskError
from leeward.types import Box

_CHUNK_BYTES = 2**18
"""Bytes of one chunk; ours: HDF5's chunk cache holds several, and gzip gains nothing from more."""


def write_d4rl(
    path: Path,
    *,
    observation: np.ndarray,
    action: np.ndarray,
    reward: np.ndarray,
    termination: np.ndarray,
    truncation: np.ndarray,
    next_observation: np.ndarray | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Writes one array a column, one row a step, as D4RL names them.

    Args:
        path: the file; one that is there already is replaced, once the new one is whole.
        observation: [R, *obs].
        action: [R, A] in the environment's units, or [R] integers.
        reward: [R].
        termination: [R] bool.
        truncation: [R] bool.
        next_observation: [R, *obs], or None to leave it to be the next row.
        metadata: kept under `metadata/`; `env_id`, `action_low`, `action_high` and
            `action_count` are understood when the file is read.

    Raises:
        DataError: lengths that differ, or a folder that cannot be written.
        DiskError: the disk is full.
    """
    columns = {
        "observations": observation,
        "actions": action,
        "rewards": reward,
        "terminals": np.asarray(termination, bool),
        "timeouts": np.asarray(truncation, bool),
    }
    if next_observation is not None:
        columns["next_observations"] = next_observation
    if len(observation) == 0:
        raise DataError(f"{path}: there is no row to write")
    if len({len(column) for column in columns.values()}) > 1:
        listed = ", ".join(f"{key} {len(column)}" for key, column in columns.items())
        raise DataError(f"{path}: columns differ in length: {listed}")
    # Made in memory: HDF5 crashes the process when the disk fills up under it.
    with h5py.File(path.name, "w", driver="core", backing_store=False) as file:
        for key, column in columns.items():
            _write_column(file, key, np.asarray(column))
        for key, value in (metadata or {}).items():
            file[f"metadata/{key}"] = value
        file.flush()
        image = file.id.get_file_image()
    _replace(path, image)


def write_dataset(path: Path, dataset: Dataset) -> None:
    """Writes a data set as D4RL-layout HDF5; the "all" reading gives its transitions back.

    Steps that start no transition are written only where the file can say so, which it cannot
    beside stored next observations: there they are left out. Every episode's last step carries a
    flag in the file.

    Raises:
        DataError: a folder that cannot be written, or no transition.
        DiskError: the disk is full.
    """
    if dataset.transitions == 0:
        raise DataError(f"{dataset.metadata.get('name', 'the data set')} has no transition")
    episode = dataset.episode_of_row
    stored = dataset.next_observation is not None or not dataset.recorded.all()
    rows = dataset.start
    if not stored:
        rows = np.flatnonzero(np.isin(episode, episode[dataset.start]))
    truncation = dataset.truncation[rows].copy()
    goes_on = np.append(episode[rows[1:]] == episode[rows[:-1]], False)
    if dataset.next_observation is None:
        goes_on[:-1] &= np.diff(rows) == 1
    truncation |= ~goes_on & ~dataset.termination[rows]
    write_d4rl(
        path,
        observation=dataset.observation[rows],
        action=dataset.action[rows],
        reward=dataset.reward[rows],
        termination=dataset.termination[rows],
        truncation=truncation,
        next_observation=_stored_next(dataset) if stored else None,
        metadata=file_metadata(dataset),
    )


def _stored_next(dataset: Dataset) -> np.ndarray:
    """[T, *obs]: the next observation of every transition.

    A termination whose successor is not known gets its own observation: nothing is learned from it.
    """
    if dataset.next_observation is not None:
        return dataset.next_observation
    start, episode = dataset.start, dataset.episode_of_row
    following = np.minimum(start + 1, len(episode) - 1)
    known = episode[following] == episode[start]
    return dataset.observation[np.where(known, following, start)]


def file_metadata(dataset: Dataset) -> dict[str, Any]:
    """What a file says besides its rows: what readers understand, and what its source said."""
    metadata = dict(dataset.metadata.get("file_metadata", {}))
    if dataset.metadata.get("env"):
        metadata["env_id"] = dataset.metadata["env"]
    for key in NAMES:
        if dataset.metadata.get(key):
            metadata[key] = json.dumps(list(dataset.metadata[key]))
    if dataset.frame_stack > 1:
        metadata["frame_stack"] = dataset.frame_stack
    scores = dataset.metadata.get("reference_scores")
    if scores:
        metadata["reference_minimum"] = scores["minimum"]
        metadata["reference_maximum"] = scores["maximum"]
    space = dataset.action_space
    if isinstance(space, Box):
        metadata |= {"action_low": list(space.low), "action_high": list(space.high)}
    else:
        metadata["action_count"] = space.size
    return metadata


def _write_column(file: h5py.File, key: str, column: np.ndarray) -> None:
    """One compressed column; a chunk holds whole rows, so that rows can be read alone."""
    row_bytes = max(1, column.itemsize * int(np.prod(column.shape[1:])))
    rows = max(1, min(len(column), _CHUNK_BYTES // row_bytes))
    file.create_dataset(
        key,
        data=column,
        chunks=(rows, *column.shape[1:]),
        compression="gzip",
        shuffle=column.itemsize > 1,
    )


def _replace(path: Path, content: bytes) -> None:
    """Writes beside `path` and renames, so that the file is whole or as it was."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
            raise DiskError(f"the disk is full while writing {path}") from error
        raise DataError(f"cannot write {path}: {error.strerror or error}") from error
