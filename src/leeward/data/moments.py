"""Mean, spread and range of columns in one pass each, block by block: memory does not grow."""

from __future__ import annotations

import numpy as np

BLOCK_BYTES = 2**24
"""Bytes of float64 taken at once; ours."""


def mean_and_std(observation: np.ndarray, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """([*obs], [*obs]) float64: mean and standard deviation of the rows `row`, at least one.

    Sums go from the first row to the last whatever the size of blocks, so data in memory and data
    on disk have the same moments to the bit.
    """
    size = 8 * int(np.prod(observation.shape[1:]))
    step = max(1, BLOCK_BYTES // size)
    begins = range(0, len(row), step)
    total = np.zeros(observation.shape[1:])
    for begin in begins:
        total = _added(total, observation[row[begin : begin + step]].astype(np.float64))
    mean = total / len(row)
    squares = np.zeros(observation.shape[1:])
    for begin in begins:
        difference = observation[row[begin : begin + step]] - mean[None]
        squares = _added(squares, difference * difference)
    return mean, np.sqrt(squares / len(row))


def low_and_high(column: np.ndarray, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """([size], [size]): the least and the largest of every number in the rows `row` [R, size]."""
    step = max(1, BLOCK_BYTES // (column.itemsize * column.shape[1]))
    low, high = column[row[0]], column[row[0]]
    for begin in range(0, len(row), step):
        block = column[row[begin : begin + step]]
        low, high = np.minimum(low, block.min(axis=0)), np.maximum(high, block.max(axis=0))
    return low, high


def _added(total: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The total with all rows added in turn."""
    if rows[0].size == 1:  # NumPy sums one column in pairs: add in turn, as with several
        return np.cumsum(np.concatenate([total[None], rows]), axis=0)[-1]
    return np.add.reduce(np.concatenate([total[None], rows]), axis=0)
