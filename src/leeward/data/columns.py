"""Columns as given → the types of `Dataset`, with the checks that need no layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from leeward.data.allocation import as_type, blocks
from leeward.errors import DataError
from leeward.types import Box, Discrete

_ROUNDING = 1e-6  # of the box's size; ours: what float32 arithmetic may add to a bound


Bound = np.ndarray | Sequence[float | int] | float | int | None
"""One side of the action box: one number, or one a dimension."""


ActionKind = Literal["continuous", "discrete", "unknown"]
"""What actions are, where bounds or a number of actions say so."""


class Columns(NamedTuple):
    """One array a column, one row a step, in the types of `Dataset`."""

    observation: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    termination: np.ndarray
    truncation: np.ndarray
    next_observation: np.ndarray | None


def convert(
    name: str,
    observation: np.ndarray,
    action: np.ndarray,
    reward: np.ndarray,
    termination: np.ndarray,
    truncation: np.ndarray | None,
    next_observation: np.ndarray | None,
    *,
    kind: ActionKind,
) -> Columns:
    """The columns in their final types; `kind` is that of the actions where it is known.

    Raises:
        DataError: no row, lengths or shapes that differ, or values that are no numbers.
    """
    given = {
        "observation": observation,
        "action": action,
        "reward": reward,
        "termination": termination,
        "truncation": truncation,
        "next_observation": next_observation,
    }
    arrays = {key: np.asarray(value) for key, value in given.items() if value is not None}
    for key, array in arrays.items():
        if array.ndim == 0 or array.dtype.kind not in "fiub":
            raise DataError(
                f"{name}: {key} must be an array of numbers, got "
                f"{'a single value' if array.ndim == 0 else f'type {array.dtype}'}"
            )
    _check_lengths(name, arrays)
    observations = _observation(arrays["observation"])
    next_observations = None
    if next_observation is not None:
        next_observations = _observation(arrays["next_observation"])
        if next_observations.shape != observations.shape:
            raise DataError(
                f"{name}: next_observation has shape {next_observations.shape}, "
                f"observation {observations.shape}; they must be equal"
            )
        if next_observations.dtype != observations.dtype:
            observations = as_type(observations, np.float32)
            next_observations = as_type(next_observations, np.float32)
    rows = len(observations)
    terminations = _flag(name, "termination", arrays["termination"])
    if truncation is None:
        truncations = np.zeros(rows, bool)
        truncations[-1] = not terminations[-1]
    else:
        truncations = _flag(name, "truncation", arrays["truncation"])
    return Columns(
        observations,
        _action(name, arrays["action"], kind),
        _float32(_one_number_a_row(name, "reward", arrays["reward"])),
        terminations,
        truncations,
        next_observations,
    )


def check_finite(name: str, columns: Columns) -> None:
    """Raises DataError at the first NaN or infinite value, with its row."""
    for key, array in columns._asdict().items():
        if array is None or array.dtype.kind != "f":
            continue
        rows = non_finite_rows(array)
        if len(rows):
            first = array[rows[0]]
            kind = "NaN" if np.isnan(first).any() else "infinite"
            more = f" (and in {len(rows) - 1} more rows)" if len(rows) > 1 else ""
            raise DataError(
                f"{name}: {key} is {kind} at row {rows[0]}{more}: remove or fill these rows"
            )


def finite_rows(array: np.ndarray) -> np.ndarray:
    """[R] bool: which rows of `array` [R, ...] hold neither NaN nor infinite values."""
    if array.dtype.kind != "f" or array.size == 0:
        return np.ones(len(array), bool)
    finite = [np.isfinite(array[b]).reshape(b.stop - b.start, -1).all(1) for b in blocks(array)]
    return np.concatenate(finite)


def non_finite_rows(array: np.ndarray) -> np.ndarray:
    """Numbers of the rows of `array` that hold a NaN or an infinite value."""
    return np.flatnonzero(~finite_rows(array))


def infer_action_space(
    name: str,
    action: np.ndarray,
    low: Bound,
    high: Bound,
    count: int | None,
) -> tuple[Box | Discrete, list[str]]:
    """The action space, from its bounds or size where given, else from the data, with a note.

    Raises:
        DataError: bounds that are not finite, reversed, or of the wrong number; actions that are
            no indices of `count` actions.
    """
    if action.ndim == 1:
        return _discrete(name, action, count), []
    size = action.shape[1]
    notes = []
    smallest = largest = None
    if low is None or high is None:
        smallest, largest = _finite_range(name, action)
        notes.append("action bounds taken from the data's own range")
    lows = _bound(name, "low", low, size, smallest)
    highs = _bound(name, "high", high, size, largest)
    flat = lows == highs
    if low is None and high is None and flat.any():
        # A box needs a width, or scaling to [−1, 1] divides by zero.
        lows, highs = np.where(flat, lows - 1, lows), np.where(flat, highs + 1, highs)
        notes.append(f"action dimensions {np.flatnonzero(flat).tolist()} never change")
    if (lows >= highs).any():
        where = int(np.flatnonzero(lows >= highs)[0])
        raise DataError(
            f"{name}: the action's lower bound {lows[where]:g} is not below its upper bound "
            f"{highs[where]:g} in dimension {where}"
        )
    return Box(tuple(lows.tolist()), tuple(highs.tolist())), notes


def _finite_range(name: str, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """([A], [A]): the least and the largest values of all finite actions."""
    ranges = []
    for block in blocks(action):
        finite = action[block][finite_rows(action[block])]
        if len(finite):
            ranges.append((finite.min(axis=0), finite.max(axis=0)))
    if not ranges:
        raise DataError(f"{name}: no row has a finite action, so its bounds must be given")
    lows, highs = zip(*ranges, strict=True)
    return np.min(lows, axis=0), np.max(highs, axis=0)


def outside_box(action: np.ndarray, space: Box) -> np.ndarray:
    """[R, A] bool: actions outside the box by more than float32 rounding."""
    low, high = np.array(space.low, np.float32), np.array(space.high, np.float32)
    slack = _ROUNDING * (high - low)
    return (action < low - slack) | (action > high + slack)


def check_inside_box(name: str, action: np.ndarray, space: Box | Discrete) -> None:
    """Raises DataError at the first continuous action outside its box."""
    if not isinstance(space, Box):
        return
    outside = [outside_box(action[block], space).any(axis=1) for block in blocks(action)]
    rows = np.flatnonzero(np.concatenate(outside)) if outside else np.zeros(0, np.int64)
    if len(rows):
        row = rows[0]
        dimension = int(np.flatnonzero(outside_box(action[row][None], space)[0])[0])
        more = f" (and in {len(rows) - 1} more rows)" if len(rows) > 1 else ""
        raise DataError(
            f"{name}: action {action[row, dimension]:g} at row {row}, dimension {dimension}, is "
            f"outside [{space.low[dimension]:g}, {space.high[dimension]:g}]{more}: give the true "
            "bounds with --action-low and --action-high, or clip the actions"
        )


def is_chained(observation: np.ndarray, next_observation: np.ndarray) -> np.ndarray:
    """[R] bool: whether each stored next observation equals the next row; False at the last row.

    NaN counts as equal to NaN.
    """
    rows = len(observation)
    chained = np.zeros(rows, bool)
    for block in blocks(observation[:-1]):
        begin, end = block.start, block.stop
        stored = next_observation[begin:end].reshape(end - begin, -1)
        following = observation[begin + 1 : end + 1].reshape(end - begin, -1)
        chained[begin:end] = (stored == following).all(axis=1)
        odd = np.flatnonzero(~chained[begin:end])
        if len(odd) and observation.dtype.kind == "f":
            both = np.isnan(stored[odd]) & np.isnan(following[odd])
            chained[begin + odd] = ((stored[odd] == following[odd]) | both).all(axis=1)
    return chained


def _check_lengths(name: str, arrays: dict[str, np.ndarray]) -> None:
    lengths = {key: len(array) for key, array in arrays.items()}
    if lengths["observation"] == 0:
        raise DataError(f"{name} is empty: it has no row")
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{key} {length}" for key, length in lengths.items())
        raise DataError(f"{name}: columns differ in length: {listed}")


def _float32(array: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # too large for float32 becomes infinite, and is reported
        return as_type(array, np.float32)


def _observation(array: np.ndarray) -> np.ndarray:
    """[R, *obs]: images and other uint8 as they are, all else float32; [R] becomes [R, 1]."""
    if array.ndim == 1:
        array = array[:, None]
    return as_type(array, np.uint8) if array.dtype == np.uint8 else _float32(array)


def _action(name: str, array: np.ndarray, kind: ActionKind) -> np.ndarray:
    """[R, A] float32, or [R] int64 where integers number the actions."""
    if kind == "discrete" and array.dtype.kind == "f":
        odd = np.flatnonzero((array != np.floor(array)).reshape(len(array), -1).any(axis=1))
        if len(odd):
            raise DataError(
                f"{name}: discrete actions must be whole numbers, row {odd[0]} holds "
                f"{np.ravel(array[odd[0]])[0]:g}"
            )
        array = array.astype(np.int64)
    if array.dtype.kind == "f" or kind == "continuous":
        if array.ndim > 2:
            raise DataError(f"{name}: action must be [rows, size], got shape {array.shape}")
        return _float32(array[:, None] if array.ndim == 1 else array)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(
            f"{name}: actions are integers of shape {array.shape[1:]} a row, a multi-discrete "
            "space, which is not supported: give one integer a row, or for continuous actions "
            "--action-low and --action-high"
        )
    return array.astype(np.int64)


def _discrete(name: str, action: np.ndarray, count: int | None) -> Discrete:
    smallest, largest = int(action.min()), int(action.max())
    if smallest < 0:
        raise DataError(
            f"{name}: discrete action {smallest} at row {int(action.argmin())} is negative: "
            "number the actions from 0"
        )
    if largest >= (2**31 if count is None else count):
        raise DataError(
            f"{name}: discrete action {largest} at row {int(action.argmax())} is not below "
            f"{2**31 if count is None else count}, the number of actions: name the environment "
            "that it comes from (--env), or correct the action_count that is given"
        )
    return Discrete(largest + 1 if count is None else count)


def _bound(
    name: str,
    side: str,
    given: Bound,
    size: int,
    from_data: np.ndarray | None,
) -> np.ndarray:
    """[A] float32 values as float64: one bound of the action box."""
    value = np.asarray(from_data if given is None else given, np.float32)
    if value.ndim > 1 or (value.ndim == 1 and len(value) not in (1, size)):
        raise DataError(
            f"{name}: the action's {side} bound has {value.size} values, the actions have {size} "
            "dimensions: give one value, or one a dimension"
        )
    if not np.isfinite(value).all():
        raise DataError(
            f"{name}: the action's {side} bound is {value.ravel()[0]:g}: bounds must be finite; "
            "give them with --action-low and --action-high"
        )
    return np.broadcast_to(value, (size,)).astype(np.float64)


def _one_number_a_row(name: str, key: str, array: np.ndarray) -> np.ndarray:
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(f"{name}: {key} must hold one number a row, got shape {array.shape}")
    return array


def _flag(name: str, key: str, array: np.ndarray) -> np.ndarray:
    """[R] bool, a copy; numbers must be 0 or 1."""
    array = _one_number_a_row(name, key, array)
    odd = np.flatnonzero((array != 0) & (array != 1))
    if len(odd):
        raise DataError(
            f"{name}: {key} must be true or false (1 or 0), row {odd[0]} holds {array[odd[0]]:g}"
        )
    return array.astype(bool)
