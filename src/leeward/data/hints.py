"""What is known of a data set besides its rows: environment, action bounds, notes."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from leeward.data.build import build
from leeward.data.columns import Bound
from leeward.data.dataset import Dataset
from leeward.data.registry import step_limit
from leeward.errors import DataError, SpecError
from leeward.types import Box, Discrete

_ENVIRONMENT_ID = re.compile(r"^([\w:.-]+/)?[\w:.-]+-v\d+(\?\{.*\})?$")
_ENVIRONMENT_KEYS = ("env", "env_id", "env_name", "environment")
NAMES = ("observation_names", "action_names")
"""Metadata that name the columns of vectors; in files as JSON text, since lists there are short."""
LONGEST_LIST = 64
"""Values of a metadata array that are kept; ours: longer ones are data."""


@dataclasses.dataclass(frozen=True)
class Hints:
    """What the caller says about a file; every reader takes it."""

    action_space: Box | Discrete | None = None
    """The environment's; it comes before what the file says."""
    action_low: Bound = None
    """Lower bound, where neither the environment nor the file gives one."""
    action_high: Bound = None
    """The same, upper."""
    max_episode_steps: int | None = None
    """The task's step limit, for files that do not record truncations."""
    env: str | None = None
    """The environment, where neither `metadata` nor the file names one."""
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """JSON values that come before the file's own, such as `name` and `env`."""
    strict: bool = True
    """As in `build`."""


def assemble(
    path: Path,
    columns: Mapping[str, np.ndarray | None],
    in_file: Mapping[str, Any],
    hints: Hints,
    *,
    notes: list[str],
    default_bound: float | None = None,
    transition: np.ndarray | None = None,
    next_known: np.ndarray | None = None,
) -> Dataset:
    """The data set of a file's columns, by everything that is known of it.

    Args:
        path: the file, for messages.
        columns: the arguments of `build` that are columns.
        in_file: the file's own metadata.
        hints: what the caller says.
        notes: remarks so far, kept in the metadata.
        default_bound: b where the layout means actions in [−b, b]; None: the data's range.
        transition: as in `build`.
        next_known: as in `build`.

    Raises:
        DataError: as in `build`, or bounds that contradict each other.
        SpecError: actions of another kind or size than the environment's.
    """
    name = str(hints.metadata.get("name", path.stem))
    metadata = described(path, in_file, hints, notes)
    check_space(name, columns["action"], hints.action_space, metadata.get("env"))
    low, high, count = action_bounds(path, in_file, hints)
    if default_bound is not None and _is_float(columns["action"]):
        low = -default_bound if low is None else low
        high = default_bound if high is None else high
    return build(
        **columns,  # type: ignore[arg-type]
        transition=transition,
        next_known=next_known,
        action_low=low,
        action_high=high,
        action_count=count,
        metadata=metadata,
        strict=hints.strict,
    )


def described(
    path: Path, in_file: Mapping[str, Any], hints: Hints, notes: list[str]
) -> dict[str, Any]:
    """A data set's metadata: name, source, environment, reference scores, the file's own, notes."""
    env, env_notes = implied_environment(in_file, hints)
    metadata: dict[str, Any] = {"name": path.stem, "source": str(path), **hints.metadata}
    if env is not None:
        metadata["env"] = env
    if "reference_minimum" in in_file and "reference_maximum" in in_file:
        metadata["reference_scores"] = {
            "minimum": float(in_file["reference_minimum"]),
            "maximum": float(in_file["reference_maximum"]),
        }
    for key in NAMES:
        if key not in metadata and (names := column_names(in_file.get(key))):
            metadata[key] = names
    if int(in_file.get("frame_stack", 1)) > 1:
        metadata["frame_stack"] = int(in_file["frame_stack"])
    own_notes = [*hints.metadata.get("notes", ()), *notes, *env_notes]
    if str(in_file.get("rewards", "")).startswith("clipped"):
        own_notes.append(f"rewards are {in_file['rewards']}: what episodes returned is not known")
    if own_notes:
        metadata["notes"] = own_notes
    if in_file:
        metadata["file_metadata"] = dict(in_file)
    return metadata


