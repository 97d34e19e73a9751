"""Smaller data sets: which transitions are kept, and that nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

from leeward.data.build import build
from leeward.data.dataset import Dataset
from leeward.data.reduce import Reduction, reduce_dataset
from leeward.errors import ConfigError, DataError


@pytest.fixture
def dataset() -> Dataset:
    """Six episodes of five steps, numbered; episode e has a return of 5 e, and ends by the task."""
    rows = np.arange(30)
    return build(
        rows[:, None].astype(np.float32),
        np.zeros((30, 1), np.float32),
        (rows // 5).astype(np.float32),
        rows % 5 == 4,
        action_low=-1.0,
        action_high=1.0,
        metadata={"name": "numbers"},
    )


def kept(dataset: Dataset, **reduction: object) -> list[int]:
    """The numbers of the transitions that are left."""
    reduced = reduce_dataset(dataset, Reduction(**reduction))  # type: ignore[arg-type]
    return reduced.observation[reduced.start, 0].astype(int).tolist()


def test_the_first_transitions_and_the_last(dataset: Dataset) -> None:
    assert kept(dataset, transitions=7) == list(range(7))
    assert kept(dataset, last=7) == list(range(23, 30))


def test_a_cut_episode_knows_its_last_observation_and_goes_on(dataset: Dataset) -> None:
    reduced = reduce_dataset(dataset, Reduction(transitions=7))
    assert reduced.observation[:, 0].tolist() == list(range(8))
    assert reduced.recorded.tolist() == [True] * 7 + [False]
    assert np.flatnonzero(reduced.termination).tolist() == [4]
    assert np.flatnonzero(reduced.truncation).tolist() == [6]
    assert reduced.episodes == 2


def test_episodes_are_drawn_whole_by_the_seed(dataset: Dataset) -> None:
    for wanted in ({"episodes": 2}, {"fraction": 1 / 3}):
        drawn = kept(dataset, **wanted)
        assert len(drawn) == 10
        assert drawn == sorted(drawn)
        assert len({row // 5 for row in drawn}) == 2
        assert drawn == kept(dataset, **wanted)
    draws = {tuple(kept(dataset, episodes=2, seed=seed)) for seed in range(10)}
    assert len(draws) > 3


def test_returns_choose_episodes(dataset: Dataset) -> None:
    assert kept(dataset, least_return=20.0) == list(range(20, 30))
    assert kept(dataset, most_return=5.0, least_return=5.0) == list(range(5, 10))


def test_several_reductions_follow_one_another(dataset: Dataset) -> None:
    assert kept(dataset, least_return=20.0, transitions=3) == [20, 21, 22]
    assert set(kept(dataset, least_return=10.0, episodes=1)) <= set(range(10, 30))


def test_stored_next_observations_stay_with_their_transitions(dataset: Dataset) -> None:
    following = dataset.observation[::-1].copy()
    odd = build(
        dataset.observation,
        dataset.action,
        dataset.reward,
        dataset.termination,
        np.zeros(30, bool),
        next_observation=following,
        action_low=-1.0,
        action_high=1.0,
    )
    reduced = reduce_dataset(odd, Reduction(last=4))
    assert reduced.next_observation is not None
    assert reduced.next_observation[:, 0].tolist() == [3, 2, 1, 0]
    assert reduced.observation[reduced.start, 0].tolist() == [26, 27, 28, 29]


@pytest.mark.parametrize(
    ("reduction", "text"),
    [
        ({"transitions": 0}, "--transitions must be at least 1, got 0"),
        ({"last": -1}, "--last must be at least 1, got -1"),
        ({"fraction": 1.5}, "--fraction must be in (0, 1], got 1.5"),
        ({"last": 1, "transitions": 1}, "--last and --transitions cannot be given together"),
    ],
)
def test_impossible_numbers_are_refused(
    dataset: Dataset, reduction: dict[str, float], text: str
) -> None:
    with pytest.raises(ConfigError) as error:
        kept(dataset, **reduction)
    assert str(error.value) == text


@pytest.mark.parametrize(
    ("reduction", "text"),
    [
        ({"transitions": 31}, "numbers has 30 transitions, fewer than the 31 to keep"),
        ({"episodes": 7}, "numbers has 6 episodes, fewer than the 7 to keep"),
        (
            {"least_return": 26.0},
            "numbers has no episode with such a return: returns are 0 to 25",
        ),
    ],
)
def test_more_than_there_is_is_refused(
    dataset: Dataset, reduction: dict[str, float], text: str
) -> None:
    with pytest.raises(DataError) as error:
        kept(dataset, **reduction)
    assert str(error.value) == text
