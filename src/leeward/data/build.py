"""From one array a column to the row layout of `Dataset`, checked on the way. All vectorized."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from leeward.data.allocation import allocate
from leeward.data.columns import (
    ActionKind,
    Bound,
    Columns,
    check_finite,
    check_inside_box,
    convert,
    infer_action_space,
    is_chained,
)
from leeward.data.dataset import Dataset
from leeward.errors import DataError
from leeward.types import Box


class _Layout(NamedTuple):
    """Where the steps lie. R0 steps given, R rows kept."""

    columns: Columns
    start: np.ndarray
    episode_start: np.ndarray
    recorded: np.ndarray
    next_observation: np.ndarray | None


def build(
    observation: np.ndarray,
    action: np.ndarray,
    reward: np.ndarray,
    termination: np.ndarray,
    truncation: np.ndarray | None = None,
    *,
    next_observation: np.ndarray | None = None,
    transition: np.ndarray | None = None,
    next_known: np.ndarray | None = None,
    action_low: Bound = None,
    action_high: Bound = None,
    action_count: int | None = None,
    metadata: Mapping[str, Any] | None = None,
    strict: bool = True,
) -> Dataset:
    """The data set of `Dataset.from_arrays`, which documents the columns.

    Args:
        observation: [R, *obs].
        action: [R, A] or [R].
        reward: [R].
        termination: [R].
        truncation: [R]; None where the recording did not say when it ended.
        next_observation: [R, *obs], or None.
        transition: [R] bool: exactly these rows start a transition to the next row. Without it,
            every row that has a true next observation does, and every termination.
        next_known: [R] bool: where `next_observation` holds something; default everywhere.
        action_low: a number or [A].
        action_high: a number or [A].
        action_count: number of discrete actions.
        metadata: JSON values; `name` is used in messages, `notes` is added to.
        strict: refuse NaN, infinite values, actions outside the box and data without transitions;
            without it (for `inspect`) they are kept as they are.

    Raises:
        DataError: what no layout can hold (lengths, shapes, text), and if `strict` the above.
    """
    metadata = dict(metadata or {})
    notes = list(metadata.get("notes", ()))
    name = str(metadata.get("name", "the data set"))
    kind: ActionKind = "unknown"
    if action_count is not None:
        kind = "discrete"
    elif action_low is not None or action_high is not None:
        kind = "continuous"
    columns = convert(
        name,
        observation,
        action,
        reward,
        termination,
        truncation,
        next_observation,
        kind=kind,
    )
    if strict:
        check_finite(name, columns)
    space, space_notes = infer_action_space(
        name, columns.action, action_low, action_high, action_count
    )
    notes += space_notes
    if strict:
        check_inside_box(name, columns.action, space)
    if transition is not None:
        layout = _next_rows(columns._replace(next_observation=None), transition)
    elif columns.next_observation is None:
        ended = columns.termination | columns.truncation
        has_next = ~ended
        has_next[-1:] = False
        layout = _next_rows(columns, has_next | columns.termination)
    else:
        known = np.ones(len(columns.reward), bool) if next_known is None else next_known
        layout, layout_notes = _stored_next(
            columns, columns.next_observation, known, truncation is None
        )
        notes += layout_notes
    if strict and len(layout.start) == 0:
        raise DataError(
            f"{name} has no transition: no row has a next observation; store the columns "
            "next_observation or truncation, or give longer episodes"
        )
    if notes:
        metadata["notes"] = notes
    columns = layout.columns
    return Dataset(
        observation=columns.observation,
        action=columns.action if isinstance(space, Box) else columns.action.astype(np.int32),
        reward=columns.reward,
        termination=columns.termination,
        truncation=columns.truncation,
        start=layout.start,
        episode_start=layout.episode_start,
        recorded=layout.recorded,
        action_space=space,
        next_observation=layout.next_observation,
        metadata=metadata,
    )


def _next_rows(columns: Columns, transition: np.ndarray) -> _Layout:
    """Rows as given; `transition` [R] marks those whose next observation is the next row."""
    rows = len(columns.reward)
    return _Layout(
        columns,
        start=np.flatnonzero(transition),
        episode_start=_episode_start(columns),
        recorded=np.ones(rows, bool),
        next_observation=None,
    )


def _stored_next(
    columns: Columns, next_observation: np.ndarray, known: np.ndarray, infer_truncation: bool
) -> tuple[_Layout, list[str]]:
    """Rows with stored next observations: dropped where they are the next row, else kept."""
    rows = len(columns.reward)
    ended = columns.termination | columns.truncation
    ended[-1:] = True
    chained = is_chained(columns.observation, next_observation)
    inside = ~ended & known
    broken = np.flatnonzero(inside & ~chained)
    inner = int(inside.sum())
    notes = []
    if len(broken) and 2 * len(broken) > inner:
        notes.append(
            "next observations do not follow one another: the rows are shuffled transitions, "
            "each an episode of its own"
        )
        episode_start = np.arange(rows)
    elif len(broken) and infer_truncation:
        notes.append(
            f"no truncation recorded: {len(broken)} episode ends were found where the next row "
            "is not the stored next observation"
        )
        columns.truncation[broken] = True
        return _with_last_observations(columns, next_observation, known), notes
    elif len(broken):
        notes.append(
            f"the stored next observation differs from the next row at {len(broken)} of {inner} "
            f"steps within an episode (first at row {broken[0]}): stored ones are used, and "
            "n-step returns are not available"
        )
        episode_start = _episode_start(columns)
    else:
        return _with_last_observations(columns, next_observation, known), notes
    start = np.flatnonzero(known | columns.termination)
    return _Layout(
        columns,
        start=start,
        episode_start=episode_start,
        recorded=np.ones(rows, bool),
        next_observation=next_observation if known.all() else next_observation[start],
    ), notes


def _with_last_observations(
    columns: Columns, next_observation: np.ndarray, known: np.ndarray
) -> _Layout:
    """Adds one row to every episode that holds the observation after its last step, if known."""
    rows = len(columns.reward)
    ended = columns.termination | columns.truncation
    ended[-1:] = True
    extra = ended & known
    ends = np.flatnonzero(extra)
    position = np.arange(rows) + (np.cumsum(extra) - extra)  # each step, moved by the rows before
    total = rows + len(ends)

    def spread(column: np.ndarray) -> np.ndarray:
        result = allocate((total, *column.shape[1:]), column.dtype)
        result[position] = column
        return result

    observation = spread(columns.observation)
    observation[position[ends] + 1] = next_observation[ends]
    recorded = np.zeros(total, bool)
    recorded[position] = True
    return _Layout(
        Columns(
            observation,
            spread(columns.action),
            spread(columns.reward),
            spread(columns.termination),
            spread(columns.truncation),
            None,
        ),
        start=position[known | columns.termination],
        episode_start=position[np.append(True, ended[:-1])],
        recorded=recorded,
        next_observation=None,
    )


def _episode_start(columns: Columns) -> np.ndarray:
    """[E]: the first row, and every row after an end."""
    ended = columns.termination | columns.truncation
    return np.concatenate([[0], np.flatnonzero(ended[:-1]) + 1]).astype(np.int64)
