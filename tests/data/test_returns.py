"""Returns to go, against a slow loop; never across an episode's end."""

from __future__ import annotations

import numpy as np
import pytest

from leeward.data.dataset import Dataset
from leeward.data.returns import return_to_go
from leeward.data.sampling import DeviceData, fit_scaling, to_device
from leeward.errors import DataError

DISCOUNT = 0.9
REWARD = [1.0, 2.0, 4.0, -1.0, -1.0, 8.0, 16.0]
TERMINATION = [0, 0, 1, 0, 0, 0, 0]
TRUNCATION = [0, 0, 0, 0, 1, 0, 1]  # episodes of 3, 2 and 2 steps


def device_data(next_observation: np.ndarray | None) -> DeviceData:
    rows = len(REWARD)
    dataset = Dataset.from_arrays(
        np.arange(rows, dtype=float)[:, None],
        np.linspace(-1.0, 1.0, rows)[:, None],
        np.array(REWARD),
        np.array(TERMINATION, bool),
        np.array(TRUNCATION, bool),
        next_observation=next_observation,
    )
    return to_device(dataset, fit_scaling(dataset, normalize_observations=False))


def stored() -> np.ndarray:
    """The next row, except at ends, so that every step starts a transition."""
    following = np.arange(1.0, len(REWARD) + 1.0)
    following[[2, 4, 6]] += 0.5
    return following[:, None]


def test_a_return_ends_with_its_episode() -> None:
    g = DISCOUNT
    expected = [1 + g * (2 + g * 4), 2 + g * 4, 4, -1 - g, -1, 8 + g * 16, 16]
    np.testing.assert_allclose(return_to_go(device_data(stored()), g), expected, rtol=1e-6)


def test_a_buggy_return_across_ends_is_another_number() -> None:
    across, later = [], 0.0
    for reward in reversed(REWARD):
        later = reward + DISCOUNT * later
        across.append(later)
    found = np.asarray(return_to_go(device_data(stored()), DISCOUNT))
    assert (np.abs(found[:5] - across[::-1][:5]) > 0.5).all()


def test_a_row_that_starts_no_transition_ends_a_walk() -> None:
    """Without stored next observations the last steps of cut episodes have no successor."""
    data = device_data(None)
    assert data.start.tolist() == [0, 1, 2, 3, 5]
    g = DISCOUNT
    expected = [1 + g * (2 + g * 4), 2 + g * 4, 4, -1, 8]
    np.testing.assert_allclose(return_to_go(data, g), expected, rtol=1e-6)


def test_the_last_reward_goes_on_for_ever_where_the_recording_was_cut() -> None:
    """A task that costs 1 a step is worth −1/(1 − γ) wherever it stays unsolved."""
    g = DISCOUNT
    expected = [1 + g * (2 + g * 4), 2 + g * 4, 4, -10, -10, 8 + g * 160, 160]
    found = return_to_go(device_data(stored()), g, repeat_last_reward=True)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_data_that_does_not_chain_is_refused() -> None:
    shuffled = np.random.default_rng(0).permutation(len(REWARD)).astype(float)[:, None] + 50.0
    with pytest.raises(DataError) as error:
        return_to_go(device_data(shuffled), DISCOUNT)
    assert str(error.value) == (
        "the return after each transition is not known in data whose next observations do not "
        "chain row to row: use data in order of time, or an algorithm without such returns"
    )
