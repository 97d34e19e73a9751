"""Written files come back as they were, or are not there at all."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from leeward.data.build import build
from leeward.data.dataset import Dataset
from leeward.data.load import load_dataset
from leeward.data.write import write_d4rl, write_dataset
from leeward.errors import DataError, DiskError
from leeward.types import Box, Discrete


def columns(rows: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {
        "observation": generator.normal(size=(rows, 3)).astype(np.float32),
        "action": generator.uniform(-2, 2, size=(rows, 2)).astype(np.float32),
        "reward": generator.normal(size=rows).astype(np.float32),
        "termination": np.arange(rows) % 10 == 4,
        "truncation": np.arange(rows) % 10 == 9,
    }


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "set.hdf5"
    given = columns(40)
    write_d4rl(
        path,
        **given,
        metadata={
            "env_id": "Pendulum-v1",
            "action_low": [-2.0, -2.0],
            "action_high": [2.0, 2.0],
            "reference_minimum": -1500.0,
            "reference_maximum": -150.0,
            "note": "made by a test",
        },
    )
    dataset = load_dataset(path)
    for key, value in given.items():
        np.testing.assert_array_equal(getattr(dataset, key), value)
    assert dataset.action_space == Box((-2.0, -2.0), (2.0, 2.0))
    assert dataset.metadata["env"] == "Pendulum-v1"
    assert dataset.metadata["reference_scores"] == {"minimum": -1500.0, "maximum": -150.0}
    assert dataset.metadata["file_metadata"]["note"] == "made by a test"
    assert [entry.name for entry in path.parent.iterdir()] == ["set.hdf5"]


def test_chunks_hold_whole_rows(tmp_path: Path) -> None:
    path = tmp_path / "set.hdf5"
    given = {**columns(50), "observation": np.zeros((50, 84, 84), np.uint8)}
    write_d4rl(path, **given)
    with h5py.File(path) as file:
        assert file["observations"].chunks == (37, 84, 84)
        assert file["observations"].compression == "gzip"
        assert file["rewards"].chunks == (50,)


@pytest.mark.parametrize("known", ["last observations", "no last observations", "odd next"])
def test_data_sets_make_the_round_trip(tmp_path: Path, known: str) -> None:
    given = columns(40)
    following = None
    if known != "no last observations":
        following = np.roll(given["observation"], -1, axis=0)
        following[given["termination"] | given["truncation"]] = 5.0
    if known == "odd next" and following is not None:
        following[0] = 6.0
    dataset = build(**given, next_observation=following, action_low=-2.0, action_high=2.0)
    path = tmp_path / "set.hdf5"
    write_dataset(path, dataset)
    assert load_dataset(path).content_hash() == dataset.content_hash()


def test_chosen_episodes_make_the_round_trip(
    tmp_path: Path, continuous_dataset: Dataset, discrete_dataset: Dataset
) -> None:
    path = tmp_path / "set.hdf5"
    for dataset in (continuous_dataset, discrete_dataset):
        chosen = dataset.select_episodes(np.arange(dataset.episodes) % 3 == 1)
        write_dataset(path, chosen)
        back = load_dataset(path)
        assert back.transitions == chosen.transitions
        np.testing.assert_array_equal(
            back.observation[back.start], chosen.observation[chosen.start]
        )
        np.testing.assert_array_equal(back.steps_left(), chosen.steps_left())
        assert back.action_space == dataset.action_space
    assert isinstance(back.action_space, Discrete)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "set.hdf5"
    write_d4rl(path, **columns(10))
    before = path.read_bytes()
    with pytest.raises(TypeError):
        write_d4rl(path, **columns(20), metadata={"odd": object()})
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["set.hdf5"]


def test_bad_input_and_bad_places_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "set.hdf5"
    with pytest.raises(DataError) as error:
        write_d4rl(path, **{**columns(10), "reward": np.zeros(9)})
    assert str(error.value) == (
        f"{path}: columns differ in length: observations 10, actions 10, rewards 9, terminals 10, "
        "timeouts 10"
    )
    with pytest.raises(DataError) as error:
        write_d4rl(path, **columns(0))
    assert str(error.value) == f"{path}: there is no row to write"
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    with pytest.raises(DataError, match="cannot write"):
        write_d4rl(in_the_way / "set.hdf5", **columns(10))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("leeward.data.write.os.fsync", full)
    with pytest.raises(DiskError) as full_error:
        write_d4rl(path, **columns(10))
    assert str(full_error.value) == f"the disk is full while writing {path}"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
