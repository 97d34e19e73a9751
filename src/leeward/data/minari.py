"""Minari data sets, local (by id or folder) or fetched by id through minari itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import minari
import numpy as np
from gymnasium import spaces
from minari.storage.datasets_root_dir import get_dataset_path

from leeward.data.allocation import allocate
from leeward.data.dataset import Dataset
from leeward.data.hints import Hints
from leeward.data.minari_environment import STACK, implied
from leeward.data.row_file import Rows, from_rows
from leeward.data.screens import gray_frames
from leeward.errors import DataError, MissingExtra


def read_minari(
    source: str | Path, *, offline: bool = False, hints: Hints | None = None
) -> Dataset:
    """The data set with a Minari id, or in a Minari folder.

    Args:
        source: an id such as mujoco/hopper/expert-v0, or the folder that holds `data/`.
        offline: never use the network.
        hints: what the caller knows of the data.

    Raises:
        DataError: not there, not readable, or with spaces other than Box and Discrete.
        MissingExtra: fetching needs a package that is not installed.
    """
    hints = hints or Hints()
    stored = _open(source, offline)
    name = str(stored.id)
    _check_observation_space(name, stored.observation_space)
    in_file, notes = _action_bounds(name, stored.action_space)
    found = implied(stored.env_spec, stored.observation_space)
    metadata: dict[str, Any] = {"name": name, "source": f"minari:{name}", **hints.metadata}
    if found.env is not None:
        metadata.setdefault("env", found.env)
    own = stored.storage.metadata
    if own.get("ref_min_score") is not None and own.get("ref_max_score") is not None:
        metadata["reference_scores"] = {
            "minimum": float(own["ref_min_score"]),
            "maximum": float(own["ref_max_score"]),
        }
    if found.screens:
        in_file["frame_stack"] = STACK
    rows = _rows(name, stored, found.screens)
    hints = dataclasses.replace(hints, metadata=metadata)
    return from_rows(Path(name), rows, in_file, hints, [*notes, *found.notes])


def minari_folder(name: str, *, offline: bool = False) -> Path:
    """The folder of the data set with this id, fetched if it is not there.

    Raises:
        DataError: as `read_minari`.
        MissingExtra: likewise.
    """
    _open(name, offline)
    return Path(get_dataset_path(name))


def _open(source: str | Path, offline: bool) -> minari.MinariDataset:
    if isinstance(source, Path):
        folder = source / "data" if (source / "data").exists() else source
    else:
        folder = get_dataset_path(source) / "data"
        if not folder.exists() and offline:
            raise DataError(
                f"the Minari data set {source} is not at {folder.parent} and the network is not "
                f"to be used: copy it there from a machine where 'minari download {source}' ran"
            )
    try:
        if not folder.exists():
            return minari.load_dataset(str(source), download=True)
        return minari.MinariDataset(folder)
    except ImportError as error:
        if "pyarrow" in str(error):
            raise MissingExtra("pyarrow", "tables", f"the Minari data set {source}") from error
        raise MissingExtra("huggingface_hub", "minari", "fetching a Minari data set") from error
    except Exception as error:  # minari raises errors of many kinds, network errors among them
        raise DataError(
            f"the Minari data set {source} cannot be read ({error}): check its id, or fetch it "
            f"with 'minari download {source}'"
        ) from error


def _rows(name: str, stored: minari.MinariDataset, screens: bool) -> Rows:
    """All rows, episode after episode; each ends with a row of its last observation.

    One episode is in memory at a time besides them, so that only its screens are there in colors.
    """
    steps, episodes = stored.total_steps, stored.total_episodes
    if not episodes:
        raise DataError(f"the Minari data set {name} is empty: it has no episode")
    rows, begin, lengths = None, 0, []
    for episode in _episodes(stored, one_by_one=screens):
        observation, length = _observations(name, episode), len(episode.rewards)
        if screens:
            observation = gray_frames(observation)
        if rows is None:
            rows = _empty_rows(steps + episodes, observation, np.asarray(episode.actions))
        end = begin + length
        if end >= len(rows.reward):
            raise _wrong_count(name, steps, episodes)
        with np.errstate(over="ignore"):  # too large for float32 becomes infinite, and is reported
            rows.observation[begin : end + 1] = observation
            rows.action[begin:end] = episode.actions
            rows.reward[begin:end] = episode.rewards
        rows.termination[begin:end] = episode.terminations
        rows.truncation[begin:end] = _ended(episode)
        rows.recorded[begin:end] = True
        del episode  # before the next one is read
        lengths.append(length + 1)
        begin = end + 1
    if rows is None or begin != len(rows.reward):
        raise _wrong_count(name, steps, episodes)
    return rows._replace(episode_start=np.concatenate([[0], np.cumsum(lengths)[:-1]]))


def _episodes(stored: minari.MinariDataset, *, one_by_one: bool) -> Iterator[minari.EpisodeData]:
    """All episodes; `one_by_one` each is read once the one before it is gone, file by file."""
    if not one_by_one:
        yield from stored.iterate_episodes()
        return
    for index in stored.episode_indices:
        yield from stored.iterate_episodes([index])


def _observations(name: str, episode: minari.EpisodeData) -> np.ndarray:
    """[T + 1, *obs]: an episode's, with its last."""
    observation, length = np.asarray(episode.observations), len(episode.rewards)
    if length == 0:
        raise DataError(f"the Minari data set {name}: episode {episode.id} has no step")
    if len(observation) != length + 1:
        raise DataError(
            f"the Minari data set {name}: episode {episode.id} has {len(observation)} observations "
            f"for {length} steps, there must be one more"
        )
    return observation


