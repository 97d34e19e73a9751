"""D4RL files in both readings, against slow loops written from their description."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from leeward.data.d4rl import qlearning_rows, read_d4rl
from leeward.data.dataset import Dataset
from leeward.data.hints import Hints
from leeward.errors import DataError, SpecError
from leeward.types import Box, Discrete

Write = Callable[..., Path]


def arrays(
    rows: int, terminals: list[int] | tuple[int, ...] = (), timeouts: list[int] | None = None
) -> dict[str, np.ndarray]:
    """Random columns in D4RL's names with the given flags."""
    generator = np.random.default_rng(0)
    result = {
        "observations": generator.normal(size=(rows, 3)).astype(np.float32),
        "actions": generator.uniform(-1, 1, size=(rows, 2)).astype(np.float32),
        "rewards": generator.normal(size=rows).astype(np.float32),
        "terminals": np.isin(np.arange(rows), terminals),
    }
    if timeouts is not None:
        result["timeouts"] = np.isin(np.arange(rows), timeouts)
    return result


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def _write(columns: dict[str, Any], name: str = "data.hdf5", **metadata: Any) -> Path:
        path = tmp_path / name
        with h5py.File(path, "w") as file:
            for key, value in columns.items():
                file.create_dataset(key, data=value)
            for key, value in metadata.items():
                file[f"metadata/{key}"] = value
        return path

    return _write


def kept_by_slow_loop(
    terminals: np.ndarray, timeouts: np.ndarray | None, max_episode_steps: int
) -> list[int]:
    """The rows that D4RL's qlearning_dataset keeps, one after another."""
    kept = []
    episode_step = 0
    for row in range(len(terminals) - 1):
        if timeouts is not None:
            final = bool(timeouts[row])
        else:
            final = episode_step == max_episode_steps - 1
        if final:
            episode_step = 0
            continue
        if terminals[row]:
            episode_step = 0
        kept.append(row)
        episode_step += 1
    return kept


@settings(max_examples=300, deadline=None)
@given(
    terminals=st.lists(st.booleans(), min_size=1, max_size=40),
    limit=st.integers(1, 9),
    sparse=st.booleans(),
)
@example(terminals=[False, False, True, False, False, False, False], limit=3, sparse=False)
def test_step_count_without_timeouts_equals_the_slow_loop(
    terminals: list[bool], limit: int, sparse: bool
) -> None:
    termination = np.array(terminals) & (~np.array([sparse]) | (np.arange(len(terminals)) % 7 == 3))
    rows = np.flatnonzero(qlearning_rows(termination, None, limit))
    assert rows.tolist() == kept_by_slow_loop(termination, None, limit)


def test_step_count_starts_from_one_after_a_termination() -> None:
    termination = np.arange(12) == 2
    kept = qlearning_rows(termination, None, 4)
    # Counted from the termination at row 2, the fourth step is row 6; D4RL drops row 5.
    assert np.flatnonzero(~kept).tolist() == [5, 9, 11]


def qlearning_by_slow_loop(columns: dict[str, np.ndarray], limit: int) -> list[tuple[Any, ...]]:
    return [
        (
            columns["observations"][row].tolist(),
            columns["actions"][row].tolist(),
            float(columns["rewards"][row]),
            columns["observations"][row + 1].tolist(),
            bool(columns["terminals"][row]),
        )
        for row in kept_by_slow_loop(columns["terminals"], columns.get("timeouts"), limit)
    ]


def all_by_slow_loop(columns: dict[str, np.ndarray]) -> list[tuple[Any, ...]]:
    """Every row with a true next observation, and every termination (its next left out)."""
    rows = len(columns["rewards"])
    result = []
    for row in range(rows):
        ended = bool(columns["terminals"][row] or columns["timeouts"][row])
        stored = columns.get("next_observations")
        if stored is not None:
            following = stored[row].tolist()
        elif row + 1 < rows and not ended:
            following = columns["observations"][row + 1].tolist()
        elif columns["terminals"][row]:
            following = None
        else:
            continue
        result.append(
            (
                columns["observations"][row].tolist(),
                columns["actions"][row].tolist(),
                float(columns["rewards"][row]),
                None if columns["terminals"][row] else following,
                bool(columns["terminals"][row]),
            )
        )
    return result


