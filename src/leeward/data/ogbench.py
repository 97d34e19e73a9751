"""OGBench .npz files (Park et al. 2024, arXiv:2410.20092).

Their `terminals` mark the last row of every trajectory, which holds an observation that no action
was taken from; they do not say that the task ended. That is what `masks` say, where a file has
them: 0 where the task was solved and nothing is left to bootstrap from. Raw files have no
rewards: those are computed from a goal by the package `ogbench`, so they serve imitation only.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from leeward.data.dataset import Dataset
from leeward.data.hints import Hints, assemble, flat
from leeward.data.npz import open_npz, short_values
from leeward.errors import DataError


def is_ogbench(path: Path) -> bool:
    """Whether an .npz file has OGBench's columns."""
    with open_npz(path) as archive:
        keys = set(archive.keys())
    if not {"observations", "actions", "terminals"} <= keys:
        return False
    return bool({"masks", "valids"} & keys) or ("qpos" in keys and "rewards" not in keys)


def read_ogbench(path: Path, *, hints: Hints | None = None) -> Dataset:
    """The data set in an OGBench .npz file, raw or with rewards and masks added.

    Args:
        path: arrays observations, actions, terminals; perhaps rewards and masks; perhaps
            next_observations (then every row is a step) or valids (0 at last observations).
        hints: what the caller knows of the data. Without bounds, actions lie in [−1, 1].

    Raises:
        DataError: a file that cannot be read or does not fit together.
    """
    notes = []
    with open_npz(path) as archive:
        keys = set(archive.keys())
        observation, action = archive["observations"], archive["actions"]
        end = _flags(archive["terminals"])
        reward = archive["rewards"] if "rewards" in keys else None
        solved = np.zeros(len(end), bool)
        if "masks" in keys:
            solved = ~_flags(archive["masks"])
        stored_next = archive["next_observations"] if "next_observations" in keys else None
        only_observation = ~_flags(archive["valids"]) if "valids" in keys else end
        in_file = short_values(archive)
    if reward is None:
        reward = np.zeros(len(end), np.float32)
        notes.append("no rewards in the file: they are 0 here, which serves imitation only")
    if len({len(observation), len(action), len(reward), len(solved), len(end)}) > 1:
        raise DataError(f"{path}: columns differ in length")
    if stored_next is None:
        # The row after a step always exists: a trajectory's last row is no step.
        step = ~only_observation
        step[-1] = False
        following = np.flatnonzero(step) + 1
        stored_next = observation[following]
        end = only_observation[following]
        observation, action, reward = observation[step], action[step], reward[step]
        solved = solved[step]
    columns = {
        "observation": observation,
        "action": action,
        "reward": reward,
        "termination": solved,
        "truncation": end & ~solved,
        "next_observation": stored_next,
    }
    return assemble(path, columns, in_file, hints or Hints(), notes=notes, default_bound=1.0)


def _flags(array: np.ndarray) -> np.ndarray:
    """[R] bool of numbers 0 and 1."""
    return np.asarray(flat(array), bool)
