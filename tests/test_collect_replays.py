"""Replays with a bound: which episodes of a training are kept."""

from __future__ import annotations

import numpy as np
import pytest

from leeward.collect_learner import thinned
from leeward.rollout import Columns


def columns_of(lengths: list[int]) -> Columns:
    """Episodes of these lengths, every other one terminated; observations count the rows."""
    rows = sum(lengths)
    ends = np.cumsum(lengths) - 1
    termination, truncation = np.zeros(rows, bool), np.zeros(rows, bool)
    termination[ends[::2]] = True
    truncation[ends[1::2]] = True
    count = np.arange(rows, dtype=np.float32)[:, None]
    return Columns(count, -count, count[:, 0], count + 1, termination, truncation)


def episodes_of(columns: Columns) -> list[list[int]]:
    """The rows of every episode."""
    ends = np.flatnonzero(columns.termination | columns.truncation) + 1
    assert ends[-1] == len(columns.reward)
    return [part.tolist() for part in np.split(columns.reward.astype(int), ends[:-1])]


def test_a_replay_that_fits_is_kept_as_it_is() -> None:
    columns = columns_of([3, 2, 4])
    assert thinned(columns, 9) is columns


@pytest.mark.parametrize(
    ("lengths", "transitions", "kept"),
    [
        ([2] * 10, 10, [1, 3, 5, 7, 9]),
        ([2] * 10, 11, [1, 3, 5, 7, 9]),
        ([2] * 9, 6, [1, 4, 7]),
        ([1, 5, 1, 5, 1, 5], 11, [1, 4]),  # three or more are too long
        ([9, 9, 9], 9, [1]),
    ],
)
def test_whole_episodes_evenly_spread(
    lengths: list[int], transitions: int, kept: list[int]
) -> None:
    columns = columns_of(lengths)
    whole = episodes_of(columns)
    found = thinned(columns, transitions)
    assert episodes_of(found) == [whole[i] for i in kept]
    row = found.reward.astype(int)
    for column, original in zip(found, columns, strict=True):
        np.testing.assert_array_equal(column, original[row])


def test_thinning_spares_neither_short_nor_long_episodes() -> None:
    lengths = np.random.default_rng(0).choice([20, 1000], size=400).tolist()
    columns = columns_of(lengths)
    found = episodes_of(thinned(columns, sum(lengths) // 4))
    assert 0.22 < len(found) / len(lengths) < 0.28
    share = np.mean([len(rows) == 1000 for rows in found])
    assert share == pytest.approx(np.mean(np.array(lengths) == 1000), abs=0.12)
    assert 0.8 * sum(lengths) / 4 < sum(map(len, found)) <= sum(lengths) // 4


def test_of_episodes_that_are_all_too_long_the_middle_one_s_beginning() -> None:
    found = thinned(columns_of([9, 8, 7]), 3)
    assert episodes_of(found) == [[9, 10, 11]]
    assert found.truncation.tolist() == [False, False, True]
    assert not found.termination.any()
