"""D4RL-layout HDF5 in two readings.

"qlearning" gives exactly the transitions of D4RL's `qlearning_dataset`, which published scores
use: rows that timed out are dropped, also those that terminated; the file's last row is dropped;
the next observation is always the next row, stored ones are not looked at. "all" keeps every row
that has a true next observation, stored or the next row's, and every termination.

Source: Fu et al. 2020 (arXiv:2004.07219) and the function `qlearning_dataset` of its code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from leeward.data.build import build
from leeward.data.dataset import Dataset
from leeward.data.fields import find_field, required_fields
from leeward.data.hdf5 import open_hdf5, read_column, read_metadata
from leeward.errors import DataError
from leeward.types import Box, Discrete

Rows = Literal["qlearning", "all"]

_ENVIRONMENT_ID = re.compile(r"^([\w:.-]+/)?[\w:.-]+-v\d+$")
_ENVIRONMENT_KEYS = ("env", "env_id", "env_name", "environment")


def read_d4rl(
    path: Path,
    *,
    rows: Rows = "all",
    max_episode_steps: int | None = None,
    step_limits: Mapping[str, int] | None = None,
    action_space: Box | Discrete | None = None,
    action_low: np.ndarray | float | None = None,
    action_high: np.ndarray | float | None = None,
    metadata: Mapping[str, Any] | None = None,
    strict: bool = True,
) -> Dataset:
    """The data set in a D4RL-layout HDF5 file.

    Args:
        path: an HDF5 file with observations, actions, rewards, terminals, and perhaps timeouts,
            next_observations and metadata.
        rows: the reading.
        max_episode_steps: the task's step limit, for files without `timeouts`.
        step_limits: environment id → step limit, where the file's metadata names one.
        action_space: the environment's, if known; it comes before the file's metadata.
        action_low: lower bound where neither the environment nor the metadata gives it; default −1.
        action_high: the same, upper; default 1.
        metadata: JSON values that come before the file's own, such as `name` and `env`.
        strict: as in `build`.

    Raises:
        DataError: a file that cannot be read, lacks a column, or does not fit together.
    """
    given = {"name": path.stem, "source": str(path), **(metadata or {})}
    notes = list(given.get("notes", ()))
    with open_hdf5(path) as file:
        names = required_fields(path, list(file.keys()))
        columns = {field: read_column(file, key) for field, key in names.items()}
        key = find_field("truncation", list(file.keys()))
        truncation = read_column(file, key) if key else None
        key = find_field("next_observation", list(file.keys()))
        stored_next = read_column(file, key) if key and rows == "all" else None
        in_file = read_metadata(file)
    given.update(_implied_environment(in_file, given, notes))
    if truncation is None:
        limit = max_episode_steps or (step_limits or {}).get(str(given.get("env")))
        truncation = _truncation_by_limit(path, columns["termination"], rows, limit, notes)
    else:
        limit = None
    transition = None
    if rows == "qlearning":
        transition = qlearning_rows(
            _flat(columns["termination"]), None if limit else _flat(truncation), limit
        )
    low, high, count = action_bounds(path, in_file, action_space, action_low, action_high)
    if in_file:
        given["file_metadata"] = in_file
    given["d4rl_rows"] = rows
    given["notes"] = notes
    return build(
        **columns,
        truncation=truncation,
        next_observation=stored_next,
        transition=transition,
        action_low=low if low is not None or not _is_float(columns["action"]) else -1.0,
        action_high=high if high is not None or not _is_float(columns["action"]) else 1.0,
        action_count=count,
        metadata=given,
        strict=strict,
    )


def qlearning_rows(
    termination: np.ndarray, timeout: np.ndarray | None, max_episode_steps: int | None
) -> np.ndarray:
    """[R] bool: the rows that D4RL's `qlearning_dataset` keeps.

    Without `timeout` that function counts steps, and starts from 1 (not 0) after a termination it
    keeps: the count is raised after it was set back. From then on the row that it takes for the
    time limit lies one step early. Published scores were computed so, hence the same here.
    """
    rows = len(termination)
    if timeout is not None:
        timed_out = timeout.astype(bool)
    else:
        assert max_episode_steps is not None
        timed_out = _counted_timeouts(termination.astype(bool), max_episode_steps)
    keep = ~timed_out
    keep[rows - 1 :] = False
    return keep


def _counted_timeouts(termination: np.ndarray, limit: int) -> np.ndarray:
    """[R] bool: where D4RL's own step count reaches the limit."""
    timed_out = np.zeros(len(termination), bool)
    begin, count = 0, 0  # the first row of a stretch that ends in a termination, and its count
    for end in [*np.flatnonzero(termination).tolist(), len(termination) - 1]:
        timed_out[begin + limit - 1 - count : end + 1 : limit] = True
        begin, count = end + 1, 0 if timed_out[end] else 1
    return timed_out


