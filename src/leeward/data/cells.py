"""Cells of a table as arrays of numbers; text, times and missing cells named where they stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from leeward.errors import DataError

Place = Callable[[int], str]
"""The place of a row in the file, as messages name it."""

_TRUTH = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}


def numbers(
    path: Path,
    table: pa.Table,
    names: Sequence[str],
    place: Place,
    *,
    strict: bool,
    optional: np.ndarray | None = None,
) -> np.ndarray:
    """[R, N] float64: columns of numbers, side by side; list columns give several each.

    Args:
        path: the file, for messages.
        table: its rows.
        names: columns of `table`.
        place: names a row in messages.
        strict: refuse missing, NaN and infinite cells; without it they are NaN or stay.
        optional: [R] bool, rows where cells may be missing (they become 0).

    Raises:
        DataError: text, times, nothing at all, lists of differing lengths, or missing cells.
    """
    parts = []
    for name in names:
        values = _as_float(path, name, _plain(table[name]))
        bad = ~np.isfinite(values).all(axis=1)
        if optional is not None:
            values[optional & bad] = 0.0
            bad &= ~optional
        if strict and bad.any():
            rows = np.flatnonzero(bad)
            kind = "infinite" if np.isinf(values[rows[0]]).any() else "missing"
            more = f" (and in {len(rows) - 1} more)" if len(rows) > 1 else ""
            raise DataError(
                f"{path}: '{name}' is {kind} at {place(rows[0])}{more}: fill or remove such rows, "
                "or leave the column out"
            )
        parts.append(values)
    return np.concatenate(parts, axis=1)


def element_names(table: pa.Table, names: Sequence[str]) -> list[str]:
    """The names of the numbers that `numbers` puts side by side: NAME[0], NAME[1] … of a list."""
    found = []
    for name in names:
        if _is_list(table[name].type):
            size = np.size(table[name][0].as_py())
            found += [f"{name}[{i}]" for i in range(size)]
        else:
            found.append(name)
    return found


def action_column(
    path: Path,
    table: pa.Table,
    names: Sequence[str],
    place: Place,
    *,
    strict: bool,
    optional: np.ndarray,
) -> tuple[np.ndarray, list[str]]:
    """([R] integers or [R, A] float64, notes): one column of integers or text is discrete.

    The other arguments and errors are those of `numbers`.
    """
    column = _plain(table[names[0]])
    kind = column.type
    if len(names) == 1 and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        texts = column.fill_null("").to_numpy(zero_copy_only=False).astype(str)
        empty = np.flatnonzero((texts == "") & ~optional)
        if len(empty):
            raise DataError(f"{path}: '{names[0]}' is missing at {place(empty[0])}: fill it")
        labels = sorted(set(texts[~optional].tolist()))
        if len(labels) > 1000:
            raise DataError(
                f"{path}: the action '{names[0]}' holds {len(labels)} different texts, such as "
                f"'{labels[0]}': give numbers"
            )
        listed = ", ".join(f"{i} = '{label}'" for i, label in enumerate(labels))
        action = np.where(optional, 0, np.searchsorted(labels, texts))
        return action, [f"actions are texts, numbered in alphabetical order: {listed}"]
    integers = all(
        pa.types.is_integer(_plain(table[name]).type) or pa.types.is_boolean(table[name].type)
        for name in names
    )
    action = numbers(path, table, names, place, strict=strict, optional=optional)
    if integers and not np.isnan(action).any():
        return action.astype(np.int64), []
    return action, []


def flags(
    path: Path, table: pa.Table, name: str | None, place: Place
) -> tuple[np.ndarray, list[str]]:
    """([R] bool, notes): a column of true and false, 1 and 0, yes and no; missing cells are False.

    Raises:
        DataError: any other value.
    """
    if name is None:
        return np.zeros(table.num_rows, bool), []
    column = _plain(table[name])
    missing = column.null_count
    notes = [f"'{name}' is missing in {missing} rows: taken as false"] if missing else []
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        texts = [(text or "false").strip().lower() for text in column.to_pylist()]
        odd = next((row for row, text in enumerate(texts) if text not in _TRUTH), None)
        if odd is not None:
            raise DataError(
                f"{path}: '{name}' must be true or false, {place(odd)} holds '{texts[odd]}'"
            )
        return np.array([_TRUTH[text] for text in texts], bool), notes
    values = np.nan_to_num(_as_float(path, name, column)[:, 0])
    odd_rows = np.flatnonzero((values != 0) & (values != 1))
    if len(odd_rows):
        raise DataError(
            f"{path}: '{name}' must be true or false, {place(odd_rows[0])} holds "
            f"{values[odd_rows[0]]:g}"
        )
    return values.astype(bool), notes


def order_key(path: Path, table: pa.Table, name: str, place: Place) -> np.ndarray:
    """[R]: a column that rows can be sorted by, integers where it holds integers or times.

    Raises:
        DataError: a missing cell, or text.
    """
    column = _plain(table[name])
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise DataError(f"{path}: the step '{name}' is missing at {place(row)}")
    if pa.types.is_temporal(column.type):
        return column.to_numpy(zero_copy_only=False).astype("datetime64[ns]").astype(np.int64)
    if pa.types.is_integer(column.type):
        return column.to_numpy(zero_copy_only=False).astype(np.int64)
    return _as_float(path, name, column)[:, 0]


def episode_codes(path: Path, table: pa.Table, name: str, place: Place) -> np.ndarray:
    """[R] int64: episodes numbered in the order in which they first appear.

    Raises:
        DataError: a missing cell.
    """
    column = _plain(table[name])
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise DataError(f"{path}: the episode '{name}' is missing at {place(row)}")
    return column.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)


def missing(table: pa.Table, names: Sequence[str]) -> np.ndarray:
    """[R] bool: rows where every one of `names` is missing."""
    result = np.ones(table.num_rows, bool)
    for name in names:
        result &= table[name].is_null(nan_is_null=True).to_numpy()
    return result


def _plain(column: pa.ChunkedArray) -> pa.Array:
    """One array; dictionary-encoded cells as what they stand for."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # pyarrow gives this for a column without chunks
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    return array


def _is_list(kind: pa.DataType) -> bool:
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_such(kind) for is_such in lists)


def _as_float(path: Path, name: str, array: pa.Array) -> np.ndarray:
    """[R, N] float64, missing cells NaN."""
    kind = array.type
    if _is_list(kind):
        lengths = array.value_lengths().unique().to_pylist()
        if len(lengths) != 1 or not lengths[0]:
            raise DataError(f"{path}: the lists in '{name}' differ in length ({lengths[:3]} …)")
        return _as_float(path, name, array.flatten()).reshape(len(array), -1)
    if pa.types.is_null(kind):
        raise DataError(f"{path}: '{name}' is empty in every row: leave the column out")
    if pa.types.is_temporal(kind):
        raise DataError(
            f"{path}: '{name}' holds times ({array[0]}): turn it into a number, such as seconds "
            "since the episode's start, or leave it out"
        )
    if not (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    ):
        text = next((item for item in array.slice(0, 1000).to_pylist() if item), "")
        raise DataError(
            f"{path}: '{name}' holds text such as '{str(text)[:30]}': turn it into numbers (one "
            "column of 0 and 1 for each value), or leave it out"
        )
    if pa.types.is_boolean(kind):
        array = array.cast(pa.uint8())
    return np.array(array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))[:, None]
