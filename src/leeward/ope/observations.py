"""Observations of rows as policies see them, a few thousand at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from leeward.data.dataset import Dataset

ROWS = 8192
"""Rows held at once (ours: Atari's stacked frames of so many take 230 MB)."""


def observed(dataset: Dataset, row: np.ndarray) -> np.ndarray:
    """[M, *obs]: the observations of rows [M], frames stacked where rows hold frames."""
    stack = dataset.frame_stack
    if stack == 1:
        return dataset.observation[row]
    before = row - dataset.episode_start[dataset.episode_of_row[row]]
    age = np.minimum(np.arange(stack - 1, -1, -1)[None, :], before[:, None])  # [M, K]
    return dataset.observation[row[:, None] - age]


def next_observed(dataset: Dataset, transition: np.ndarray) -> np.ndarray:
    """[M, *obs]: what follows transitions [M] whose next observations are stored apart."""
    assert dataset.next_observation is not None
    following = dataset.next_observation[transition]
    if dataset.frame_stack == 1:
        return following
    earlier = observed(dataset, dataset.start[transition])[:, 1:]
    return np.concatenate([earlier, following[:, None]], axis=1)


def by_pieces(call: Callable[[np.ndarray], np.ndarray], number: np.ndarray) -> np.ndarray:
    """`call(number)` [M, …], some of the numbers [M] at a time."""
    pieces = range(0, len(number), ROWS)
    return np.concatenate([call(number[i : i + ROWS]) for i in pieces])
