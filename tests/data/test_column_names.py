"""What columns are called: kept from a table through every file that is written."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from leeward.data.convert import FileLayout, write_file
from leeward.data.dataset import Dataset
from leeward.data.load import load_dataset
from leeward.data.table_columns import TableColumns

LONG = {
    "observation_names": [f"sensor number {i}, °C" for i in range(80)],
    "action_names": ["valve"],
}


def named() -> Dataset:
    """Data of 80 sensors and a valve."""
    draw = np.random.default_rng(0)
    return Dataset.from_arrays(
        draw.normal(size=(12, 80)),
        draw.uniform(-1, 1, size=(12, 1)),
        np.zeros(12),
        np.arange(12) % 6 == 5,
        metadata=LONG,
    )


@pytest.mark.parametrize(
    ("name", "layout"), [("a.hdf5", None), ("a.hdf5", "rows"), ("a.hdf5", "d4rl"), ("a.npz", None)]
)
def test_names_are_read_back(name: str, layout: FileLayout | None, tmp_path: Path) -> None:
    write_file(tmp_path / name, named(), layout)
    again = load_dataset(tmp_path / name)
    assert {key: again.metadata[key] for key in LONG} == LONG
    write_file(tmp_path / "again.npz", again)
    assert load_dataset(tmp_path / "again.npz").metadata["observation_names"][79] == (
        "sensor number 79, °C"
    )


def test_names_of_a_table_are_its_columns_and_the_places_in_its_lists(tmp_path: Path) -> None:
    table = pa.table(
        {
            "level": [0.0, 1.0, 2.0],
            "speeds": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
            "action": [0.5, 0.25, 1.0],
            "reward": [1.0, 2.0, 3.0],
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "log.parquet")
    columns = TableColumns(observation=["speeds", "level"])
    metadata = load_dataset(tmp_path / "log.parquet", columns=columns).metadata
    assert metadata["observation_names"] == ["speeds[0]", "speeds[1]", "level"]
    assert metadata["action_names"] == ["action"]


@pytest.mark.parametrize("text", ["level", "[1, 2]", "{}"])
def test_what_is_no_list_of_names_is_left(text: str, tmp_path: Path) -> None:
    write_file(tmp_path / "a.hdf5", named())
    with h5py.File(tmp_path / "a.hdf5", "a") as file:
        del file["metadata/observation_names"]
        file["metadata/observation_names"] = text
    metadata = load_dataset(tmp_path / "a.hdf5").metadata
    assert "observation_names" not in metadata
    assert metadata["action_names"] == ["valve"]
