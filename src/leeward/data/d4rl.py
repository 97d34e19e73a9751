"""D4RL-layout HDF5 in two readings.

"qlearning" gives exactly the transitions of D4RL's `qlearning_dataset`, which published scores
use: rows that timed out are dropped, also those that terminated; the file's last row is dropped;
the next observation is always the next row, stored ones are not looked at. "all" keeps every row
that has a true next observation, stored or the next row's, and every termination.

Source: Fu et al. 2020 (arXiv:2004.07219) and the function `qlearning_dataset` of its code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from leeward.data.dataset import Dataset
from leeward.data.fields import find_field, required_fields
from leeward.data.hdf5 import open_hdf5, read_column, read_metadata
from leeward.data.hints import Hints, assemble, flat, truncation_by_limit
from leeward.errors import DataError

Rows = Literal["qlearning", "all"]


def read_d4rl(path: Path, *, rows: Rows = "all", hints: Hints | None = None) -> Dataset:
    """The data set in a D4RL-layout HDF5 file.

    Args:
        path: an HDF5 file with observations, actions, rewards, terminals, and perhaps timeouts,
            next_observations and metadata.
        rows: the reading.
        hints: what the caller knows of the data. Without bounds, actions lie in [−1, 1].

    Raises:
        DataError: a file that cannot be read, lacks a column, or does not fit together.
    """
    hints = hints or Hints()
    notes: list[str] = []
    with open_hdf5(path) as file:
        keys = list(file.keys())
        columns: dict[str, np.ndarray | None] = {
            field: read_column(file, key) for field, key in required_fields(path, keys).items()
        }
        key = find_field("truncation", keys)
        timeout = read_column(file, key) if key else None
        key = find_field("next_observation", keys)
        columns["next_observation"] = read_column(file, key) if key and rows == "all" else None
        in_file = read_metadata(file)
    termination = columns["termination"]
    if termination is None or termination.ndim == 0 or len(termination) == 0:
        raise DataError(f"{path} is empty: 'terminals' has no row")
    truncation, limit = timeout, None
    if timeout is None:
        truncation, limit = truncation_by_limit(termination, in_file, hints, notes)
        if limit is None and rows == "qlearning":
            raise DataError(
                f"{path} has no 'timeouts', and the task's step limit is not known: give it with "
                "--max-episode-steps, or use --d4rl-rows all"
            )
        if limit is None and columns["next_observation"] is None:
            notes.append(
                "no timeouts recorded and no step limit known: episodes end at terminations "
                "only; --max-episode-steps N cuts them"
            )
    transition = None
    if rows == "qlearning":
        transition = qlearning_rows(
            flat(termination).astype(bool),
            None if timeout is None else flat(timeout).astype(bool),
            limit or 0,
        )
    columns["truncation"] = truncation
    dataset = assemble(
        path,
        columns,
        in_file,
        hints,
        notes=notes,
        default_bound=1.0,
        transition=transition,
    )
    return dataset.with_metadata(d4rl_rows=rows)


def qlearning_rows(
    termination: np.ndarray, timeout: np.ndarray | None, max_episode_steps: int
) -> np.ndarray:
    """[R] bool: the rows that D4RL's `qlearning_dataset` keeps.

    Without `timeout` that function counts steps, and starts from 1 (not 0) after a termination it
    keeps: the count is raised after it was set back. From then on the row that it takes for the
    time limit lies one step early. Published scores were computed so, hence the same here.

    Args:
        termination: [R] bool.
        timeout: [R] bool, or None where the file has none.
        max_episode_steps: the task's step limit; used without `timeout` only.
    """
    timed_out = timeout
    if timed_out is None:
        timed_out = _counted_timeouts(termination, max_episode_steps)
    keep = ~timed_out
    keep[-1] = False
    return keep


def _counted_timeouts(termination: np.ndarray, limit: int) -> np.ndarray:
    """[R] bool: where D4RL's own step count reaches the limit."""
    timed_out = np.zeros(len(termination), bool)
    begin, count = 0, 0  # the first row of a stretch that ends in a termination, and its count
    for end in [*np.flatnonzero(termination).tolist(), len(termination) - 1]:
        timed_out[begin + limit - 1 - count : end + 1 : limit] = True
        begin, count = end + 1, 0 if timed_out[end] else 1
    return timed_out
