"""Where large arrays lie while data is read: in memory, or in files of a folder, mapped.

Readers ask here for their columns, so that data larger than memory passes through the same code,
block by block, into memory-mapped files.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np

from leeward.data.stream import disk_errors
from leeward.errors import DiskError

BLOCK_BYTES = 2**24
"""Bytes that a pass over a large array takes at once; ours: past any row, far below any memory."""

SMALL = 2**20
"""Bytes up to which an array is kept in memory all the same, wherever that begins; ours."""

ALIGNMENT = 64
"""Memory that begins at a multiple of so many bytes is used as it is by JAX on CPU, which copies
other arrays: all rows would be there twice."""

_FOLDER: ContextVar[Path | None] = ContextVar("folder", default=None)


@contextlib.contextmanager
def in_folder(folder: Path) -> Iterator[None]:
    """Large arrays that are allocated inside lie in files of `folder`, which is there already."""
    token = _FOLDER.set(folder)
    try:
        yield
    finally:
        _FOLDER.reset(token)


def on_disk() -> bool:
    """Whether large arrays are to lie in files."""
    return _FOLDER.get() is not None


def allocate(shape: tuple[int, ...], dtype: np.dtype | type) -> np.ndarray:
    """An array of zeros, in memory or, where `in_folder` says so, in a mapped file.

    Raises:
        DataError: the folder cannot be written.
        DiskError: the disk has no room for it.
    """
    folder, dtype = _FOLDER.get(), np.dtype(dtype)
    size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    if size < SMALL or dtype.hasobject:
        return np.zeros(shape, dtype)
    if folder is None:
        room = np.zeros(size + ALIGNMENT, np.uint8)
        begin = -room.ctypes.data % ALIGNMENT
        return room[begin : begin + size].view(dtype).reshape(shape)
    with disk_errors(folder):
        check_room(folder, size)
        path = next(
            path
            for number in itertools.count()
            if not (path := folder / f"column-{number}.npy").exists()
        )
        array = np.lib.format.open_memmap(path, "w+", dtype, shape)
        if hasattr(os, "posix_fallocate"):  # not on macOS
            # A disk that fills up under a mapping kills the process, so all room is taken now.
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def check_room(folder: Path, size: int) -> None:
    """Raises DiskError where `size` bytes do not fit on the folder's disk."""
    free = shutil.disk_usage(folder).free
    if free < size:
        raise DiskError(
            f"the disk of {folder.parent} has {free / 2**30:.1f} GiB left, too little for the rows "
            f"as plain files ({size / 2**30:.1f} GiB more): make room, or let LEEWARD_CACHE name a "
            "folder on another disk"
        )


def as_type(array: np.ndarray, dtype: np.dtype | type) -> np.ndarray:
    """`array` as one block of memory or file with this type; not copied where it is that."""
    if not on_disk() or (array.dtype == dtype and array.flags.c_contiguous):
        return np.ascontiguousarray(array, dtype)
    result = allocate(array.shape, dtype)
    for rows in blocks(array):
        result[rows] = array[rows]
    return result


def blocks(array: np.ndarray) -> Iterator[slice]:
    """Slices of whole rows, of about `BLOCK_BYTES` each, that make up the array."""
    row_bytes = max(1, array.nbytes // max(1, len(array)))
    step = max(1, BLOCK_BYTES // row_bytes)
    for begin in range(0, len(array), step):
        yield slice(begin, min(begin + step, len(array)))


def mapped_file(array: np.ndarray) -> tuple[Path, int] | None:
    """(file, offset of the first byte) of an array that is one block of a mapped file, or None."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        outermost = not isinstance(owner.base, np.memmap)
        if isinstance(owner, np.memmap) and outermost and owner.filename is not None:
            if not array.flags.c_contiguous:
                return None
            begin = array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
            return Path(owner.filename), owner.offset + begin
        owner = owner.base
    return None
