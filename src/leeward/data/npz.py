"""NumPy archives: one array a column, named as in D4RL files or in the singular."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from leeward.data.allocation import SMALL, allocate, blocks, on_disk
from leeward.data.dataset import Dataset
from leeward.data.fields import FIELDS, find_field, required_fields
from leeward.data.hdf5 import check_fits
from leeward.data.hints import NAMES, Hints, assemble, json_value, truncation_by_limit
from leeward.errors import DataError


def read_npz(path: Path, *, hints: Hints | None = None) -> Dataset:
    """The data set in an .npz file.

    Args:
        path: arrays observations, actions, rewards, terminals, and perhaps timeouts and
            next_observations (or observation, action, …, termination, truncation). Short arrays
            and texts under other names are kept as metadata.
        hints: what the caller knows of the data. Without bounds, actions span the data's range.

    Raises:
        DataError: a file that cannot be read, lacks a column, or does not fit together.
    """
    hints = hints or Hints()
    notes: list[str] = []
    with open_npz(path) as archive:
        keys = list(archive.keys())
        columns: dict[str, np.ndarray | None] = {
            field: read_member(archive, key) for field, key in required_fields(path, keys).items()
        }
        for field in ("truncation", "next_observation"):
            key = find_field(field, keys)
            columns[field] = read_member(archive, key) if key else None
        in_file = short_values(archive)
    if columns["truncation"] is None and columns["termination"] is not None:
        columns["truncation"], _ = truncation_by_limit(
            columns["termination"], in_file, hints, notes
        )
    return assemble(path, columns, in_file, hints, notes=notes)


@contextlib.contextmanager
def open_npz(path: Path) -> Iterator[Any]:
    """Opens an .npz file to read plain arrays; Python objects are never loaded.

    Raises:
        DataError: no .npz file, a damaged one, one with objects, or one that claims to unpack to
            more than any memory.
    """
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty (0 bytes): fetch or copy it again")
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        check_fits(str(path), unpacked)
        with np.load(path, allow_pickle=False) as archive:
            yield archive
    except (zipfile.BadZipFile, EOFError, OSError) as error:
        raise DataError(
            f"{path} cannot be read as .npz, it is cut short or damaged ({error}): fetch or copy "
            "it again"
        ) from error
    except ValueError as error:
        if "allow_pickle" in str(error):
            raise DataError(
                f"{path} holds Python objects, which are never loaded: save plain arrays"
            ) from error
        raise DataError(f"{path} cannot be read as .npz: {error}") from error


def read_member(archive: Any, key: str) -> np.ndarray:
    """One array; a large one in a mapped file where these are asked for (see allocation)."""
    member = archive.zip.NameToInfo.get(f"{key}.npy")
    if not on_disk() or member is None or member.file_size < SMALL:
        return archive[key]
    with archive.zip.open(member) as content:
        version = np.lib.format.read_magic(content)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read_header is None:  # version 3 is for names of fields, which no column has
            return archive[key]
        shape, in_columns, dtype = read_header(content)
        if in_columns or dtype.hasobject:
            return archive[key]
        column = allocate(shape, dtype)
        for rows in blocks(column):
            part = column[rows]
            read = content.read(part.nbytes)
            if len(read) < part.nbytes:
                raise EOFError(f"{key} ends early")
            column[rows] = np.frombuffer(read, dtype).reshape(part.shape)
    return column


def short_values(archive: Any) -> dict[str, Any]:
    """Texts, numbers and short arrays that are no columns, as JSON values."""
    columns = {name for names in FIELDS.values() for name in names}
    found = {}
    for key in archive:
        if key not in columns and _member_is_short(archive, key):
            found[key] = json_value(archive[key])
    return {key: value for key, value in found.items() if value is not None}


def _member_is_short(archive: Any, key: str) -> bool:
    """Whether an array is small enough to be metadata, told without unpacking it."""
    member = archive.zip.NameToInfo.get(f"{key}.npy")
    largest = 2**20 if key in NAMES else 4096  # 64 values and a header
    return member is not None and member.file_size < largest
