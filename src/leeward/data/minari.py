"""Minari data sets, local (by id or folder) or fetched by id through minari itself."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import gymnasium
import minari
import numpy as np
from gymnasium import spaces
from minari.storage.datasets_root_dir import get_dataset_path

from leeward.data.dataset import Dataset
from leeward.data.hints import Hints, assemble
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
    bounds, notes = _action_bounds(name, stored.action_space)
    columns = _columns(name, stored)
    metadata: dict[str, Any] = {"name": name, "source": f"minari:{name}", **hints.metadata}
    spec = stored.env_spec
    if spec is not None and "env" not in metadata:
        metadata["env"] = spec.id
        kwargs = _json_or_none(spec.kwargs)
        if kwargs:
            metadata["env_kwargs"] = kwargs
    own = stored.storage.metadata
    if own.get("ref_min_score") is not None and own.get("ref_max_score") is not None:
        metadata["reference_scores"] = {
            "minimum": float(own["ref_min_score"]),
            "maximum": float(own["ref_max_score"]),
        }
    hints = dataclasses.replace(hints, metadata=metadata)
    return assemble(Path(name), columns, bounds, hints, notes=notes)


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


def _columns(name: str, stored: minari.MinariDataset) -> dict[str, np.ndarray | None]:
    """One array a column; every Minari episode holds its last observation."""
    episodes = list(stored.iterate_episodes())
    if not episodes:
        raise DataError(f"the Minari data set {name} is empty: it has no episode")
    for episode in episodes:
        if len(episode.observations) != len(episode.rewards) + 1:
            raise DataError(
                f"the Minari data set {name}: episode {episode.id} has "
                f"{len(episode.observations)} observations for {len(episode.rewards)} steps, "
                "there must be one more"
            )
    return {
        "observation": np.concatenate([episode.observations[:-1] for episode in episodes]),
        "action": np.concatenate([episode.actions for episode in episodes]),
        "reward": np.concatenate([episode.rewards for episode in episodes]),
        "termination": np.concatenate([episode.terminations for episode in episodes]),
        "truncation": np.concatenate([_ended(episode) for episode in episodes]),
        "next_observation": np.concatenate([episode.observations[1:] for episode in episodes]),
    }


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


def _json_or_none(value: Any) -> Any:
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError):
        return None
