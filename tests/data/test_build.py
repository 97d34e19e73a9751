"""The row layout against a slow loop over its description, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leeward.data.build import build
from leeward.data.dataset import Dataset
from leeward.errors import DataError
from leeward.types import Box, Discrete


def columns(rows: int, **changes: Any) -> dict[str, Any]:
    """Observations that count rows, one action dimension, no ends."""
    return {
        "observation": np.arange(2 * rows, dtype=np.float32).reshape(rows, 2),
        "action": np.linspace(-1, 1, rows, dtype=np.float32)[:, None],
        "reward": np.arange(rows, dtype=np.float32),
        "termination": np.zeros(rows, bool),
        "truncation": None,
        **changes,
    }


def transitions(dataset: Dataset) -> list[tuple[Any, ...]]:
    """Every transition as training sees it; the next observation after a termination is left out
    where the data does not know it."""
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
                None if terminated else next_observation.tolist(),
                terminated,
            )
        )
    return result


@st.composite
def episodes(draw: st.DrawFn) -> list[tuple[int, str]]:
    """(length, how it ends) of one to five episodes."""
    length = st.integers(1, 4)
    end = st.sampled_from(["terminates", "is cut", "terminates at the limit"])
    return draw(st.lists(st.tuples(length, end), min_size=1, max_size=5))


@settings(max_examples=60, deadline=None)
@given(shape=episodes(), stored=st.booleans())
def test_transitions_equal_a_slow_loop_over_the_episodes(
    shape: list[tuple[int, str]], stored: bool
) -> None:
    generator = np.random.default_rng(0)
    rows: dict[str, list[Any]] = {
        key: []
        for key in (
            "observation",
            "action",
            "reward",
            "termination",
            "truncation",
            "next_observation",
        )
    }
    expected = []
    for length, end in shape:
        states = generator.normal(size=(length + 1, 3)).astype(np.float32)
        for step in range(length):
            action = generator.uniform(-1, 1, 2).astype(np.float32)
            last = step == length - 1
            terminated = last and end != "is cut"
            rows["observation"].append(states[step])
            rows["action"].append(action)
            rows["reward"].append(np.float32(step))
            rows["termination"].append(terminated)
            rows["truncation"].append(last and end != "terminates")
            rows["next_observation"].append(states[step + 1])
            if stored or not last or terminated:
                following = None if terminated else states[step + 1].tolist()
                expected.append(
                    (states[step].tolist(), action.tolist(), float(step), following, terminated)
                )
    arrays = {key: np.array(value) for key, value in rows.items()}
    if not stored:
        del arrays["next_observation"]
    dataset = build(**arrays, action_low=-1, action_high=1, strict=False)
    assert transitions(dataset) == expected
    assert dataset.episodes == len(shape)
    assert dataset.episode_lengths().tolist() == [length for length, _ in shape]
    assert dataset.next_rows_chain()
    assert dataset.recorded.sum() == sum(length for length, _ in shape)


def test_last_observations_become_one_row_more_an_episode() -> None:
    given_columns = columns(4, truncation=np.array([False, True, False, True]))
    observation = given_columns["observation"]
    following = np.concatenate([observation[1:], observation[-1:] + 10])
    following[1] = 77
    dataset = build(**given_columns, next_observation=following)
    assert dataset.observation[:, 0].tolist() == [0, 2, 77, 4, 6, 16]
    assert dataset.recorded.tolist() == [True, True, False, True, True, False]
    assert dataset.start.tolist() == [0, 1, 3, 4]
    assert dataset.episode_start.tolist() == [0, 3]
    assert dataset.episode_returns().tolist() == [1.0, 5.0]


def test_next_observations_that_break_are_kept_and_said() -> None:
    given_columns = columns(6, truncation=np.array([False] * 5 + [True]))
    following = np.concatenate(
        [given_columns["observation"][1:], given_columns["observation"][-1:]]
    )
    following[2] = -1
    dataset = build(**given_columns, next_observation=following)
    assert dataset.next_observation is not None
    assert dataset.next_observation.tolist() == following.tolist()
    assert not dataset.next_rows_chain()
    assert dataset.episodes == 1
    assert dataset.metadata["notes"][1:] == [
        "the stored next observation differs from the next row at 1 of 5 steps within an episode "
        "(first at row 2): stored ones are used, and n-step returns are not available"
    ]


def test_breaks_end_episodes_where_no_truncation_was_recorded() -> None:
    given_columns = columns(6)
    following = np.concatenate(
        [given_columns["observation"][1:], given_columns["observation"][-1:]]
    )
    following[2] = -1
    dataset = build(**given_columns, next_observation=following)
    assert dataset.next_rows_chain()
    assert dataset.episode_lengths().tolist() == [3, 3]
    assert dataset.observation[:, 0].tolist() == [0, 2, 4, -1, 6, 8, 10, 10]


def test_shuffled_transitions_are_episodes_of_one_step() -> None:
    following = np.full((4, 2), 100.0, np.float32)
    dataset = build(**columns(4), next_observation=following)
    assert dataset.episodes == 4
    assert dataset.next_observation is not None
    assert dataset.steps_left().tolist() == [1, 1, 1, 1]
    assert not dataset.truncation[:3].any()


def test_types_float32_but_images_stay_bytes() -> None:
    images = np.zeros((3, 8, 8), np.uint8)
    dataset = build(**columns(3, observation=images, action=np.array([0, 2, 1])))
    assert dataset.observation.dtype == np.uint8
    assert dataset.action.dtype == np.int32
    assert dataset.action_space == Discrete(3)
    for kind in (np.float64, np.int64, bool, np.float16):
        observation = np.ones((3, 2), kind)
        assert build(**columns(3, observation=observation)).observation.dtype == np.float32


def test_integer_actions_with_bounds_are_continuous() -> None:
    actions = np.array([[0], [5], [2]])
    dataset = build(**columns(3, action=actions), action_low=0, action_high=5)
    assert dataset.action_space == Box((0.0,), (5.0,))
    assert dataset.action.dtype == np.float32


def test_bounds_come_from_the_data_with_a_note() -> None:
    dataset = build(**columns(3, action=np.array([[0.25, 1], [0.5, 1], [1.0, 1]])))
    assert dataset.action_space == Box((0.25, 0.0), (1.0, 2.0))
    assert dataset.metadata["notes"] == [
        "action bounds taken from the data's own range",
        "action dimensions [1] never change",
    ]


def test_rounding_to_float32_does_not_leave_the_box() -> None:
    actions = np.array([[0.1], [0.3], [0.2]])
    dataset = build(**columns(3, action=actions), action_low=0.1, action_high=0.3)
    assert dataset.action.shape == (3, 1)


def test_given_columns_are_not_changed() -> None:
    given_columns = columns(6, truncation=np.zeros(6, bool))
    given_columns["termination"][5] = True
    following = np.full((6, 2), 5.0, np.float32)
    copies = {key: np.copy(value) for key, value in given_columns.items()}
    build(**given_columns, next_observation=following)
    for key, value in copies.items():
        np.testing.assert_array_equal(given_columns[key], value)


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "lengths": (
        {"reward": np.zeros(3)},
        {},
        "d: columns differ in length: observation 4, action 4, reward 3, termination 4",
    ),
    "empty": (
        {key: np.zeros((0, 1)) for key in ("observation", "action", "reward", "termination")},
        {},
        "d is empty: it has no row",
    ),
    "nan": (
        {"observation": np.array([[0.0], [1.0], [np.nan], [np.nan]])},
        {},
        "d: observation is NaN at row 2 (and in 1 more rows): remove or fill these rows",
    ),
    "infinite": (
        {"reward": np.array([0.0, 1e300, 0.0, 0.0])},
        {},
        "d: reward is infinite at row 1: remove or fill these rows",
    ),
    "outside": (
        {},
        {"action_low": -0.5, "action_high": 0.5},
        "d: action -1 at row 0, dimension 0, is outside [-0.5, 0.5] (and in 1 more rows): give "
        "the true bounds with --action-low and --action-high, or clip the actions",
    ),
    "reversed bounds": (
        {},
        {"action_low": 1.0, "action_high": -1.0},
        "d: the action's lower bound 1 is not below its upper bound -1 in dimension 0",
    ),
    "number of bounds": (
        {},
        {"action_low": np.zeros(3)},
        "d: the action's low bound has 3 values, the actions have 1 dimensions: give one value, "
        "or one a dimension",
    ),
    "infinite bound": (
        {},
        {"action_high": np.inf},
        "d: the action's high bound is inf: bounds must be finite; give them with --action-low "
        "and --action-high",
    ),
    "no transition": (
        {"truncation": np.ones(4, bool)},
        {},
        "d has no transition: no row has a next observation; store the columns next_observation "
        "or truncation, or give longer episodes",
    ),
    "text": (
        {"observation": np.array(["a", "b", "c", "d"])},
        {},
        "d: observation must be an array of numbers, got type <U1",
    ),
    "flag": (
        {"termination": np.array([0, 1, 2, 0])},
        {},
        "d: termination must be true or false (1 or 0), row 2 holds 2",
    ),
    "multi-discrete": (
        {"action": np.zeros((4, 2), int)},
        {},
        "d: actions are integers of shape (2,) a row, a multi-discrete space, which is not "
        "supported: give one integer a row, or for continuous actions --action-low and "
        "--action-high",
    ),
    "negative action": (
        {"action": np.array([0, 1, -1, 0])},
        {},
        "d: discrete action -1 at row 2 is negative: number the actions from 0",
    ),
    "large action": (
        {"action": np.array([0, 1, 3, 0])},
        {"action_count": 3},
        "d: discrete action 3 at row 2 is not below 3, the number of actions: name the environment "
        "that it comes from (--env), or correct the action_count that is given",
    ),
    "reward shape": (
        {"reward": np.zeros((4, 2))},
        {},
        "d: reward must hold one number a row, got shape (4, 2)",
    ),
    "next shape": (
        {"next_observation": np.zeros((4, 3))},
        {},
        "d: next_observation has shape (4, 3), observation (4, 2); they must be equal",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses_with_what_where_and_what_to_do(case: str) -> None:
    changes, arguments, message = REFUSED[case]
    with pytest.raises(DataError) as error:
        build(**columns(4, **changes), **arguments, metadata={"name": "d"})
    assert str(error.value) == message


def test_without_strict_unfit_data_can_be_looked_at() -> None:
    observation = np.array([[0.0], [np.nan], [2.0]])
    dataset = build(
        **columns(3, observation=observation), action_low=-0.5, action_high=0.5, strict=False
    )
    assert np.isnan(dataset.observation[1, 0])
    assert dataset.action[0, 0] == -1.0
    empty = build(**columns(1, action=np.ones((1, 1))), strict=False)
    assert empty.transitions == 0


def test_chaining_is_compared_across_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leeward.data.allocation.BLOCK_BYTES", 24)
    given_columns = columns(10, truncation=np.arange(10) == 9)
    following = np.concatenate([given_columns["observation"][1:], np.zeros((1, 2), np.float32)])
    assert build(**given_columns, next_observation=following).next_rows_chain()
    following[7] += 1
    assert not build(**given_columns, next_observation=following).next_rows_chain()
