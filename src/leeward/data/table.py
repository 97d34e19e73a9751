"""CSV and Parquet tables, one row a step, as real logs are: unsorted, with gaps and odd columns.

Rows are sorted by episode and step. Whatever was taken for granted on the way (which column is
what, rows moved, cells missing, steps skipped) is said in the metadata's `notes`. An episode's
last row may hold an observation alone, with action and reward left empty.
"""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from leeward.data.cells import (
    Place,
    action_column,
    element_names,
    episode_codes,
    flags,
    missing,
    numbers,
    order_key,
)
from leeward.data.dataset import Dataset
from leeward.data.hints import Hints, assemble, truncation_by_limit
from leeward.data.table_columns import Mapping, TableColumns, find_columns
from leeward.errors import DataError

_REGULAR = 0.9  # share of equal steps from which others count as gaps; ours


class _Order(NamedTuple):
    """How the rows of a table follow one another."""

    rows: np.ndarray
    """[R]: rows of the table, sorted."""
    begins: np.ndarray
    """[R] bool: sorted rows that do not go on from the one before."""
    notes: list[str]


def read_table(
    path: Path, *, columns: TableColumns | None = None, hints: Hints | None = None
) -> Dataset:
    """The data set in a table.

    Args:
        path: .csv or .parquet, one row a step.
        columns: which columns hold what; what is not given is guessed from plain names.
        hints: what the caller knows of the data. Without bounds, actions span the data's range.

    Raises:
        DataError: a file that cannot be read, columns that are not found, text or missing cells
            where numbers are needed, or a step that comes twice in one episode.
    """
    hints = hints or Hints()
    place: Place = lambda row: f"row {row}"  # noqa: E731
    if path.suffix.lower() == ".csv":
        place = lambda row: f"line {row + 2}"  # noqa: E731, the header is line 1
    names = _column_names(path)
    found = find_columns(str(path), names, columns or TableColumns())
    table = _read(path, found.all())
    notes = [found.describe(names)]
    last = missing(table, [*found.action, *([found.reward] if found.reward else [])])
    strict = hints.strict
    observation = numbers(path, table, found.observation, place, strict=strict)
    action, action_notes = action_column(
        path, table, found.action, place, strict=strict, optional=last
    )
    reward = np.zeros((table.num_rows, 1))
    if found.reward is not None:
        reward = numbers(path, table, (found.reward,), place, strict=strict, optional=last)
    termination, termination_notes = flags(path, table, found.termination, place)
    truncation, truncation_notes = flags(path, table, found.truncation, place)
    notes += action_notes + termination_notes + truncation_notes
    notes += _split_done(found, termination, truncation)
    order = _order(path, table, found, termination | truncation, place)
    notes += order.notes
    steps = {
        "observation": observation[order.rows],
        "action": action[order.rows],
        "reward": reward[order.rows, 0],
        "termination": termination[order.rows],
        "truncation": truncation[order.rows],
        "last": last[order.rows],
    }
    names = {
        "observation_names": element_names(table, found.observation),
        "action_names": element_names(table, found.action),
    }
    hints = dataclasses.replace(hints, metadata={**names, **hints.metadata})
    return _assemble(path, found, steps, order, hints, notes, lambda row: place(order.rows[row]))


def _assemble(
    path: Path,
    found: Mapping,
    steps: dict[str, np.ndarray],
    order: _Order,
    hints: Hints,
    notes: list[str],
    place: Place,
) -> Dataset:
    """The data set of sorted columns; `last` marks rows that hold an observation alone."""
    follows = np.append(~order.begins[1:], False)  # does the next row go on from this one?
    last = steps.pop("last")
    wrong = np.flatnonzero(last & follows)
    if len(wrong):
        raise DataError(f"{path}: action and reward are missing at {place(wrong[0])}: fill them")
    # The end of a recording lies at the last step, not at the observation after it.
    ends = ~follows
    ends[:-1] |= last[1:]
    termination, truncation = steps["termination"], steps["truncation"]
    truncation |= ends & ~termination
    if found.episode is None and found.truncation is None and truncation.sum() <= 1:
        limited, _ = truncation_by_limit(termination, {}, hints, notes)
        if limited is not None:
            truncation |= limited
    late = np.flatnonzero((termination | truncation) & ~ends & ~last)
    if len(late) and found.episode is not None:
        notes.append(
            f"{len(late)} rows end their episode but are followed by more of it (first at "
            f"{place(late[0])}): a new episode begins there"
        )
    if last.any():
        notes.append(f"{last.sum()} rows hold an episode's last observation alone")
    observation = steps["observation"]
    following = np.append(observation[1:], observation[-1:], axis=0)
    has_next = follows & ~((termination | truncation) & ~ends)
    columns = {key: column[~last] for key, column in steps.items()}
    return assemble(
        path,
        {**columns, "next_observation": following[~last]},
        {},
        hints,
        notes=notes,
        next_known=has_next[~last],
    )