def column_names(value: Any) -> list[str] | None:
    """The names in a list of texts or its JSON text; None for anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    texts = isinstance(value, list) and all(isinstance(name, str) for name in value)
    return value if texts else None


def check_space(
    name: str, action: np.ndarray | None, space: Box | Discrete | None, env: str | None
) -> None:
    """Raises SpecError where the environment's action space cannot be that of the data."""
    if space is None or action is None:
        return
    size = 1 if action.ndim == 1 else action.shape[1]
    if isinstance(space, Box):
        if size == space.size:
            return
        other = f"the environment's {space.size}"
    else:
        whole = not _is_float(action) or bool((action == np.floor(action)).all())
        if size == 1 and whole:
            return
        other = f"the environment's are one of {space.size}"
    come_from = f", {env}" if env else ""
    raise SpecError(
        f"{name} does not match the environment: its actions have {size} "
        f"dimension{'s' if size > 1 else ''}, {other}: use the environment that it comes "
        f"from{come_from}"
    )


def action_bounds(
    path: Path, in_file: Mapping[str, Any], hints: Hints
) -> tuple[Bound, Bound, int | None]:
    """(low, high, number of actions): the environment's, else the file's, else the caller's.

    Raises:
        DataError: the caller's bounds contradict what comes before them.
    """
    space = hints.action_space
    if isinstance(space, Discrete):
        return None, None, space.size
    if isinstance(space, Box):
        known, owner = (np.array(space.low), np.array(space.high)), "the environment's"
    elif "action_low" in in_file and "action_high" in in_file:
        known = (np.array(in_file["action_low"]), np.array(in_file["action_high"]))
        owner = "the file's own"
    else:
        count = in_file.get("action_count")
        return hints.action_low, hints.action_high, None if count is None else int(count)
    given = (("low", hints.action_low, known[0]), ("high", hints.action_high, known[1]))
    for side, flag, value in given:
        if flag is not None and not np.allclose(flag, value):
            raise DataError(
                f"{path}: --action-{side} {np.ravel(flag).tolist()} contradicts {owner} bound "
                f"{np.ravel(value).tolist()}: leave the flag out"
            )
    return known[0], known[1], None


def implied_environment(in_file: Mapping[str, Any], hints: Hints) -> tuple[str | None, list[str]]:
    """(environment id, notes): the caller's, else the one that the file's metadata names."""
    if hints.metadata.get("env") is not None:
        return str(hints.metadata["env"]), []
    for key in _ENVIRONMENT_KEYS:
        named = in_file.get(key)
        if isinstance(named, str):
            if _ENVIRONMENT_ID.match(named):
                return named, []
            return hints.env, [f"the file names '{named}', which is no environment id"]
    return hints.env, []


def truncation_by_limit(
    termination: np.ndarray, in_file: Mapping[str, Any], hints: Hints, notes: list[str]
) -> tuple[np.ndarray | None, int | None]:
    """([R] bool, limit): time limits counted from every episode's first row; None if unknown.

    The limit is the caller's, else that of the environment the data implies.
    """
    limit = hints.max_episode_steps or step_limit(implied_environment(in_file, hints)[0])
    if limit is None:
        return None, None
    ended = flat(termination).astype(bool)
    begin = np.concatenate([[0], np.flatnonzero(ended[:-1]) + 1])
    index = np.arange(len(ended))
    step = index - begin[np.searchsorted(begin, index, "right") - 1]
    notes.append(f"no timeouts recorded: episodes end after {limit} steps, the task's limit")
    return ((step + 1) % limit == 0) & ~ended, limit


def json_value(value: Any) -> Any:
    """`value` as text, number, truth value or list; None where it is none of these, or long."""
    if isinstance(value, np.generic | np.ndarray):
        if value.size > LONGEST_LIST:
            return None
        if value.dtype.kind in "SO":
            return [json_value(item) for item in np.ravel(value).tolist()]
        return value.tolist() if value.dtype.kind in "fiubU" else None
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str | bool | int | float) else None


def flat(array: np.ndarray) -> np.ndarray:
    """[R, 1] as [R]."""
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def _is_float(array: np.ndarray | None) -> bool:
    return array is not None and array.dtype.kind == "f"
