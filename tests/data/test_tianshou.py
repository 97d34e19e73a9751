"""Buffers as Tianshou's `save_hdf5` writes them; pickles in them are never loaded."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from leeward.data.load import load_dataset
from leeward.errors import DataError
from leeward.types import Discrete


class Bomb:
    """An object whose pickle makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (str(self.path), "w")


def save(path: Path, meta: dict[str, Any], *, size: int, last: Any, **attributes: Any) -> Path:
    """A file in that layout; objects are pickled, as there."""
    with h5py.File(path, "w") as file:
        for key, value in {"maxsize": size, "_size": size, "stack_num": 1, **attributes}.items():
            if isinstance(value, np.ndarray | list):
                put(file, key, value)
            else:
                file.attrs[key] = value
        put(file, "last_index", np.atleast_1d(last))
        put(file, "_indices", np.arange(size))
        group = file.create_group("_meta")
        group.attrs["__data_type__"] = "Batch"
        for key, value in meta.items():
            if isinstance(value, dict):
                group.create_group(key).attrs["__data_type__"] = "Batch"
            else:
                put(group, key, value)
    return path


def put(group: h5py.Group, key: str, value: Any) -> None:
    if not isinstance(value, np.ndarray):
        kind, value = type(value).__name__, np.frombuffer(pickle.dumps(value), np.uint8)
    else:
        kind = "ndarray"
    group[key] = value
    group[key].attrs["__data_type__"] = kind


def columns(rows: int = 12) -> dict[str, Any]:
    """Steps 0, 1, … whose observation is their number; the task ends at 4, a limit at 8."""
    return {
        "obs": np.arange(rows, dtype=np.float32)[:, None],
        "act": np.arange(rows) % 3,
        "rew": np.arange(rows, dtype=np.float64),
        "terminated": np.arange(rows) == 4,
        "truncated": np.arange(rows) == 8,
        "done": np.isin(np.arange(rows), (4, 8)),
        "info": {},
    }


def test_a_buffer_is_read_from_its_oldest_row(tmp_path: Path) -> None:
    meta = columns()
    turned = {
        k: v if isinstance(v, dict) else np.roll(v, 5, axis=0) for k, v in meta.items()
    }  # newest at 4
    dataset = load_dataset(save(tmp_path / "buffer.hdf5", turned, size=12, last=4))
    assert dataset.observation[:, 0].tolist() == list(range(12))
    assert dataset.start.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 9, 10]
    assert np.flatnonzero(dataset.termination).tolist() == [4]
    assert np.flatnonzero(dataset.truncation).tolist() == [8, 11]
    assert dataset.action_space == Discrete(3)
    assert "notes" not in dataset.metadata


def test_a_buffer_that_is_not_full_is_read_as_far_as_it_is(tmp_path: Path) -> None:
    path = save(tmp_path / "buffer.hdf5", columns(), size=12, last=6, _size=7)
    assert load_dataset(path).observation[:, 0].tolist() == list(range(7))


def test_stored_next_observations_are_used(tmp_path: Path) -> None:
    meta = columns() | {"obs_next": np.arange(1, 13, dtype=np.float32)[:, None]}
    dataset = load_dataset(save(tmp_path / "buffer.hdf5", meta, size=12, last=11))
    assert dataset.transitions == 12
    assert dataset.next_rows_chain()


def test_several_buffers_end_to_end(tmp_path: Path) -> None:
    path = save(
        tmp_path / "buffer.hdf5",
        columns(),
        size=12,
        last=np.array([1, 6]),
        _offset=np.array([0, 6]),
        _lengths=np.array([6, 1]),
        buffers=[1, 2],
    )
    dataset = load_dataset(path)
    assert dataset.observation[:, 0].tolist() == [2, 3, 4, 5, 0, 1, 6]
    assert dataset.metadata["notes"][0] == (
        "skipped in buffer.hdf5, as they are no plain arrays: buffers (pickled objects are never "
        "loaded)"
    )


def test_pickles_are_named_and_never_loaded(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    meta = columns() | {"policy": Bomb(trap)}
    dataset = load_dataset(save(tmp_path / "buffer.hdf5", meta, size=12, last=11))
    assert dataset.transitions == 10
    assert "_meta/policy" in dataset.metadata["notes"][0]
    meta["rew"] = Bomb(trap)
    path = save(tmp_path / "other.hdf5", meta, size=12, last=11)
    with pytest.raises(DataError) as error:
        load_dataset(path)
    assert str(error.value) == (
        f"{path} is a Tianshou buffer without a plain array 'rew': it holds act, done, info, obs, "
        "policy, rew, terminated, truncated"
    )
    assert not trap.exists()


def test_done_alone_is_taken_for_the_task_s_end(tmp_path: Path) -> None:
    meta = {k: v for k, v in columns().items() if k not in ("terminated", "truncated")}
    dataset = load_dataset(save(tmp_path / "buffer.hdf5", meta, size=12, last=11))
    assert np.flatnonzero(dataset.termination).tolist() == [4, 8]
    assert dataset.metadata["notes"] == [
        "the buffer has 'done' alone, which may hold time limits too: ends are taken for the task's"
    ]


def test_single_frames_are_stacked_as_the_buffer_did(tmp_path: Path) -> None:
    meta = columns() | {"obs": np.zeros((12, 84, 84), np.uint8)}
    path = save(tmp_path / "buffer.hdf5", meta, size=12, last=11, stack_num=4)
    dataset = load_dataset(path)
    assert dataset.frame_stack == 4
    assert dataset.spec.observation_shape == (4, 84, 84)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        (
            {"last": np.array([3, 4])},
            "is a Tianshou buffer whose bookkeeping (last_index, _offset, _lengths) does not fit "
            "its 12 rows: save it again",
        ),
        (
            {"last": 40},
            "is a Tianshou buffer whose bookkeeping (last_index, _offset, _lengths) does not fit "
            "its 12 rows: save it again",
        ),
        ({"last": 0, "_size": 0}, "is an empty Tianshou buffer"),
    ],
)
def test_broken_bookkeeping_is_refused(
    tmp_path: Path, attributes: dict[str, Any], text: str
) -> None:
    path = save(tmp_path / "buffer.hdf5", columns(), size=12, **attributes)
    with pytest.raises(DataError) as error:
        load_dataset(path)
    assert str(error.value) == f"{path} {text}"


def test_the_qlearning_reading_is_not_for_buffers(tmp_path: Path) -> None:
    path = save(tmp_path / "buffer.hdf5", columns(), size=12, last=11)
    with pytest.raises(DataError) as error:
        load_dataset(path, d4rl_rows="qlearning")
    assert str(error.value) == f"{path} has Tianshou's layout: --d4rl-rows does not apply"
