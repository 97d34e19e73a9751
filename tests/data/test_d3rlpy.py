"""Files as d3rlpy's `ReplayBuffer.dump` and version 1's `MDPDataset.dump` write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from leeward.data.load import load_dataset
from leeward.errors import DataError
from leeward.types import Box, Discrete

EPISODES = ((4, True), (3, False), (1, True))


def dump(path: Path, *, discrete: bool = False, **changes: Any) -> Path:
    """Version 2: observations count the steps; each episode ends by the task or not."""
    with h5py.File(path, "w") as file:
        file["columns"] = ["observations", "actions", "rewards", "terminated"]
        file["num_episodes"] = len(EPISODES)
        file["version"] = "2.1"
        step = 0
        for i, (length, terminated) in enumerate(EPISODES):
            number = np.arange(step, step + length, dtype=np.float32)[:, None]
            file[f"observations_{i}"] = number
            file[f"actions_{i}"] = (number % 3).astype(np.int32) if discrete else number / 10
            file[f"rewards_{i}"] = number
            file[f"terminated_{i}"] = terminated
            step += length
        for key, value in changes.items():
            if key in file:
                del file[key]
            if value is not None:
                file[key] = value
    return path


def test_episodes_are_read_one_after_another(tmp_path: Path) -> None:
    dataset = load_dataset(dump(tmp_path / "set.h5"))
    assert dataset.observation[:, 0].tolist() == list(range(8))
    assert dataset.episode_start.tolist() == [0, 4, 7]
    assert np.flatnonzero(dataset.termination).tolist() == [3, 7]
    assert np.flatnonzero(dataset.truncation).tolist() == [6]
    assert dataset.start.tolist() == [0, 1, 2, 3, 4, 5, 7]
    assert isinstance(dataset.action_space, Box)
    assert dataset.metadata["notes"][0] == (
        "d3rlpy keeps no observation after an episode's last step"
    )


def test_discrete_actions_and_frames_are_read(tmp_path: Path) -> None:
    frames = {
        f"observations_{i}": np.zeros((length, 1, 84, 84), np.uint8)
        for i, (length, _) in enumerate(EPISODES)
    }
    dataset = load_dataset(dump(tmp_path / "set.h5", discrete=True, **frames))
    assert dataset.action_space == Discrete(3)
    assert dataset.observation.shape == (8, 1, 84, 84)
    assert dataset.observation.dtype == np.uint8


def test_single_frames_are_stacked_on_demand(tmp_path: Path) -> None:
    frames = {
        f"observations_{i}": np.full((length, 1, 84, 84), i, np.uint8)
        for i, (length, _) in enumerate(EPISODES)
    }
    path = dump(tmp_path / "set.h5", discrete=True, **frames)
    dataset = load_dataset(path, frame_stack=4)
    assert dataset.spec.observation_shape == (4, 84, 84)
    assert dataset.observation.shape == (8, 84, 84)
    with pytest.raises(DataError) as error:
        load_dataset(dump(tmp_path / "vectors.h5"), frame_stack=4)
    assert str(error.value) == (
        "vectors: --frame-stack needs rows of one gray image of bytes (uint8), they are float32 of "
        "shape (1,)"
    )
    with pytest.raises(DataError) as error:
        load_dataset(dataset, frame_stack=3)
    assert str(error.value) == "set: --frame-stack 3: the data set says 4"
    with pytest.raises(DataError) as error:
        load_dataset(path, frame_stack=0)
    assert str(error.value) == "set: --frame-stack 0: must be at least 1"


def test_version_1_tells_ends_of_the_task_from_others(tmp_path: Path) -> None:
    path = tmp_path / "set.h5"
    with h5py.File(path, "w") as file:
        file["observations"] = np.arange(6, dtype=np.float32)[:, None]
        file["actions"] = np.array([0, 1, 2, 0, 1, 1])
        file["rewards"] = np.ones(6)
        file["terminals"] = np.array([0, 0, 1, 0, 0, 0], np.float32)
        file["episode_terminals"] = np.array([0, 0, 1, 0, 0, 1], np.float32)
        file["discrete_action"] = True
    dataset = load_dataset(path)
    assert np.flatnonzero(dataset.termination).tolist() == [2]
    assert np.flatnonzero(dataset.truncation).tolist() == [5]
    assert dataset.action_space == Discrete(3)
    with h5py.File(path, "a") as file:
        del file["rewards"]
    with pytest.raises(DataError) as error:
        load_dataset(path)
    assert str(error.value) == (
        f"{path} has no 'rewards': it holds actions, discrete_action, episode_terminals, "
        "observations, terminals"
    )


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"rewards_1": None}, " has no 'rewards_1': it says it has 3 episodes"),
        ({"num_episodes": 0}, " is a d3rlpy data set without an episode"),
        ({"rewards_2": np.zeros((0, 1), np.float32)}, ": episode 2 is empty"),
        (
            {"observations_0": None, "observations_0_0": np.zeros((4, 2), np.float32)},
            ": observations of episode 0 have several parts (a tuple), which is not supported: "
            "save the part you need",
        ),
    ],
)
def test_what_lacks_is_named(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    path = dump(tmp_path / "set.h5", **changes)
    with pytest.raises(DataError) as error:
        load_dataset(path)
    assert str(error.value) == f"{path}{text}"
