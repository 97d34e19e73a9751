"""Opening HDF5 files safely: whole files only, no data from other files, errors in one line."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from leeward.data.allocation import SMALL, allocate, blocks, on_disk
from leeward.data.hints import LONGEST_LIST, json_value
from leeward.errors import DataError

_LARGEST = 2**40
"""Bytes of one column where the machine does not tell its memory; ours: past any machine."""


@contextlib.contextmanager
def open_hdf5(path: Path) -> Iterator[h5py.File]:
    """Opens an HDF5 file to read.

    Raises:
        DataError: no HDF5 file, one cut short, or damaged data met while reading.
    """
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty (0 bytes): fetch or copy it again")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, RuntimeError) as error:
        reason = str(error).split("(", 1)[-1].rstrip(")")
        if "plugin" in reason:
            raise DataError(
                f"{path} is compressed in a way that this HDF5 cannot read: write it with gzip"
            ) from error
        raise DataError(
            f"{path} cannot be read as HDF5, it is cut short or damaged ({reason}): fetch or "
            "copy it again"
        ) from error


def read_column(file: h5py.File, key: str) -> np.ndarray:
    """One whole column in its stored type; a large one in a mapped file where these are asked for.

    Raises:
        DataError: no array, one larger than the memory, or one that lies in another file.
    """
    place = f"{file.filename}: '{key}'"
    elsewhere = DataError(f"{place} is kept in other files; store the values themselves")
    if isinstance(file.get(key, getlink=True), h5py.ExternalLink):
        raise elsewhere
    item = file.get(key)
    if not isinstance(item, h5py.Dataset):
        raise DataError(f"{place} is a group or a dangling link, not an array")
    if item.external or (
        item.is_virtual and any(source.file_name != "." for source in item.virtual_sources())
    ):
        raise elsewhere  # rows of a missing source file would read as zeros, without an error
    size = (item.size or 0) * item.dtype.itemsize
    if on_disk() and size >= SMALL:
        return _mapped(file, item)
    check_fits(place, size)
    if size < SMALL or item.dtype.kind not in "biuf":
        return np.asarray(item[()])
    column = allocate(item.shape, item.dtype)
    item.read_direct(column)
    return column


def _mapped(file: h5py.File, item: h5py.Dataset) -> np.ndarray:
    """A column in a mapped file: the HDF5 file itself where that holds it as one plain block."""
    offset = item.id.get_offset()
    usable = item.chunks is None and item.dtype.kind in "fiu" and item.dtype.isnative
    if usable and offset is not None and offset % item.dtype.itemsize == 0:
        return np.memmap(file.filename, item.dtype, "r", offset, item.shape)
    column = allocate(item.shape, item.dtype)
    for rows in blocks(column):
        item.read_direct(column, rows, rows)
    return column


def check_fits(what: str, size: int) -> None:
    """Raises DataError where `size` bytes cannot be held in this machine's memory."""
    largest = _LARGEST
    if hasattr(os, "sysconf"):  # not on Windows
        largest = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > largest:
        raise DataError(
            f"{what} says it holds {size / 1024**3:.0f} GiB, this machine has "
            f"{largest / 1024**3:.0f} GiB of memory"
        )


def read_metadata(file: h5py.File) -> dict[str, Any]:
    """The file's attributes and what lies under `metadata/`, as far as JSON can hold it.

    Short arrays become lists; arrays of more than 64 values (such as policy weights) are left.
    """
    found = {key: json_value(value) for key, value in file.attrs.items()}
    group = file.get("metadata")
    if isinstance(group, h5py.Group):

        def visit(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset) and (item.size or 0) <= LONGEST_LIST:
                found[name] = json_value(item[()])

        group.visititems(visit)
    return {key: value for key, value in found.items() if value is not None}