def _order(path: Path, table: pa.Table, found: Mapping, ended: np.ndarray, place: Place) -> _Order:
    """Rows sorted by episode and step, and where one does not go on from the one before."""
    count = table.num_rows
    notes = []
    step = order_key(path, table, found.step, place) if found.step else None
    rows = np.arange(count)
    if found.episode is not None:
        code = episode_codes(path, table, found.episode, place)
        rows = np.lexsort((code,)) if step is None else np.lexsort((step, code))
        begins = np.append(True, code[rows][1:] != code[rows][:-1])
        moved = int((rows != np.arange(count)).sum())
        if moved:
            notes.append(
                f"{moved} rows were moved to sort by episode and step; row numbers in messages "
                "count the sorted rows"
            )
    else:
        begins = np.append(True, ended[:-1])
        if step is not None:
            back = np.append(False, step[1:] <= step[:-1]) & ~begins
            begins |= back
            if back.any():
                notes.append(f"{back.sum()} episodes begin where '{found.step}' falls back")
    if step is not None:
        gaps, gap_notes = _gaps(path, found, step[rows], begins, lambda row: place(rows[row]))
        begins |= gaps
        notes += gap_notes
    return _Order(rows, begins, notes)


def _gaps(
    path: Path, found: Mapping, step: np.ndarray, begins: np.ndarray, place: Place
) -> tuple[np.ndarray, list[str]]:
    """([R] bool: rows before which steps are missing, notes).

    Raises:
        DataError: two rows of one episode with the same step.
    """
    none = np.zeros(len(step), bool)
    change = np.append(0, np.diff(step))
    twice = np.flatnonzero((change == 0) & ~begins)
    if len(twice):
        row = twice[0]
        raise DataError(
            f"{path}: {place(row - 1)} and {place(row)} are the same step of the same episode "
            f"('{found.step}' = {step[row]:g}): remove one, or name the right columns"
        )
    within = change[~begins]
    if step.dtype.kind != "i" or len(within) == 0:
        return none, []
    sizes, counts = np.unique(within, return_counts=True)
    usual = sizes[counts.argmax()]
    if counts.max() < _REGULAR * len(within):
        return none, [f"'{found.step}' advances irregularly: missing steps cannot be told"]
    gaps = (change > usual) & ~begins
    if not gaps.any():
        return none, []
    return gaps, [
        f"steps are missing before {gaps.sum()} rows (first before "
        f"{place(int(np.flatnonzero(gaps)[0]))}): the recording is taken as cut there"
    ]


def _split_done(found: Mapping, termination: np.ndarray, truncation: np.ndarray) -> list[str]:
    """Takes time limits out of a column that marks every end; changes `termination`."""
    name = found.termination
    if name is None or name.lower() not in ("done", "dones") or found.truncation is None:
        return []
    if not truncation.any() or (truncation & ~termination).any():
        return []
    termination &= ~truncation
    return [f"'{name}' marks every end: where '{found.truncation}' is true too, no task ended"]


def _column_names(path: Path) -> list[str]:
    """The table's columns.

    Raises:
        DataError: an empty or unreadable file, or one name twice.
    """
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty (0 bytes)")
    if path.suffix.lower() != ".csv":
        try:
            names = pyarrow.parquet.read_schema(path).names
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(path, error) from error
    else:
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                names = next(csv.reader(file, delimiter=_delimiter(path)))
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not UTF-8 text: save it as UTF-8 CSV") from error
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{path} has the column '{twice[0]}' twice: rename one")
    return list(names)


def _delimiter(path: Path) -> str:
    """The separator that splits the first line into most parts."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        line = file.readline()
    return max(",;\t|", key=line.count)


def _read(path: Path, names: list[str]) -> pa.Table:
    """The columns `names`.

    Raises:
        DataError: a file that is cut short, damaged or ragged, or has no row.
    """
    try:
        if path.suffix.lower() != ".csv":
            table = pyarrow.parquet.read_table(path, columns=names)
        else:
            table = _read_csv(path, names)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error
    if table.num_rows == 0:
        raise DataError(f"{path} is empty: it has no row")
    return table


def _read_csv(path: Path, names: list[str], *, threads: bool = True) -> pa.Table:
    # One block: types are inferred from the first one only.
    block = min(path.stat().st_size + 1, 2**31 - 1)
    try:
        return pyarrow.csv.read_csv(
            path,
            read_options=pyarrow.csv.ReadOptions(block_size=block, use_threads=threads),
            parse_options=pyarrow.csv.ParseOptions(delimiter=_delimiter(path)),
            convert_options=pyarrow.csv.ConvertOptions(
                include_columns=names, strings_can_be_null=True
            ),
        )
    except pa.ArrowException:
        if not threads:
            raise
        return _read_csv(path, names, threads=False)  # whose error names the row


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} cannot be read as a table: {str(error).strip().splitlines()[0]}")
