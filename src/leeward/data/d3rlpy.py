"""Data sets that d3rlpy saved as HDF5: version 2 (`ReplayBuffer.dump`), one array an episode.

Version 1 (`MDPDataset.dump`) has D4RL's columns and `episode_terminals`: every end of an episode,
the task's or not; `read_d3rlpy` reads it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from leeward.data.dataset import Dataset
from leeward.data.hdf5 import read_column
from leeward.data.hints import Hints, assemble, flat
from leeward.errors import DataError

_V2 = ("observations", "actions", "rewards", "terminated")
_V1 = {
    "observation": "observations",
    "action": "actions",
    "reward": "rewards",
    "termination": "terminals",
}


def is_d3rlpy(keys: Sequence[str]) -> bool:
    """Whether a file with these columns is d3rlpy's, of either version."""
    return _is_v2(keys) or "episode_terminals" in keys


def read_d3rlpy(path: Path, file: h5py.File, hints: Hints) -> Dataset:
    """The data set in an open file.

    Raises:
        DataError: an episode or a column that lacks, or observations of several parts.
    """
    keys = set(file.keys())
    if not _is_v2(list(keys)):
        return _read_v1(path, file, hints)
    count = int(np.ravel(read_column(file, "num_episodes"))[0])
    if count < 1:
        raise DataError(f"{path} is a d3rlpy data set without an episode")
    parts: dict[str, list[np.ndarray]] = {key: [] for key in _V2}
    for episode in range(count):
        for key in _V2:
            name = f"{key}_{episode}"
            if f"{name}_0" in keys and name not in keys:
                raise DataError(
                    f"{path}: {key} of episode {episode} have several parts (a tuple), which is "
                    "not supported: save the part you need"
                )
            if name not in keys:
                raise DataError(f"{path} has no '{name}': it says it has {count} episodes")
            parts[key].append(read_column(file, name))
    lengths = np.array([len(reward) for reward in parts["rewards"]])
    if (lengths == 0).any():
        raise DataError(f"{path}: episode {int(np.argmin(lengths))} is empty")
    last = np.cumsum(lengths) - 1
    ended = np.array([bool(np.ravel(flag)[0]) for flag in parts["terminated"]])
    termination, truncation = (np.zeros(int(lengths.sum()), bool) for _ in range(2))
    termination[last], truncation[last] = ended, ~ended
    columns: dict[str, np.ndarray | None] = {
        "observation": np.concatenate(parts["observations"]),
        "action": np.concatenate(parts["actions"]),
        "reward": flat(np.concatenate(parts["rewards"])),
        "termination": termination,
        "truncation": truncation,
        "next_observation": None,
    }
    notes = ["d3rlpy keeps no observation after an episode's last step"]
    return assemble(path, columns, {}, hints, notes=notes)


def _read_v1(path: Path, file: h5py.File, hints: Hints) -> Dataset:
    columns: dict[str, np.ndarray | None] = {}
    for ours, key in _V1.items():
        if key not in file:
            raise DataError(f"{path} has no '{key}': it holds {', '.join(sorted(file))}")
        columns[ours] = read_column(file, key)
    termination = flat(np.asarray(columns["termination"])).astype(bool)
    ended = flat(read_column(file, "episode_terminals")).astype(bool)
    columns |= {
        "termination": termination,
        "truncation": ended & ~termination,
        "next_observation": None,
    }
    return assemble(path, columns, _v1_metadata(file), hints, notes=[])


def _v1_metadata(file: h5py.File) -> dict[str, Any]:
    """How many actions there are, where d3rlpy says that they are discrete."""
    if "discrete_action" not in file or not np.ravel(read_column(file, "discrete_action"))[0]:
        return {}
    return {"action_count": int(np.max(read_column(file, "actions"))) + 1}


def _is_v2(keys: Sequence[str]) -> bool:
    return {"columns", "num_episodes"} <= set(keys)
