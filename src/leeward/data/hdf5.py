"""Opening HDF5 files safely: whole files only, no data from other files, errors in one line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from leeward.data.hints import LONGEST_LIST, json_value
from leeward.errors import DataError

LARGEST_COLUMN = 256 * 1024**3
"""Bytes of one column; ours: past any machine this runs on, so a header that claims more lies."""


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
        raise DataError(
            f"{path} cannot be read as HDF5, it is cut short or damaged ({reason}): fetch or "
            "copy it again"
        ) from error


def read_column(file: h5py.File, key: str) -> np.ndarray:
    """One whole column in its stored type.

    Raises:
        DataError: a group, a column larger than any memory, or one that lies in another file.
    """
    item = file[key]
    if not isinstance(item, h5py.Dataset):
        raise DataError(f"{file.filename}: '{key}' is a group, not an array")
    if item.is_virtual and any(source.file_name != "." for source in item.virtual_sources()):
        # Rows of a missing source file would read as zeros without an error.
        raise DataError(
            f"{file.filename}: '{key}' is kept in other files; store the values themselves"
        )
    if item.external:
        raise DataError(
            f"{file.filename}: '{key}' is kept in other files; store the values themselves"
        )
    if item.size is None or item.size * item.dtype.itemsize > LARGEST_COLUMN:
        raise DataError(f"{file.filename}: '{key}' has an impossible size ({item.shape})")
    return np.asarray(item[()])


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