def _truncation_by_limit(
    path: Path, termination: np.ndarray, rows: Rows, limit: int | None, notes: list[str]
) -> np.ndarray | None:
    """[R] bool: true time limits, counted from every episode's first row; None if unknown."""
    if limit is None and rows == "qlearning":
        raise DataError(
            f"{path} has no 'timeouts', and the task's step limit is not known: give it with "
            "--max-episode-steps, or use --d4rl-rows all"
        )
    if limit is None:
        notes.append(
            "no timeouts recorded and no step limit known: episodes end at terminations only; "
            "--max-episode-steps N cuts them"
        )
        return None
    ended = _flat(termination).astype(bool)
    begin = np.concatenate([[0], np.flatnonzero(ended[:-1]) + 1])
    index = np.arange(len(ended))
    step = index - begin[np.searchsorted(begin, index, "right") - 1]
    notes.append(f"no timeouts recorded: episodes end after {limit} steps, the task's limit")
    return ((step + 1) % limit == 0) & ~ended


def action_bounds(
    path: Path,
    in_file: Mapping[str, Any],
    space: Box | Discrete | None,
    low: np.ndarray | float | None,
    high: np.ndarray | float | None,
) -> tuple[np.ndarray | float | None, np.ndarray | float | None, int | None]:
    """(low, high, count): the environment's, else the metadata's, else the flags'.

    Raises:
        DataError: flags that contradict what comes before them.
    """
    if isinstance(space, Discrete):
        return None, None, space.size
    if isinstance(space, Box):
        known, owner = (np.array(space.low), np.array(space.high)), "the environment's"
    elif "action_low" in in_file and "action_high" in in_file:
        known = (np.array(in_file["action_low"]), np.array(in_file["action_high"]))
        owner = "the file's own"
    else:
        count = in_file.get("action_count")
        return low, high, int(count) if count is not None else None
    for side, flag, value in (("low", low, known[0]), ("high", high, known[1])):
        if flag is not None and not np.allclose(flag, value):
            raise DataError(
                f"{path}: --action-{side} {np.ravel(flag).tolist()} contradicts {owner} bound "
                f"{np.ravel(value).tolist()}: leave the flag out"
            )
    return known[0], known[1], None


def _implied_environment(
    in_file: Mapping[str, Any], given: Mapping[str, Any], notes: list[str]
) -> dict[str, str]:
    """{"env": id} from the file's metadata, where nothing else names the environment."""
    if given.get("env") is not None:
        return {}
    for key in _ENVIRONMENT_KEYS:
        named = in_file.get(key)
        if isinstance(named, str):
            if _ENVIRONMENT_ID.match(named):
                return {"env": named}
            notes.append(f"the file names '{named}', which is no environment id")
    return {}


def _flat(array: np.ndarray) -> np.ndarray:
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def _is_float(array: np.ndarray) -> bool:
    return array.dtype.kind == "f"
