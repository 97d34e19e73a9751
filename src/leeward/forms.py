"""Which form of an algorithm a data set asks for: that for continuous or for discrete actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np

from leeward.algorithms import form_for, has_discrete_form
from leeward.data import registry
from leeward.data.dataset import Dataset
from leeward.data.fields import find_field
from leeward.data.hdf5 import open_hdf5, read_metadata
from leeward.data.load import load_dataset, local_path
from leeward.data.mapped import mapped
from leeward.data.npz import open_npz, short_values
from leeward.data.table_columns import TableColumns
from leeward.environments import environment_spec
from leeward.types import Algorithm, Box, Discrete

Location = Literal["memory", "disk"]
"""Where rows are while training (`RunOptions.data_location`)."""

EITHER = Box((-1.0,), (1.0,))
"""Stands for any continuous action space."""


def fitting_form(
    algorithm: Algorithm,
    data: str | Path | Dataset,
    env: str | Callable[[], Any] | None,
    data_options: Mapping[str, Any],
    location: Location = "memory",
    *,
    strict: bool = True,
) -> Algorithm:
    """The algorithm, or its form for discrete actions where the data has such.

    Args:
        algorithm: the one that was named.
        data: what it shall learn from.
        env: the environment, where one was named.
        data_options: arguments of `load_dataset` that JSON can hold.
        location: where its rows are to be.
        strict: as `load_dataset` has it.

    Raises:
        LeewardError: the data cannot be read, or the environment cannot be made.
    """
    if not has_discrete_form(algorithm):
        return algorithm
    return form_for(algorithm, _action_space(data, env, data_options, location, strict))


def read(
    data: str | Path | Dataset,
    env: str | Callable[[], Any] | None,
    data_options: Mapping[str, Any],
    location: Location = "memory",
    *,
    strict: bool = True,
) -> Dataset:
    """The data set, its action space taken from the environment where one was named.

    With `location` "disk" the large columns of data that is no `Dataset` are mapped files; without
    `strict` faults of values are kept, as `load_dataset` has it.
    """
    space = environment_spec(env).action if env is not None else None
    arguments = dict(data_options)
    if "columns" in arguments:
        arguments["columns"] = TableColumns(**arguments["columns"])
    arguments |= {"env": env if isinstance(env, str) else None, "action_space": space}
    if not strict:
        arguments["strict"] = False
    if location == "memory" or isinstance(data, Dataset):
        return load_dataset(data, **arguments)
    path = local_path(data, offline=bool(arguments.get("offline")))
    if not path.exists():
        return load_dataset(data, **arguments)  # says what is wrong
    decisive = {**data_options, "env": arguments["env"], "space": space, "source": str(data)}
    if not strict:
        decisive["strict"] = False
    return mapped(path, decisive, lambda: load_dataset(data, **arguments))


def _action_space(
    data: str | Path | Dataset,
    env: str | Callable[[], Any] | None,
    data_options: Mapping[str, Any],
    location: Location,
    strict: bool,
) -> Box | Discrete:
    """A space of the right kind, without reading more of the data than it takes."""
    if isinstance(data, Dataset):
        return data.action_space
    if env is not None:
        return environment_spec(env).action
    if isinstance(data, str) and registry.find(data) is not None:
        return EITHER  # D4RL has no discrete actions
    path = Path(data).expanduser()
    bounded = "action_low" in data_options or "action_high" in data_options
    found = None
    if path.is_file() and path.suffix.lower() in (".hdf5", ".h5"):
        found = _in_hdf5(path, bounded)
    elif path.is_file() and path.suffix.lower() == ".npz":
        found = _in_npz(path, bounded)
    return found or read(data, env, data_options, location, strict=strict).action_space


def _in_hdf5(path: Path, bounded: bool) -> Box | Discrete | None:
    """By what the file states and the type it stores; None where it is of another layout."""
    with open_hdf5(path) as file:
        stated = read_metadata(file)
        key = find_field("action", list(file.keys()))
        column = None if key is None else file.get(key)
        if not isinstance(column, h5py.Dataset):
            return None
        return _kind(stated, column.dtype, bounded)


def _in_npz(path: Path, bounded: bool) -> Box | Discrete | None:
    """The same for an archive of arrays."""
    with open_npz(path) as archive:
        key = find_field("action", list(archive.keys()))
        if key is None:
            return None
        return _kind(short_values(archive), archive[key].dtype, bounded)


def _kind(stated: Mapping[str, Any], dtype: np.dtype, bounded: bool) -> Box | Discrete:
    """By the number of actions or the bounds that are stated, else by the type that is stored."""
    bounded = bounded or "action_low" in stated
    if "action_count" in stated or (dtype.kind in "iub" and not bounded):
        return Discrete(1)
    return EITHER
