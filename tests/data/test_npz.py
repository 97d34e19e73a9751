"""NumPy archives, plain and OGBench's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leeward.data.load import load_dataset
from leeward.errors import DataError
from leeward.types import Box


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "set.npz"


def plain(**changes: Any) -> dict[str, Any]:
    return {
        "observations": np.arange(8.0).reshape(4, 2),
        "actions": np.linspace(-1, 1, 4)[:, None],
        "rewards": np.ones(4),
        "terminals": np.array([False, True, False, False]),
        **changes,
    }


def test_reads_columns_and_short_metadata(path: Path) -> None:
    np.savez(path, **plain(timeouts=np.array([0, 0, 0, 1]), env="Hopper-v4", action_low=-2.0,
                           action_high=2.0))  # fmt: skip
    dataset = load_dataset(path)
    assert dataset.start.tolist() == [0, 1, 2]
    assert dataset.action_space == Box((-2.0,), (2.0,))
    assert dataset.metadata["env"] == "Hopper-v4"


def test_singular_names_and_stored_next_observations(path: Path) -> None:
    columns = {key.rstrip("s"): value for key, value in plain().items()}
    following = np.concatenate([columns["observation"][1:], [[9.0, 9.0]]])
    following[1] = [7.0, 7.0]
    np.savez_compressed(path, **columns, next_observation=following)
    dataset = load_dataset(path)
    assert dataset.observation[:, 0].tolist() == [0, 2, 7, 4, 6, 9]
    assert dataset.start.tolist() == [0, 1, 3, 4]


def test_missing_column_is_named(path: Path) -> None:
    columns = plain()
    del columns["actions"]
    np.savez(path, **columns)
    with pytest.raises(DataError) as error:
        load_dataset(path)
    assert str(error.value) == (
        f"{path} has no 'actions': a data set needs observations, actions, rewards and terminals; "
        "it holds observations, rewards, terminals"
    )


def test_python_objects_are_never_loaded(path: Path) -> None:
    np.savez(path, **plain(observations=np.array([{}, {}, {}, {}], object)))
    with pytest.raises(DataError) as error:
        load_dataset(path)
    assert str(error.value) == (
        f"{path} holds Python objects, which are never loaded: save plain arrays"
    )


def test_damaged_and_oversized_archives_give_one_line(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(path, **plain())
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(DataError, match=r"cannot be read as \.npz, it is cut short or damaged"):
        load_dataset(path)
    path.write_bytes(b"")
    with pytest.raises(DataError, match=r"is empty \(0 bytes\): fetch or copy it again"):
        load_dataset(path)
    path.write_bytes(whole)
    monkeypatch.setattr("leeward.data.hdf5.os.sysconf", lambda _: 10)
    with pytest.raises(DataError) as error:
        load_dataset(path)
    assert str(error.value) == (f"{path} says it holds 0 GiB, this machine has 0 GiB of memory")


def ogbench() -> dict[str, np.ndarray]:
    """Two trajectories of two steps; the last row of each holds an observation alone."""
    return {
        "observations": np.array([[0], [1], [2], [10], [11], [12]], np.float32),
        "actions": np.full((6, 1), 0.5, np.float32),
        "terminals": np.array([0, 0, 1, 0, 0, 1], np.float32),
        "qpos": np.zeros((6, 100), np.float32),
    }


def test_raw_ogbench_files_end_with_an_observation(path: Path) -> None:
    np.savez(path, **ogbench())
    dataset = load_dataset(path)
    assert dataset.observation[:, 0].tolist() == [0, 1, 2, 10, 11, 12]
    assert dataset.recorded.tolist() == [True, True, False, True, True, False]
    assert dataset.start.tolist() == [0, 1, 3, 4]
    assert not dataset.termination.any()
    assert np.flatnonzero(dataset.truncation).tolist() == [1, 4]
    assert dataset.action_space == Box((-1.0,), (1.0,))
    assert dataset.metadata["notes"] == [
        "no rewards in the file: they are 0 here, which serves imitation only"
    ]


def test_ogbench_masks_say_where_the_task_was_solved(path: Path) -> None:
    rewards = np.array([-1, 0, 5, -1, -1, 5], np.float32)
    masks = np.array([1, 0, 1, 1, 1, 1], np.float32)
    np.savez(path, **ogbench(), rewards=rewards, masks=masks)
    dataset = load_dataset(path)
    assert dataset.termination.tolist() == [False, True, False, False, False, False]
    assert np.flatnonzero(dataset.truncation).tolist() == [4]
    assert dataset.reward[dataset.start].tolist() == [-1, 0, -1, -1]


def test_ogbench_regular_and_compact_forms_are_the_same_data(path: Path) -> None:
    raw = ogbench()
    np.savez(path, **raw)
    expected = load_dataset(path).content_hash()
    step = raw["terminals"] == 0
    regular = {
        "observations": raw["observations"][step],
        "next_observations": raw["observations"][[1, 2, 4, 5]],
        "actions": raw["actions"][step],
        "terminals": np.array([0, 1, 0, 1], np.float32),
        "rewards": np.zeros(4, np.float32),
        "masks": np.ones(4, np.float32),
    }
    np.savez(path, **regular)
    assert load_dataset(path).content_hash() == expected
    compact = {
        "observations": raw["observations"],
        "actions": raw["actions"],
        "terminals": np.array([0, 1, 1, 0, 1, 1], np.float32),
        "valids": 1 - raw["terminals"],
    }
    np.savez(path, **compact)
    assert load_dataset(path).content_hash() == expected
