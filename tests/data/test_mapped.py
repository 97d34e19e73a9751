"""Data sets as mapped files: the same data, made once, found again, never half-made."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from leeward.data.allocation import mapped_file
from leeward.data.dataset import Dataset
from leeward.data.load import load_dataset
from leeward.data.mapped import is_on_disk, leading_part, mapped
from leeward.errors import DataError, DiskError

COLUMNS = ("observation", "action", "reward", "termination", "truncation", "start", "recorded")


@pytest.fixture(autouse=True)
def _nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even the smallest arrays lie in files, in several blocks."""
    for module in ("allocation", "hdf5", "npz"):
        monkeypatch.setattr(f"leeward.data.{module}.SMALL", 1)
    monkeypatch.setattr("leeward.data.allocation.BLOCK_BYTES", 100)


def write(path: Path, *, plain: bool = False, stored_next: bool = False) -> Path:
    """30 steps in three episodes, in HDF5 or npz."""
    generator = np.random.default_rng(0)
    observation = generator.normal(size=(30, 3)).astype(np.float32)
    columns = {
        "observations": observation,
        "actions": generator.uniform(-1, 1, (30, 2)).astype(np.float32),
        "rewards": generator.normal(size=30).astype(np.float32),
        "terminals": np.arange(30) == 9,
        "timeouts": np.isin(np.arange(30), (19, 29)),
    }
    if stored_next:
        following = np.roll(observation, -1, axis=0)
        following[[9, 19, 29]] = 7.0
        columns["next_observations"] = following
    if path.suffix == ".npz":
        np.savez_compressed(path, allow_pickle=False, **columns)
        return path
    with h5py.File(path, "w") as file:
        for key, column in columns.items():
            file.create_dataset(key, data=column, chunks=None if plain else (7, *column.shape[1:]))
    return path


def on_disk(path: Path, **options: Any) -> Dataset:
    return mapped(path, options, lambda: load_dataset(path, **options))


def assert_same(one: Dataset, other: Dataset) -> None:
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
        assert getattr(one, name).dtype == getattr(other, name).dtype
    assert one.content_hash() == other.content_hash()
    assert one.spec == other.spec
    assert one.metadata == other.metadata


@pytest.mark.parametrize(
    ("file", "options"),
    [
        ("rows.hdf5", {"plain": True}),
        ("rows.hdf5", {}),
        ("rows.hdf5", {"stored_next": True}),
        ("rows.npz", {"stored_next": True}),
    ],
)
def test_every_column_is_that_of_data_in_memory(
    tmp_path: Path, file: str, options: dict[str, bool]
) -> None:
    path = write(tmp_path / file, **options)
    data = on_disk(path)
    assert is_on_disk(data)
    assert_same(data, load_dataset(path))
    again = mapped(path, {}, lambda: pytest.fail("the files are there"))
    assert_same(again, data)


def test_plain_columns_stay_in_their_file(tmp_path: Path, cache: Path) -> None:
    path = write(tmp_path / "rows.hdf5", plain=True)
    data = on_disk(path)
    found = mapped_file(data.observation)
    assert found is not None
    assert found[0] == path
    (folder,) = (cache / "mapped").glob("rows-*/")
    assert not list(folder.glob("observation*"))
    assert not list(folder.glob("column-*"))


def test_what_was_needed_on_the_way_is_removed(tmp_path: Path, cache: Path) -> None:
    on_disk(write(tmp_path / "rows.hdf5", stored_next=True))
    (folder,) = (cache / "mapped").glob("rows-*/")
    size = sum(file.stat().st_size for file in folder.glob("column-*"))
    assert 33 * 3 * 4 <= size < 1.5 * 33 * (3 + 2) * 4 + 6 * 128  # headers are 128 bytes


def test_a_changed_source_is_read_anew(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.hdf5")
    first = on_disk(path)
    with h5py.File(path, "r+") as file:
        rewards = file["rewards"]
        assert isinstance(rewards, h5py.Dataset)
        rewards[0] = 5.0
    os.utime(path, ns=(0, 0))
    assert on_disk(path).reward[0] == 5.0
    assert first.reward[0] != 5.0
    assert on_disk(path, max_episode_steps=5).metadata["name"] == "rows"  # a folder of its own


def test_files_cut_short_are_made_anew(tmp_path: Path, cache: Path) -> None:
    path = write(tmp_path / "rows.hdf5")
    on_disk(path)
    largest = max((cache / "mapped").glob("rows-*/*.npy"), key=lambda file: file.stat().st_size)
    os.truncate(largest, 150)
    assert_same(on_disk(path), load_dataset(path))


def test_a_source_cut_short_is_one_clear_line(tmp_path: Path, cache: Path) -> None:
    path = write(tmp_path / "rows.hdf5")
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(DataError, match=r"rows\.hdf5 cannot be read as HDF5, it is cut short"):
        on_disk(path)
    assert not list((cache / "mapped").glob("rows-*/"))
    assert not list((cache / "mapped").glob(".*partial"))


def test_a_full_disk_is_one_clear_line(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "rows.hdf5")
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 20}))
    with pytest.raises(DiskError) as error:
        on_disk(path)
    assert str(error.value) == (
        f"the disk of {cache / 'mapped'} has 0.0 GiB left, too little for the rows as plain files "
        "(0.0 GiB more): make room, or let LEEWARD_CACHE name a folder on another disk"
    )
    assert not list((cache / "mapped").glob(".*partial"))


def test_a_cache_that_cannot_be_written_is_one_clear_line(tmp_path: Path, cache: Path) -> None:
    path = write(tmp_path / "rows.hdf5")
    cache.write_text("no folder")
    with pytest.raises(DataError) as error:
        on_disk(path)
    assert str(error.value) == f"cannot write {cache / 'mapped'}: Not a directory"


def test_the_leading_part_has_whole_episodes(tmp_path: Path) -> None:
    data = load_dataset(write(tmp_path / "rows.hdf5", stored_next=True))
    part = leading_part(data, 25 * 12)  # two episodes of ten steps and a last observation each
    assert (part.episodes, len(part.reward), part.transitions) == (2, 22, 20)
    np.testing.assert_array_equal(part.observation, data.observation[:22])
    cut = leading_part(data, 5 * 12)
    assert (cut.episodes, len(cut.reward), cut.transitions) == (1, 5, 4)
    assert leading_part(data, 10**6) is data
