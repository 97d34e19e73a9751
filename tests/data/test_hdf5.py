"""HDF5 files that are cut, damaged, empty, or not all there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from leeward.data.d4rl import read_d4rl
from leeward.errors import DataError

Write = Callable[..., Path]


def arrays(rows: int) -> dict[str, np.ndarray]:
    """Random columns in D4RL's names, with a termination at row 2."""
    generator = np.random.default_rng(0)
    return {
        "observations": generator.normal(size=(rows, 3)).astype(np.float32),
        "actions": generator.uniform(-1, 1, size=(rows, 2)).astype(np.float32),
        "rewards": generator.normal(size=rows).astype(np.float32),
        "terminals": np.arange(rows) == 2,
    }


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def _write(columns: dict[str, Any]) -> Path:
        path = tmp_path / "data.hdf5"
        with h5py.File(path, "w") as file:
            for key, value in columns.items():
                file.create_dataset(key, data=value)
        return path

    return _write


def test_virtual_columns_inside_the_file_are_read_and_others_refused(
    write: Write, tmp_path: Path
) -> None:
    columns = arrays(6)
    path = write(columns)
    layout = h5py.VirtualLayout(shape=(6, 3), dtype=np.float32)
    layout[:5] = h5py.VirtualSource(".", "observations", shape=(6, 3))[1:]
    layout[5:] = h5py.VirtualSource(".", "observations", shape=(6, 3))[:1]
    with h5py.File(path, "a") as file:
        file.create_virtual_dataset("next_observations", layout)
    dataset = read_d4rl(path)
    assert dataset.transitions == 6
    elsewhere = h5py.VirtualLayout(shape=(6, 3), dtype=np.float32)
    elsewhere[:] = h5py.VirtualSource(tmp_path / "gone.hdf5", "observations", shape=(6, 3))
    with h5py.File(path, "a") as file:
        del file["next_observations"]
        file.create_virtual_dataset("next_observations", elsewhere)
    with pytest.raises(DataError) as error:
        read_d4rl(path)
    assert str(error.value) == (
        f"{path}: 'next_observations' is kept in other files; store the values themselves"
    )


def test_broken_files_give_one_line(write: Write, tmp_path: Path) -> None:
    path = write(arrays(1000))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"is cut short or damaged \(.*truncated file.*\): fetch"):
        read_d4rl(path)
    path.write_bytes(b"no HDF5 at all" * 100)
    with pytest.raises(DataError, match=r"cannot be read as HDF5, .*file signature not found"):
        read_d4rl(path)
    path.write_bytes(b"")
    with pytest.raises(DataError) as error:
        read_d4rl(path)
    assert str(error.value) == f"{path} is empty (0 bytes): fetch or copy it again"


def test_damaged_chunk_gives_one_line(tmp_path: Path) -> None:
    path = tmp_path / "data.hdf5"
    columns = arrays(1000)
    with h5py.File(path, "w") as file:
        for key, value in columns.items():
            file.create_dataset(key, data=value, compression="gzip")
        chunk = file["observations"].id.get_chunk_info(0)
    content = bytearray(path.read_bytes())
    content[chunk.byte_offset + 20 : chunk.byte_offset + 60] = bytes(40)
    path.write_bytes(content)
    with pytest.raises(DataError, match="cannot be read as HDF5, it is cut short or damaged"):
        read_d4rl(path)


def test_empty_columns_and_groups_are_refused(write: Write) -> None:
    path = write(arrays(0))
    with pytest.raises(DataError) as error:
        read_d4rl(path)
    assert str(error.value) == f"{path} is empty: 'terminals' has no row"
    columns = arrays(4)
    del columns["actions"]
    with h5py.File(path, "w") as file:
        for key, value in columns.items():
            file[key] = value
        file.create_group("actions")
    with pytest.raises(DataError) as error:
        read_d4rl(path)
    assert str(error.value) == f"{path}: 'actions' is a group or a dangling link, not an array"


def test_links_to_other_files_and_impossible_sizes_are_refused(
    write: Write, tmp_path: Path
) -> None:
    columns = arrays(4)
    del columns["actions"]
    path = write(columns)
    with h5py.File(path, "a") as file:
        file["actions"] = h5py.ExternalLink(tmp_path / "gone.hdf5", "actions")
    with pytest.raises(DataError) as error:
        read_d4rl(path)
    assert str(error.value) == (
        f"{path}: 'actions' is kept in other files; store the values themselves"
    )
    with h5py.File(path, "a") as file:
        del file["actions"]
        file.create_dataset("actions", shape=(2**45, 2), dtype=np.float32, chunks=(1024, 2))
    with pytest.raises(DataError, match=r"'actions' says it holds 262144 GiB, this machine has"):
        read_d4rl(path)
