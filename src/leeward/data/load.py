"""`load_dataset`: one call for every source, told apart by what the source looks like."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from leeward.data.d4rl import Rows, read_d4rl
from leeward.data.dataset import Dataset
from leeward.errors import DataError
from leeward.types import Box, Discrete

_HDF5 = (".hdf5", ".h5")


def load_dataset(
    source: str | Path | Dataset,
    *,
    d4rl_rows: Rows | None = None,
    env: str | None = None,
    action_space: Box | Discrete | None = None,
    action_low: np.ndarray | float | None = None,
    action_high: np.ndarray | float | None = None,
    max_episode_steps: int | None = None,
    strict: bool = True,
) -> Dataset:
    """The data set at a path."""
    if isinstance(source, Dataset):
        return source
    path = Path(source).expanduser()
    if not path.is_file():
        raise DataError(f"no such file: {path}")
    if path.suffix.lower() not in _HDF5:
        raise DataError(f"{path}: unknown file type '{path.suffix}'")
    return read_d4rl(
        path,
        rows=d4rl_rows or "all",
        max_episode_steps=max_episode_steps,
        action_space=action_space,
        action_low=action_low,
        action_high=action_high,
        metadata={} if env is None else {"env": env},
        strict=strict,
    )
