"""Minari data sets made on the spot: local ids, folders, spaces that are refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import numpy as np
import pytest
from gymnasium import spaces
from minari.data_collector import EpisodeBuffer

from leeward.data.convert import write_file
from leeward.data.load import load_dataset
from leeward.errors import DataError, MissingExtra
from leeward.types import Box, Discrete
from minari_sets import create

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "minari"
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder))
    return folder


def make(
    name: str,
    *,
    observation_space: spaces.Space = BOX,
    action_space: spaces.Space = BOX,
    **arguments: Any,
) -> None:
    """Two episodes of three steps, one that terminates and one that is cut."""
    buffers = []
    for episode in range(2):
        observation_space.seed(episode)
        action_space.seed(episode)
        buffers.append(
            EpisodeBuffer(
                id=episode,
                observations=_stack([observation_space.sample() for _ in range(4)]),
                actions=_stack([action_space.sample() for _ in range(3)]),
                rewards=[1.0, 2.0, 3.0],
                terminations=[False, False, episode == 0],
                truncations=[False, False, episode == 1],
            )
        )
    create(
        name,
        buffers,
        observation_space=observation_space,
        action_space=action_space,
        **arguments,
    )


def _stack(items: list[Any]) -> Any:
    if isinstance(items[0], dict):
        return {key: np.stack([item[key] for item in items]) for key in items[0]}
    return np.stack(items)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_images_are_read_and_written_once(tmp_path: Path) -> None:
    screen = spaces.Box(0, 255, (21, 16, 3), np.uint8)
    make("test/screen/expert-v0", observation_space=screen, action_space=spaces.Discrete(4))
    dataset = load_dataset("test/screen/expert-v0", offline=True)
    assert dataset.observation.dtype == np.uint8
    assert dataset.observation.shape == (8, 21, 16, 3)
    path = tmp_path / "screen.hdf5"
    write_file(path, dataset)
    assert load_dataset(path).content_hash() == dataset.content_hash()
    with h5py.File(path) as file:
        assert "next_observations" not in file


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_local_sets_keep_their_environment_and_reference_scores(root: Path) -> None:
    make(
        "test/point/expert-v0",
        env=gymnasium.spec("Pendulum-v1"),
        ref_min_score=0.0,
        ref_max_score=12.0,
    )
    dataset = load_dataset("test/point/expert-v0", offline=True)
    assert dataset.transitions == 6
    assert dataset.recorded.tolist() == [True, True, True, False] * 2
    assert dataset.termination[2]
    assert dataset.truncation[6]
    assert dataset.action_space == Box((-1.0, -1.0), (1.0, 1.0))
    assert dataset.metadata["name"] == "test/point/expert-v0"
    assert dataset.metadata["source"] == "minari:test/point/expert-v0"
    assert dataset.metadata["env"] == "Pendulum-v1"
    assert dataset.metadata["reference_scores"] == {"minimum": 0.0, "maximum": 12.0}
    folder = load_dataset(root / "test" / "point" / "expert-v0")
    assert folder.content_hash() == dataset.content_hash()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_set_of_arrow_files_needs_the_extra_for_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    make("test/arrow-v0", data_format="arrow")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "minari.dataset._storages.arrow_storage", raising=False)
    with pytest.raises(MissingExtra) as error:
        load_dataset("test/arrow-v0", offline=True)
    assert str(error.value) == (
        "the Minari data set test/arrow-v0 needs the package 'pyarrow', which is not installed: "
        "pip install 'leeward[tables]'"
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_discrete_actions_and_a_prefix_for_plain_names() -> None:
    make("walk-v0", action_space=spaces.Discrete(5))
    dataset = load_dataset("minari:walk-v0", offline=True)
    assert dataset.action_space == Discrete(5)
    assert "env" not in dataset.metadata


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("what", "space", "kind"),
    [
        ("observation", spaces.Dict({"a": BOX, "b": BOX}), "a dictionary with a, b"),
        ("action", spaces.MultiDiscrete([2, 3]), "multi-discrete"),
    ],
)
def test_other_spaces_are_refused(what: str, space: spaces.Space, kind: str) -> None:
    make("test/odd-v0", **{f"{what}_space": space})
    with pytest.raises(DataError) as error:
        load_dataset("test/odd-v0", offline=True)
    assert str(error.value) == (
        f"test/odd-v0: the {what} space is {kind}; only one Box or Discrete space is supported: "
        "write the part you need as arrays (.npz) and load that"
    )


def test_a_set_that_is_not_there(root: Path) -> None:
    with pytest.raises(DataError) as error:
        load_dataset("test/none-v0", offline=True)
    assert str(error.value) == (
        f"the Minari data set test/none-v0 is not at {root}/test/none-v0 and the network is not to "
        "be used: copy it there from a machine where 'minari download test/none-v0' ran"
    )
    # Fetching asks minari, which either lacks its network package or is not let out by the tests.
    with pytest.raises((DataError, MissingExtra), match="Minari data set"):
        load_dataset("test/none-v0")


def test_a_damaged_set_gives_one_line(root: Path) -> None:
    folder = root / "test" / "broken-v0" / "data"
    folder.mkdir(parents=True)
    (folder / "metadata.json").write_text("{}")
    with pytest.raises(DataError, match="the Minari data set test/broken-v0 cannot be read"):
        load_dataset("test/broken-v0")