def transitions(dataset: Dataset, *, drop_last: bool) -> list[tuple[Any, ...]]:
    """What training sees; `drop_last` leaves out next observations after a termination."""
    result = []
    for index, row in enumerate(dataset.start):
        following = min(row + 1, len(dataset.reward) - 1)
        next_observation = dataset.observation[following]
        if dataset.next_observation is not None:
            next_observation = dataset.next_observation[index]
        terminated = bool(dataset.termination[row])
        result.append(
            (
                dataset.observation[row].tolist(),
                dataset.action[row].tolist(),
                float(dataset.reward[row]),
                None if terminated and drop_last else next_observation.tolist(),
                terminated,
            )
        )
    return result


FLAGS = {
    "both": ([3, 9, 14], [5, 14, 19]),
    "terminal last": ([3, 19], [7]),
    "timeout last": ([3], [7, 19]),
    "one row apart": ([3, 4, 5], [6, 7]),
    "none": ([], []),
}


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("stored", ["no next", "chained next", "odd next"])
def test_both_readings_equal_their_slow_loops(write: Write, flags: str, stored: str) -> None:
    columns = arrays(20, *FLAGS[flags])
    if stored != "no next":
        following = np.roll(columns["observations"], -1, axis=0)
        ends = np.append(np.flatnonzero(columns["terminals"] | columns["timeouts"]), 19)
        following[ends] = 7.0
        if stored == "odd next":
            following[0] = 8.0
        columns["next_observations"] = following
    path = write(columns)
    qlearning = read_d4rl(path, rows="qlearning")
    assert transitions(qlearning, drop_last=False) == qlearning_by_slow_loop(columns, 1000)
    assert transitions(read_d4rl(path), drop_last=True) == all_by_slow_loop(columns)
    assert qlearning.metadata["d4rl_rows"] == "qlearning"


def test_v0_files_take_the_step_limit_of_the_call_or_the_environment(write: Write) -> None:
    columns = arrays(20, [3])
    path = write(columns)
    dataset = read_d4rl(path, rows="qlearning", hints=Hints(max_episode_steps=5))
    assert transitions(dataset, drop_last=False) == qlearning_by_slow_loop(columns, 5)
    assert dataset.episode_lengths().tolist() == [4, 5, 5, 5, 1]
    assert dataset.metadata["notes"] == [
        "no timeouts recorded: episodes end after 5 steps, the task's limit"
    ]
    dataset = read_d4rl(path, hints=Hints(max_episode_steps=5))
    assert np.flatnonzero(dataset.truncation).tolist() == [8, 13, 18]
    assert dataset.start.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 14, 15, 16, 17]
    with_env = write(arrays(2001), env_id="Hopper-v4")
    assert np.flatnonzero(read_d4rl(with_env).truncation).tolist() == [999, 1999]


def test_v0_files_without_a_known_limit(write: Write) -> None:
    path = write(arrays(20, [3]))
    with pytest.raises(DataError) as error:
        read_d4rl(path, rows="qlearning")
    assert str(error.value) == (
        f"{path} has no 'timeouts', and the task's step limit is not known: give it with "
        "--max-episode-steps, or use --d4rl-rows all"
    )
    dataset = read_d4rl(path)
    assert dataset.episode_lengths().tolist() == [4, 16]
    assert dataset.metadata["notes"] == [
        "no timeouts recorded and no step limit known: episodes end at terminations only; "
        "--max-episode-steps N cuts them"
    ]


def test_metadata_is_kept_as_far_as_json_holds_it(write: Write) -> None:
    path = write(
        arrays(5, [], [4]),
        env_id="Hopper-v4",
        algorithm="SAC",
        iterations=3,
        action_low=np.array([-2.0, -3.0]),
        action_high=np.array([2.0, 3.0]),
        weights=np.zeros((100, 3)),
    )
    dataset = read_d4rl(path)
    assert dataset.metadata["env"] == "Hopper-v4"
    assert dataset.metadata["name"] == "data"
    assert dataset.metadata["file_metadata"] == {
        "action_high": [2.0, 3.0],
        "action_low": [-2.0, -3.0],
        "algorithm": "SAC",
        "env_id": "Hopper-v4",
        "iterations": 3,
    }
    assert dataset.action_space == Box((-2.0, -3.0), (2.0, 3.0))