def _empty_rows(count: int, observation: np.ndarray, action: np.ndarray) -> Rows:
    """Rows of zeros that hold the like of one episode's observations and actions."""
    dtype = np.uint8 if observation.dtype == np.uint8 else np.float32
    return Rows(
        observation=allocate((count, *observation.shape[1:]), dtype),
        action=allocate((count, *action.shape[1:]), action.dtype),
        reward=allocate((count,), np.float32),
        termination=np.zeros(count, bool),
        truncation=np.zeros(count, bool),
        recorded=np.zeros(count, bool),
        episode_start=np.zeros(0, np.int64),
    )


def _wrong_count(name: str, steps: int, episodes: int) -> DataError:
    return DataError(
        f"the Minari data set {name} says that it has {steps:,} steps in {episodes:,} episodes, "
        "and holds another number: fetch it again"
    )


def _ended(episode: minari.EpisodeData) -> np.ndarray:
    """[T] bool: truncations, with an episode that merely stops taken as cut off."""
    truncation = np.array(episode.truncations, bool)
    truncation[-1] |= not episode.terminations[-1]
    return truncation


def _check_observation_space(name: str, space: gymnasium.Space) -> None:
    if not isinstance(space, spaces.Box | spaces.Discrete):
        raise _unsupported(name, "observation", space)


def _action_bounds(name: str, space: gymnasium.Space) -> tuple[dict[str, Any], list[str]]:
    """(bounds as file metadata, notes)."""
    if isinstance(space, spaces.Discrete):
        if space.start != 0:
            raise DataError(f"{name}: actions are numbered from {space.start}, not from 0")
        return {"action_count": int(space.n)}, []
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise _unsupported(name, "action", space)
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        return {}, ["the action space has no bounds"]
    return {"action_low": space.low.tolist(), "action_high": space.high.tolist()}, []


def _unsupported(name: str, what: str, space: gymnasium.Space) -> DataError:
    kinds = {
        spaces.Dict: "a dictionary",
        spaces.Tuple: "a tuple",
        spaces.MultiDiscrete: "multi-discrete",
        spaces.MultiBinary: "multi-binary",
        spaces.Text: "text",
    }
    kind = next((text for kind, text in kinds.items() if isinstance(space, kind)), str(space))
    keys = f" with {', '.join(space.spaces)}" if isinstance(space, spaces.Dict) else ""
    return DataError(
        f"{name}: the {what} space is {kind}{keys}; only one Box or Discrete space is supported: "
        "write the part you need as arrays (.npz) and load that"
    )
