"""Files written as a stream: bounded memory, whole or not there, continued after a kill."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest

from leeward.data.stream import Column, ColumnStream
from leeward.errors import DataError, DiskError
from memory import peak_of

COLUMNS = {"images": Column((84, 84), "uint8"), "infos/number": Column((), "int64")}


def images(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (rows, 84, 84), np.uint8)


@pytest.mark.parametrize("thread", [False, True])
@pytest.mark.parametrize("rows", [0, 5, 37, 100])
def test_what_is_appended_is_read_back(tmp_path: Path, rows: int, thread: bool) -> None:
    target = tmp_path / "new" / "file.hdf5"
    given = images(rows)
    with ColumnStream(target, COLUMNS, thread=thread) as stream:
        for begin in range(0, rows, 7):
            stream.append({"images": given[begin : begin + 7]})
            stream.append({"infos/number": np.arange(begin, min(begin + 7, rows))})
        assert stream.rows("images") == rows
        assert not target.exists()
        stream.finish({"note": "made by a test"})
    with h5py.File(target) as file:
        np.testing.assert_array_equal(file["images"][()], given)
        assert file["infos/number"][()].tolist() == list(range(rows))
        assert file["images"].compression == "gzip"
        assert file["metadata/note"][()] == b"made by a test"
    assert [entry.name for entry in target.parent.iterdir()] == ["file.hdf5"]


def test_a_stopped_stream_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    target = tmp_path / "file.hdf5"
    given = images(120)
    with ColumnStream(target, COLUMNS, fingerprint="one") as stream:
        assert stream.state == {}
        stream.append({"images": given[:50], "infos/number": np.arange(50)})
        stream.checkpoint({"done": 50})
        stream.append({"images": images(80, seed=1)})  # lost
    with ColumnStream(target, COLUMNS, fingerprint="one", thread=True) as stream:
        assert stream.state == {"done": 50}
        assert stream.rows("images") == 50
        stream.append({"images": given[50:], "infos/number": np.arange(50, 120)})
        stream.finish({})
    with h5py.File(target) as file:
        np.testing.assert_array_equal(file["images"][()], given)
        assert file["infos/number"][()].tolist() == list(range(120))


@pytest.mark.parametrize("change", ["fingerprint", "columns", "none", "damaged"])
def test_what_another_conversion_left_is_not_used(tmp_path: Path, change: str) -> None:
    target = tmp_path / "file.hdf5"
    with ColumnStream(target, COLUMNS, fingerprint="one") as stream:
        stream.append({"images": images(50)})
        stream.checkpoint({"done": 50})
    if change == "damaged":
        (tmp_path / ".file.hdf5.partial" / "journal.npz").write_bytes(b"PK\3\4")
    fingerprint = {"fingerprint": "two", "none": ""}.get(change, "one")
    columns = {"images": Column((84, 84), "int16")} if change == "columns" else COLUMNS
    with ColumnStream(target, columns, fingerprint=fingerprint) as stream:
        assert stream.state == {}
        assert stream.rows("images") == 0
        stream.append({"images": images(3)})
        stream.finish({})
    with h5py.File(target) as file:
        assert len(file["images"]) == 3


def test_one_process_writes_a_file(tmp_path: Path) -> None:
    target = tmp_path / "file.hdf5"
    with ColumnStream(target, COLUMNS):
        with pytest.raises(DataError) as error:
            ColumnStream(target, COLUMNS)
        assert str(error.value) == f"{target} is being written by another process"


def test_a_full_disk_is_told_and_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "file.hdf5"
    target.write_text("old")
    with ColumnStream(target, COLUMNS, fingerprint="one") as stream:
        stream.append({"images": images(3)})
        with monkeypatch.context() as patch:
            patch.setattr(
                "leeward.data.stream.shutil.disk_usage", lambda _: SimpleNamespace(free=1000)
            )
            with pytest.raises(DiskError) as error:
                stream.finish({})
            assert str(error.value) == f"the disk is full while writing {target}"
        assert target.read_text() == "old"

        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("leeward.data.stream.os.fsync", full)
        with pytest.raises(DiskError):
            stream.checkpoint({})


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot write"):
        ColumnStream(tmp_path / "file" / "set.hdf5", COLUMNS)


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    block = images(20)

    def write(blocks: int) -> None:
        with ColumnStream(tmp_path / f"{blocks}.hdf5", COLUMNS) as stream:
            for _ in range(blocks):
                stream.append({"images": block})
            stream.finish({})
        (tmp_path / f"{blocks}.hdf5").unlink()

    peaks = [min(peak_of(partial(write, blocks)) for _ in range(3)) for blocks in (10, 60)]
    assert peaks[1] < 1.2 * peaks[0]
    assert peaks[1] < 60 * block.nbytes / 4