def test_text_that_names_no_environment_implies_none(write: Write) -> None:
    dataset = read_d4rl(write(arrays(5), env_id="MinAtar breakout 1.0"))
    assert "env" not in dataset.metadata
    assert dataset.metadata["notes"][0].startswith("no timeouts recorded and no step limit")
    assert dataset.metadata["notes"][1] == (
        "the file names 'MinAtar breakout 1.0', which is no environment id"
    )


def test_action_box_precedence(write: Write) -> None:
    plain = write(arrays(5, [], [4]), "plain.hdf5")
    own = write(arrays(5, [], [4]), "own.hdf5", action_low=-2.0, action_high=2.0)
    space = Box((-3.0, -3.0), (3.0, 3.0))
    flags = Hints(action_low=-4, action_high=[4, 5])
    assert read_d4rl(plain).action_space == Box((-1.0, -1.0), (1.0, 1.0))
    assert read_d4rl(plain, hints=flags).action_space == Box((-4.0, -4.0), (4.0, 5.0))
    assert read_d4rl(own).action_space == Box((-2.0, -2.0), (2.0, 2.0))
    assert read_d4rl(own, hints=Hints(action_space=space)).action_space == space
    with pytest.raises(DataError) as error:
        read_d4rl(own, hints=flags)
    assert str(error.value) == (
        f"{own}: --action-low [-4] contradicts the file's own bound [-2.0]: leave the flag out"
    )


def test_integer_actions_are_discrete(write: Write) -> None:
    columns = arrays(5, [], [4])
    path = write({**columns, "actions": np.array([[0], [1], [2], [1], [0]])}, action_count=6)
    assert read_d4rl(path).action_space == Discrete(6)


def test_columns_of_one_number_may_have_two_axes(write: Write) -> None:
    columns = arrays(6, [2], [5])
    for key in ("rewards", "terminals", "timeouts"):
        columns[key] = columns[key][:, None]
    assert read_d4rl(write(columns), rows="qlearning").start.tolist() == [0, 1, 2, 3, 4]


def test_names_in_the_singular_are_found(write: Write) -> None:
    columns = arrays(6, [2])
    path = write(
        {
            "observation": columns["observations"],
            "action": columns["actions"],
            "reward": columns["rewards"],
            "termination": columns["terminals"],
            "truncation": np.arange(6) == 5,
        }
    )
    assert read_d4rl(path).episode_lengths().tolist() == [3, 3]


def test_missing_column_is_named_with_what_is_there(write: Write) -> None:
    columns = arrays(5)
    del columns["rewards"]
    path = write(columns)
    with pytest.raises(DataError) as error:
        read_d4rl(path)
    assert str(error.value) == (
        f"{path} has no 'rewards': a data set needs observations, actions, rewards and terminals; "
        "it holds actions, observations, terminals"
    )


def test_the_environments_action_space_must_fit(write: Write) -> None:
    path = write(arrays(6, [2]), env_id="HalfCheetah-v4")
    with pytest.raises(SpecError) as error:
        read_d4rl(path, hints=Hints(action_space=Box((-1.0,) * 3, (1.0,) * 3)))
    assert str(error.value) == (
        "data does not match the environment: its actions have 2 dimensions, the environment's 3: "
        "use the environment that it comes from, HalfCheetah-v4"
    )
    with pytest.raises(SpecError, match=r"2 dimensions, the environment's are one of 4"):
        read_d4rl(path, hints=Hints(action_space=Discrete(4)))


def test_discrete_actions_may_be_stored_as_fractions(write: Write) -> None:
    columns = arrays(5, [], [4])
    path = write({**columns, "actions": np.array([[0.0], [1.0], [2.0], [1.0], [0.0]])})
    dataset = read_d4rl(path, hints=Hints(action_space=Discrete(6)))
    assert dataset.action_space == Discrete(6)
    assert dataset.action.tolist() == [0, 1, 2, 1, 0]
    assert isinstance(read_d4rl(path, hints=Hints(action_low=0, action_high=2)).action_space, Box)
