"""Episodes as walks: the transitions of each in a row from its first, as far as they chain.

Axis letters: n walks, L steps of all walks end to end, B resamples.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np

from leeward.data.dataset import Dataset
from leeward.errors import DataError

RESAMPLES = (200, 1_000)
"""Least and most bootstrap resamples of episodes (ours: few where there are very many episodes)."""
DRAWS = 100_000_000
"""Episodes drawn in all resamples together, above the least number of resamples."""


@dataclasses.dataclass(frozen=True)
class Walks:
    """Where every episode lies among the transitions, and how it ends."""

    first: np.ndarray
    """[n] int64: number of the episode's first transition in `Dataset.start`."""
    length: np.ndarray
    """[n] int64: steps."""
    terminated: np.ndarray
    """[n] bool: the task ended after the last step; else the recording did."""
    chained: bool
    """Whether steps follow one another; else every walk is one transition long by necessity."""

    @cached_property
    def offset(self) -> np.ndarray:
        """[n]: where each walk begins in arrays of length L."""
        return np.cumsum(self.length) - self.length

    @cached_property
    def transition(self) -> np.ndarray:
        """[L]: the number of every step's transition."""
        return np.repeat(self.first - self.offset, self.length) + np.arange(self.length.sum())

    @cached_property
    def step(self) -> np.ndarray:
        """[L]: how many steps of the same walk come before."""
        return np.arange(self.length.sum()) - np.repeat(self.offset, self.length)

    @cached_property
    def last(self) -> np.ndarray:
        """[n]: where each walk's last step is in arrays of length L."""
        return self.offset + self.length - 1

    def sums(self, values: np.ndarray) -> np.ndarray:
        """[n]: the sum of `values` [L] over each walk."""
        return np.add.reduceat(values, self.offset)


def find_walks(dataset: Dataset) -> Walks:
    """The walks of all episodes whose first row starts a transition.

    Raises:
        DataError: there is none.
    """
    first = np.flatnonzero(np.isin(dataset.start, dataset.episode_start))
    if len(first) == 0:
        raise DataError(
            f"{dataset.metadata.get('name', 'the data set')} has no episode whose first step is "
            "known, so there is no first state to estimate a policy's value from"
        )
    chained = dataset.next_rows_chain()
    length = dataset.steps_left()[first].astype(np.int64) if chained else np.ones_like(first)
    terminated = dataset.termination[dataset.start[first + length - 1]]
    return Walks(first, length, terminated, chained)


def resampled(walks: int) -> np.ndarray:
    """[1 + B, n] uint8: how often each walk is drawn; the first row draws each once."""
    generator = np.random.default_rng(0)
    resamples = int(np.clip(DRAWS // walks, *RESAMPLES))
    counts = np.ones((1 + resamples, walks), np.uint8)
    for row in counts[1:]:
        row[:] = np.bincount(generator.integers(walks, size=walks), minlength=walks)
    return counts
