"""`load_dataset`: one call for every source, told apart by what the source looks like."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from leeward.data import registry
from leeward.data.columns import Bound
from leeward.data.d4rl import Rows, read_d4rl
from leeward.data.dataset import Dataset
from leeward.data.download import Progress, cache_folder, fetch, mirrors
from leeward.data.hdf5_layouts import read_hdf5
from leeward.data.hints import Hints
from leeward.data.npz import read_npz
from leeward.data.ogbench import is_ogbench, read_ogbench
from leeward.data.rl_unplugged_shards import PREFIX, default_target, find_shards, is_shard
from leeward.data.table_columns import TableColumns
from leeward.errors import DataError, MissingExtra
from leeward.types import Box, Discrete

_SUFFIXES = (".hdf5", ".h5", ".npz", ".csv", ".parquet")
_MINARI_ID = re.compile(r"^(minari:)?([\w.-]+/)*[\w.-]+-v\d+$")


def load_dataset(
    source: str | Path | Dataset,
    *,
    d4rl_rows: Rows | None = None,
    env: str | None = None,
    columns: TableColumns | None = None,
    action_space: Box | Discrete | None = None,
    action_low: Bound = None,
    action_high: Bound = None,
    offline: bool = False,
    max_episode_steps: int | None = None,
    frame_stack: int | None = None,
    strict: bool = True,
    on_progress: Progress | None = None,
) -> Dataset:
    """The data set that `source` means, checked and ready to train on.

    Its metadata hold `name`, `source`, `env` (the environment it implies, if any), `reference`
    (what `normalized_score` goes by), `d4rl_rows` for D4RL files, and `notes`, a list of all that
    was taken for granted.

    Args:
        source: a name (`leeward list datasets`), a path (.hdf5, .h5, .npz, .csv, .parquet, or a
            Minari folder), an http or https address of such a file, a Minari id
            (mujoco/hopper/expert-v0; minari:NAME where a D4RL name is the same), or a `Dataset`,
            which is returned as it is.
        d4rl_rows: how D4RL files are read; default "qlearning" for D4RL names, else "all".
        env: the environment, where the data implies none; used for its step limit and scores.
        columns: which columns of a table hold what; by default guessed from plain names.
        action_space: the environment's action space; it comes before all else.
        action_low: lower action bound, a number or one a dimension, where neither the environment
            nor the data gives one; default −1 for D4RL layout, else the data's minimum.
        action_high: the same, upper.
        offline: never use the network.
        max_episode_steps: the task's step limit, for data that does not record truncations.
        frame_stack: how many rows make one observation, where rows hold single frames and the data
            does not say.
        strict: refuse what cannot be trained on; without it (for `inspect`) NaN and actions
            outside the box are kept.
        on_progress: called with (bytes so far, bytes in all) during a download.

    Raises:
        DataError: the source is not known, not there, not whole, or not fit.
        MissingExtra: what reads it is not installed (tables, Minari's downloads).
    """
    if frame_stack is not None:
        loaded = load_dataset(
            source,
            d4rl_rows=d4rl_rows,
            env=env,
            columns=columns,
            action_space=action_space,
            action_low=action_low,
            action_high=action_high,
            offline=offline,
            max_episode_steps=max_episode_steps,
            strict=strict,
            on_progress=on_progress,
        )
        return _stacked(loaded, frame_stack)
    if isinstance(source, Dataset):
        return source
    hints = Hints(action_space, action_low, action_high, max_episode_steps, env, {}, strict)
    text = str(source)
    entry = registry.find(text) if isinstance(source, str) else None
    if entry is not None:
        _refuse_columns(text, columns)
        return _named(entry, d4rl_rows, hints, offline, on_progress)
    if text.startswith(PREFIX):
        return _at_path(_converted(text), d4rl_rows, columns, hints)
    if "://" in text:
        path = _from_address(text, offline, on_progress)
        hints = dataclasses.replace(hints, metadata={"source": text})
        return _at_path(path, d4rl_rows, columns, hints)
    path = Path(text).expanduser()
    if path.exists():
        return _at_path(path, d4rl_rows, columns, hints)
    if isinstance(source, str) and _MINARI_ID.match(text) and ("/" in text or ":" in text):
        _refuse_columns(text, columns)
        _refuse_rows(text, d4rl_rows)
        return _minari(text.removeprefix("minari:"), hints, offline)
    if path.suffix.lower() in _SUFFIXES or path.parent != Path():
        raise DataError(f"no such file: {path}")
    raise DataError(
        f"unknown data set '{text}'.{registry.suggest(text)} Give a name ('leeward list "
        "datasets' shows them), a path, an address or a Minari id"
    )


def local_path(source: str | Path, *, offline: bool = False) -> Path:
    """The file or folder that `load_dataset` reads for a source, fetched if it is not there.

    Raises:
        DataError: the source is not known, or cannot be fetched.
    """
    text = str(source)
    entry = registry.find(text) if isinstance(source, str) else None
    if entry is not None:
        return _file_of(entry, offline, None)
    if text.startswith(PREFIX):
        return _converted(text)
    if "://" in text:
        return _from_address(text, offline, None)
    path = Path(text).expanduser()
    if isinstance(source, str) and not path.exists() and _MINARI_ID.match(text):
        from leeward.data.minari import minari_folder  # minari takes a while to import

        return minari_folder(text.removeprefix("minari:"), offline=offline)
    return path


def _stacked(dataset: Dataset, frames: int) -> Dataset:
    """The data set with `frames` rows an observation; rows may have one channel."""
    name = dataset.metadata.get("name", "the data set")
    if frames < 1 or dataset.frame_stack not in (1, frames):
        own = f"the data set says {dataset.frame_stack}" if frames >= 1 else "must be at least 1"
        raise DataError(f"{name}: --frame-stack {frames}: {own}")
    shape = dataset.observation.shape[1:]
    if len(shape) == 3 and 1 in (shape[0], shape[2]):
        shape = shape[1:] if shape[0] == 1 else shape[:2]
    if dataset.observation.dtype != np.uint8 or len(shape) != 2:
        raise DataError(
            f"{name}: --frame-stack needs rows of one gray image of bytes (uint8), they are "
            f"{dataset.observation.dtype} of shape {dataset.observation.shape[1:]}"
        )
    following = dataset.next_observation
    return dataclasses.replace(
        dataset,
        observation=dataset.observation.reshape(-1, *shape),
        next_observation=None if following is None else following.reshape(-1, *shape),
        metadata={**dataset.metadata, "frame_stack": frames},
    )


def _named(
    entry: registry.Entry,
    rows: Rows | None,
    hints: Hints,
    offline: bool,
    on_progress: Progress | None,
) -> Dataset:
    """A data set of the registry: shipped, or fetched into the cache."""
    path = _file_of(entry, offline, on_progress)
    if entry.path is not None:
        metadata = {"name": entry.name, "source": entry.name}
        hints = dataclasses.replace(hints, metadata=metadata)
        return read_d4rl(path, rows=rows or "all", hints=hints)
    url = str(entry.url)
    metadata: dict[str, Any] = {"name": entry.name, "source": url, "reference": entry.name}
    if entry.env is not None:
        metadata["env"] = entry.env
    elif hints.env is None:
        metadata["notes"] = [
            f"no current environment matches {entry.name} ({entry.no_env_reason}): it trains "
            "without evaluation; --env names one"
        ]
    hints = dataclasses.replace(
        hints,
        metadata=metadata,
        max_episode_steps=hints.max_episode_steps or entry.max_episode_steps,
    )
    return read_d4rl(path, rows=rows or "qlearning", hints=hints)


def _file_of(entry: registry.Entry, offline: bool, on_progress: Progress | None) -> Path:
    """The file of a data set of the registry, fetched into the cache where it is not shipped."""
    if entry.path is not None:
        return entry.path
    path = cache_folder() / "d4rl" / f"{entry.name}.hdf5"
    fetch(entry.name, mirrors(str(entry.url)), path, offline=offline, on_progress=on_progress)
    return path


def _converted(name: str) -> Path:
    """The file that was made of a shard of RL Unplugged."""
    shards = find_shards(name)
    if len(shards) == 1 and (path := default_target(shards[0])).exists():
        return path
    raise DataError(
        f"{name}: convert it first: leeward convert {name}, then give the file"
        + ("" if len(shards) == 1 else " of one shard")
    )


def _at_path(path: Path, rows: Rows | None, columns: TableColumns | None, hints: Hints) -> Dataset:
    """A data set in a file, told apart by its ending, or in a Minari folder."""
    if path.is_dir():
        if not ((path / "data" / "metadata.json").exists() or (path / "metadata.json").exists()):
            raise DataError(f"{path} is a folder, and no Minari data set: give a file in it")
        _refuse_columns(str(path), columns)
        _refuse_rows(str(path), rows)
        return _minari(path, hints, offline=True)
    if not os.access(path, os.R_OK):
        raise DataError(f"{path} may not be read: check its permissions")
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".parquet"):
        _refuse_columns(str(path), columns)
    if suffix not in (".hdf5", ".h5"):
        _refuse_rows(str(path), rows)
    if suffix in (".hdf5", ".h5"):
        return read_hdf5(path, rows=rows, hints=hints)
    if suffix == ".npz":
        return read_ogbench(path, hints=hints) if is_ogbench(path) else read_npz(path, hints=hints)
    if suffix in (".csv", ".parquet"):
        if importlib.util.find_spec("pyarrow") is None:
            raise MissingExtra("pyarrow", "tables", str(path))
        from leeward.data.table import read_table  # pyarrow takes a while to import

        return read_table(path, columns=columns, hints=hints)
    if is_shard(str(path)):
        raise DataError(
            f"{path} is a shard of RL Unplugged: leeward convert {path} TARGET.hdf5 makes a data "
            "set of it"
        )
    raise DataError(f"{path}: unknown file type '{path.suffix}'; known are {', '.join(_SUFFIXES)}")


def _minari(source: str | Path, hints: Hints, offline: bool) -> Dataset:
    from leeward.data.minari import read_minari  # minari takes a while to import

    return read_minari(source, offline=offline, hints=hints)


def _from_address(address: str, offline: bool, on_progress: Progress | None) -> Path:
    """The file at an address, fetched into the cache."""
    parts = urlsplit(address)
    name = PurePosixPath(parts.path).name
    if parts.scheme not in ("http", "https"):
        raise DataError(f"{address}: only http and https addresses can be fetched")
    if PurePosixPath(name).suffix.lower() not in _SUFFIXES:
        raise DataError(
            f"{address} does not end in a known file type; known are {', '.join(_SUFFIXES)}"
        )
    folder = hashlib.sha256(address.encode()).hexdigest()[:16]
    path = cache_folder() / "addresses" / folder / name
    return fetch(address, (address,), path, offline=offline, on_progress=on_progress)


def _refuse_columns(source: str, columns: TableColumns | None) -> None:
    if columns is not None and columns != TableColumns():
        raise DataError(f"{source} is no table: columns can be chosen in CSV and Parquet only")


def _refuse_rows(source: str, rows: Rows | None) -> None:
    if rows is not None:
        raise DataError(f"{source} is no D4RL file: --d4rl-rows does not apply")
