"""Data sets whose large columns stay on disk, as plain files that are mapped into memory.

A source is turned into such files once, block by block, and found again by its path, size, time of
change and the options of reading it. Columns that a source itself holds as plain blocks (HDF5
without chunks and compression, in the type that training uses) are mapped where they are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import filelock
import numpy as np

from leeward.data.allocation import blocks, check_room, in_folder, mapped_file
from leeward.data.dataset import Dataset
from leeward.data.download import cache_folder
from leeward.data.stream import disk_errors
from leeward.errors import DataError
from leeward.types import Box, Discrete

FORMAT = 1
"""Version of the files; others are made again."""

INSPECTED_BYTES = 2**25
"""Bytes of observations that the data doctor looks at: its checks need several times as much."""

_COLUMNS = (
    "observation",
    "action",
    "reward",
    "termination",
    "truncation",
    "start",
    "episode_start",
    "recorded",
    "next_observation",
)
_DESCRIPTION = "dataset.json"


def mapped(path: Path, options: Mapping[str, Any], read: Callable[[], Dataset]) -> Dataset:
    """The data set of a file or folder with its large columns on disk.

    Args:
        path: where the data is.
        options: everything else that decides what is read.
        read: reads it; large columns that come from `data.allocation` lie in files at once.

    Raises:
        DataError: the data cannot be read, or the cache folder cannot be written.
        DiskError: the disk is full.
    """
    parent = cache_folder() / "mapped"
    stamp = json.dumps([FORMAT, _stamps(path), options], default=str, sort_keys=True)
    name = f"{path.stem}-{hashlib.sha256(stamp.encode()).hexdigest()[:16]}"
    with disk_errors(parent):
        parent.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(parent / f"{name}.lock")
        lock.acquire()
    try:
        return _open(parent / name) or _make(parent / name, read)
    finally:
        lock.release()


def is_on_disk(dataset: Dataset) -> bool:
    """Whether the observations are mapped."""
    return mapped_file(dataset.observation) is not None


def leading_part(dataset: Dataset, size: int) -> Dataset:
    """The first episodes whose observations take up to `size` bytes, at least one step of one.

    The data set itself where it is no larger.
    """
    row_bytes = dataset.observation.nbytes // len(dataset.observation)
    rows = max(2, size // max(1, row_bytes))
    if rows >= len(dataset.reward):
        return dataset
    whole = int(np.searchsorted(dataset.episode_start, rows, "right")) - 1
    if whole > 0:  # else not even the first episode is that short, and it is cut
        rows = int(dataset.episode_start[whole])
    start = dataset.start[: int(np.searchsorted(dataset.start, rows))]
    if dataset.next_observation is None:
        start = start[(start + 1 < rows) | dataset.termination[start]]
    following = dataset.next_observation
    return dataclasses.replace(
        dataset,
        **{
            column: np.asarray(getattr(dataset, column)[:rows])
            for column in (*_COLUMNS[:5], "recorded")
        },
        start=start,
        episode_start=dataset.episode_start[dataset.episode_start < rows],
        next_observation=None if following is None else np.asarray(following[: len(start)]),
    )


def _stamps(path: Path) -> list[tuple[str, int, int]]:
    """(path, bytes, time of change) of the file, or of every file in the folder."""
    path = path.absolute()
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return [(str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in files]


def _make(folder: Path, read: Callable[[], Dataset]) -> Dataset:
    """Reads the data into a new folder, which is whole or not there."""
    temporary = folder.with_name(f".{folder.name}.partial")
    with disk_errors(folder):
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
        temporary.mkdir()
    with _removed_on_error(temporary):
        with in_folder(temporary):
            dataset = read()
        with disk_errors(folder):
            _store(dataset, temporary)
            temporary.rename(folder)
    stored = _open(folder)
    if stored is None:
        raise DataError(f"{folder} was changed while it was made: start again")
    return stored


@contextlib.contextmanager
def _removed_on_error(folder: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _store(dataset: Dataset, folder: Path) -> None:
    """Makes every column a file of `folder`, or of the source, and describes them."""
    columns = {}
    for name in _COLUMNS:
        array = getattr(dataset, name)
        if array is not None:
            columns[name] = _place(array, folder) or _written(array, folder / f"{name}.npy")
    used = {column["file"] for column in columns.values()}
    for path in folder.iterdir():
        if path.name not in used:
            path.unlink()  # what was only needed on the way
            continue
        with path.open("rb") as file:
            os.fsync(file.fileno())
    space = dataset.action_space
    kind = "box" if isinstance(space, Box) else "discrete"
    description = {
        "columns": columns,
        "action_space": {"kind": kind, **space._asdict()},
        "metadata": dict(dataset.metadata),
    }
    (folder / _DESCRIPTION).write_text(json.dumps(description))


def _place(array: np.ndarray, folder: Path) -> dict[str, Any] | None:
    """Where an array lies in a file as one plain block, or None where it does not."""
    found = mapped_file(array)
    if found is None:
        return None
    file, offset = found
    own = file.parent == folder.resolve()
    return _described(array, file.name if own else str(file.absolute()), offset)


def _written(array: np.ndarray, path: Path) -> dict[str, Any]:
    """Writes an array into a file of its own, block by block."""
    check_room(path.parent, array.nbytes)
    with path.open("wb") as file:
        for rows in blocks(array):
            file.write(np.ascontiguousarray(array[rows]).data)
    return _described(array, path.name, 0)


def _described(array: np.ndarray, file: str, offset: int) -> dict[str, Any]:
    shape = list(array.shape)
    return {"file": file, "offset": offset, "shape": shape, "dtype": str(array.dtype)}


def _open(folder: Path) -> Dataset | None:
    """The data set of a finished folder; None where there is none, or a file of it is cut short."""
    try:
        description = json.loads((folder / _DESCRIPTION).read_text())
        columns = {}
        for name, column in description["columns"].items():
            dtype, shape = np.dtype(column["dtype"]), tuple(column["shape"])
            if 0 in shape:
                columns[name] = np.zeros(shape, dtype)
                continue
            # Raises ValueError where the file is shorter than that.
            array = np.memmap(folder / column["file"], dtype, "r", column["offset"], shape)
            columns[name] = np.asarray(array)
    except (OSError, ValueError, KeyError):
        return None
    space = description["action_space"]
    if space.pop("kind") == "box":
        action_space = Box(tuple(space["low"]), tuple(space["high"]))
    else:
        action_space = Discrete(space["size"])
    return Dataset(**columns, action_space=action_space, metadata=description["metadata"])
