"""HDF5 files, told apart by what they hold: D4RL's layout, the row layout, other libraries'."""

from __future__ import annotations

from pathlib import Path

from leeward.data.d3rlpy import is_d3rlpy, read_d3rlpy
from leeward.data.d4rl import Rows, read_d4rl
from leeward.data.dataset import Dataset
from leeward.data.hdf5 import open_hdf5, read_metadata
from leeward.data.hints import Hints
from leeward.data.row_file import is_row_file, read_row_file
from leeward.data.tianshou import is_tianshou, read_tianshou
from leeward.errors import DataError


def read_hdf5(path: Path, *, rows: Rows | None, hints: Hints) -> Dataset:
    """The data set in an HDF5 file of any known layout.

    Args:
        path: the file.
        rows: the reading of D4RL's layout; default "all".
        hints: what the caller knows of the data.

    Raises:
        DataError: a file that cannot be read, lacks a column, or does not fit together; a reading
            asked of a file that has another layout.
    """
    with open_hdf5(path) as file:
        keys = list(file.keys())
        if is_row_file(keys):
            _refuse(path, rows, "the row layout")
            return read_row_file(path, file, read_metadata(file), hints, [])
        if is_tianshou(file):
            _refuse(path, rows, "Tianshou's layout")
            return read_tianshou(path, file, hints)
        if is_d3rlpy(keys):
            _refuse(path, rows, "d3rlpy's layout")
            return read_d3rlpy(path, file, hints)
    return read_d4rl(path, rows=rows or "all", hints=hints)


def _refuse(path: Path, rows: Rows | None, layout: str) -> None:
    if rows is not None:
        raise DataError(f"{path} has {layout}: --d4rl-rows does not apply")
