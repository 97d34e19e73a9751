"""The row layout: nothing is stored twice, and what was written is read."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import h5py
import numpy as np
import pytest

from leeward.data.build import build
from leeward.data.dataset import Dataset
from leeward.data.load import load_dataset
from leeward.data.row_file import write_row_file
from leeward.data.sampling import fit_scaling, to_device
from leeward.errors import DataError, SpecError
from leeward.types import Box, Discrete


def frames(rows: int = 60) -> Dataset:
    """Episodes of ten frames; every second one is cut, and its last frame known."""
    generator = np.random.default_rng(0)
    observation = generator.integers(0, 256, (rows, 8, 8), np.uint8)
    following = np.roll(observation, -1, axis=0)
    ended = np.arange(rows) % 10 == 9
    following[ended] = 7
    return build(
        observation,
        generator.integers(0, 3, rows),
        generator.normal(size=rows),
        ended & (np.arange(rows) % 20 < 10),
        ended & (np.arange(rows) % 20 >= 10),
        next_observation=following,
        action_count=5,
        metadata={"name": "frames", "frame_stack": 4, "env": "PongNoFrameskip-v4"},
    )


def assert_same(one: Dataset, other: Dataset) -> None:
    for field in dataclasses.fields(Dataset):
        if field.name != "metadata":
            np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))


def test_frames_that_were_read_are_used_where_they_lie(tmp_path: Path) -> None:
    dataset, path = frames(20_000), tmp_path / "set.hdf5"
    write_row_file(path, dataset)
    back = load_dataset(path)
    held = to_device(back, fit_scaling(back, normalize_observations=False)).observation
    assert back.observation.nbytes > 2**20
    assert np.shares_memory(np.asarray(held), back.observation)
    np.testing.assert_array_equal(back.observation, dataset.observation)


def test_frames_make_the_round_trip_and_are_stored_once(tmp_path: Path) -> None:
    dataset, path = frames(), tmp_path / "set.hdf5"
    write_row_file(path, dataset)
    back = load_dataset(path)
    assert_same(back, dataset)
    assert back.action_space == Discrete(5)
    assert back.frame_stack == 4
    assert back.metadata["env"] == "PongNoFrameskip-v4"
    with h5py.File(path) as file:
        assert file["observations"].shape == (66, 8, 8)
        assert "next_observations" not in file


def test_vectors_and_boxes_make_the_round_trip(tmp_path: Path, continuous_dataset: Dataset) -> None:
    path = tmp_path / "set.hdf5"
    write_row_file(path, continuous_dataset)
    back = load_dataset(path)
    assert_same(back, continuous_dataset)
    assert back.action_space == Box((-1.0, -1.0), (1.0, 1.0))


def test_chosen_transitions_keep_the_frames_of_their_stacks(tmp_path: Path) -> None:
    dataset, path = frames(), tmp_path / "set.hdf5"
    wanted = np.zeros(dataset.transitions, bool)
    wanted[[5, 6, 30, 31, 32]] = True
    chosen = dataset.select_transitions(wanted)
    write_row_file(path, chosen)
    back = load_dataset(path)
    assert back.transitions == 5
    assert back.episodes == 2
    for ours, theirs in zip(back.start, chosen.start, strict=True):
        for shift in (0, 1):
            stack = [
                back.observation[max(back_start(back, ours), ours + shift - k)] for k in range(4)
            ]
            true = [
                dataset.observation[max(back_start(dataset, theirs), theirs + shift - k)]
                for k in range(4)
            ]
            np.testing.assert_array_equal(stack, true)
    np.testing.assert_array_equal(back.steps_left(), [2, 1, 3, 2, 1])
    assert back.truncation[back.start].tolist() == [False, True, False, False, True]


def back_start(dataset: Dataset, row: int) -> int:
    return int(dataset.episode_start[dataset.episode_of_row[row]])


def test_a_last_step_without_a_successor_keeps_its_reward(tmp_path: Path) -> None:
    dataset = build(
        np.arange(12, dtype=np.float32)[:, None],
        np.zeros((12, 1), np.float32),
        np.arange(12.0),
        np.zeros(12, bool),
        np.arange(12) % 4 == 3,
        action_low=-1.0,
        action_high=1.0,
    )
    path = tmp_path / "set.hdf5"
    write_row_file(path, dataset)
    back = load_dataset(path)
    assert_same(back, dataset)
    assert back.episode_returns().tolist() == [6.0, 22.0, 38.0]


def test_stored_next_observations_have_no_rows(tmp_path: Path) -> None:
    dataset = dataclasses.replace(frames(), next_observation=np.zeros((60, 8, 8), np.uint8))
    with pytest.raises(DataError) as error:
        write_row_file(tmp_path / "set.hdf5", dataset)
    assert str(error.value) == "frames keeps next observations that are no rows"


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (
            "episode_start",
            np.array([0, 9, 9]),
            "'episode_start' must be row numbers that ascend from 0 and stay below 66",
        ),
        (
            "episode_start",
            np.array([0.0]),
            "'episode_start' must be row numbers that ascend from 0 and stay below 66",
        ),
        (
            "recorded",
            np.ones(3, bool),
            "'recorded' must hold true or false for each of 66 rows, got shape (3,)",
        ),
        ("recorded", np.zeros(66, bool), "no row is 'recorded', so there is no step"),
    ],
)
def test_rows_that_do_not_fit_together_are_refused(
    tmp_path: Path, key: str, value: np.ndarray, text: str
) -> None:
    path = tmp_path / "set.hdf5"
    write_row_file(path, frames())
    with h5py.File(path, "a") as file:
        del file[key]
        file[key] = value
    with pytest.raises(DataError) as error:
        load_dataset(path)
    assert str(error.value).endswith(text)


def test_the_other_readings_and_spaces_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "set.hdf5"
    write_row_file(path, frames())
    with pytest.raises(DataError) as error:
        load_dataset(path, d4rl_rows="qlearning")
    assert str(error.value) == f"{path} has the row layout: --d4rl-rows does not apply"
    with pytest.raises(SpecError):
        load_dataset(path, action_space=Box((-1.0, -1.0), (1.0, 1.0)))
