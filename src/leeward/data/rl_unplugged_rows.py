"""From RL Unplugged records to the rows of a file, in two layouts.

"rows" keeps every frame once: records that continue one another (the same episode, the same
frames, the same action) become one episode; any other record begins an episode of its own, with
the three older frames of its stack in rows before its step and the newest frame of its next
observation in a row after it. "d4rl" keeps both stacks of every record.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

import numpy as np

from leeward.data.rl_unplugged_frames import Batch
from leeward.data.rl_unplugged_records import SIDE, STACK, Fault, Record
from leeward.data.row_file import row_columns
from leeward.data.stream import Column
from leeward.types import Discrete

Layout = Literal["rows", "d4rl"]

ROW_COLUMNS: Mapping[str, Column] = {
    **row_columns((SIDE, SIDE), "uint8", Discrete(1)),
    "infos/episode_id": Column((), "int64"),
    "infos/episode_return": Column((), "float32"),
}
"""Columns of "rows"; infos/ hold one value an episode, as published."""

STACKED_COLUMNS: Mapping[str, Column] = {
    "observations": Column((STACK, SIDE, SIDE), "uint8"),
    "actions": Column((), "int64"),
    "rewards": Column((), "float32"),
    "terminals": Column((), "bool"),
    "next_observations": Column((STACK, SIDE, SIDE), "uint8"),
}
"""Columns of "d4rl", as Tianshou's loader reads them."""


class _Pending(NamedTuple):
    """A record whose follower is not known yet, with its own frames."""

    number: int
    record: Record
    frame: np.ndarray
    """[P, 84, 84]: its distinct frames."""
    position: dict[bytes, int]


class Chains:
    """Records in, rows out. The last record waits for the next, which may continue it."""

    def __init__(self, rows: int = 0, continued: bool = False) -> None:
        """Begins, or goes on.

        Args:
            rows: rows written before.
            continued: whether the first record to come continues the last episode written.
        """
        self._rows = rows
        self._continued = continued
        self._pending: _Pending | None = None

    @property
    def waiting(self) -> tuple[int, bool] | None:
        """(number, whether it continues the last episode) of the record not written yet."""
        return None if self._pending is None else (self._pending.number, self._continued)

    def add(self, batch: Batch) -> Iterator[dict[str, np.ndarray]]:
        """The rows that are certain now, in pieces."""
        records = batch.records
        if not records:
            return
        if self._pending is not None:
            yield self._write_pending(records[0][1])
        plan = _Plan(self._rows)
        for (_, record), (_, following) in itertools.pairwise(records):
            self._continued = plan.add(record, batch.position, self._continued, following)
        self._rows += len(plan.frame)
        yield plan.columns(batch.frame)
        number, record = records[-1]
        own = {png: i for i, png in enumerate(dict.fromkeys(record.frames + record.next_frames))}
        frame = batch.frame[[batch.position[png] for png in own]]
        self._pending = _Pending(number, record, frame, own)

    def finish(self) -> Iterator[dict[str, np.ndarray]]:
        """The rows of the last record."""
        if self._pending is not None:
            yield self._write_pending(None)
            self._pending = None

    def _write_pending(self, following: Record | None) -> dict[str, np.ndarray]:
        assert self._pending is not None
        plan = _Plan(self._rows)
        self._continued = plan.add(
            self._pending.record, self._pending.position, self._continued, following
        )
        self._rows += len(plan.frame)
        return plan.columns(self._pending.frame)


def without_misfits(batch: Batch) -> Batch:
    """The batch without records whose next stack is not their stack, moved on by one.

    Rows cannot hold them. Where the task ended it does not matter.
    """
    usable, faults = [], list(batch.faults)
    for number, record in batch.records:
        if record.discount == 0 or record.next_frames[:-1] == record.frames[1:]:
            usable.append((number, record))
        else:
            faults.append(Fault(number, "o_tp1 does not repeat the three newer frames of o_t"))
    return batch._replace(records=usable, faults=faults)


class _Plan:
    """Rows to be, by the positions of their frames."""

    def __init__(self, begin: int) -> None:
        self.frame: list[int] = []
        self._begin = begin
        self._step: list[int] = []  # rows that are steps
        self._record: list[Record] = []
        self._truncation: list[bool] = []
        self._episode_start: list[int] = []
        self._first: list[Record] = []

    def add(
        self,
        record: Record,
        position: Mapping[bytes, int],
        continued: bool,
        following: Record | None,
    ) -> bool:
        """Adds a record's rows; returns whether `following` continues its episode."""
        if not continued:
            self._episode_start.append(self._begin + len(self.frame))
            self._first.append(record)
            if len(set(record.frames)) > 1:  # else the reader repeats the first frame
                self.frame += [position[png] for png in record.frames[:-1]]
        goes_on = following is not None and continues(record, following)
        self._step.append(len(self.frame))
        self._record.append(record)
        self._truncation.append(not goes_on and record.discount > 0)
        self.frame.append(position[record.frames[-1]])
        if not goes_on:
            self.frame.append(position[record.next_frames[-1]])
        return goes_on

    def columns(self, frame: np.ndarray) -> dict[str, np.ndarray]:
        """The rows, as `ROW_COLUMNS` names them."""
        rows, step, record = len(self.frame), np.array(self._step, np.int64), self._record

        def spread(values: list, dtype: str) -> np.ndarray:
            column = np.zeros(rows, dtype)
            column[step] = np.array(values, dtype)
            return column

        return {
            "observations": frame[np.array(self.frame, np.int64)],
            "actions": spread([one.action for one in record], "int32"),
            "rewards": spread([one.reward for one in record], "float32"),
            "terminals": spread([one.discount == 0 for one in record], "bool"),
            "timeouts": spread(self._truncation, "bool"),
            "recorded": spread([True] * len(record), "bool"),
            "episode_start": np.array(self._episode_start, np.int64),
            "infos/episode_id": np.array([one.episode for one in self._first], np.int64),
            "infos/episode_return": np.array(
                [one.episode_return for one in self._first], np.float32
            ),
        }


def continues(record: Record, following: Record) -> bool:
    """Whether `following` is the step after `record`."""
    return (
        record.episode == following.episode
        and record.discount > 0
        and record.next_action == following.action
        and record.next_frames == following.frames
    )


def stacked(batch: Batch) -> dict[str, np.ndarray]:
    """Both stacks of every record, as `STACKED_COLUMNS` names them."""
    records = [record for _, record in batch.records]

    def stacks(frames: list[tuple[bytes, ...]]) -> np.ndarray:
        index = [[batch.position[png] for png in stack] for stack in frames]
        return batch.frame[np.array(index, np.int64).reshape(-1, STACK)]

    return {
        "observations": stacks([record.frames for record in records]),
        "actions": np.array([record.action for record in records], np.int64),
        "rewards": np.array([record.reward for record in records], np.float32),
        "terminals": np.array([record.discount == 0 for record in records], bool),
        "next_observations": stacks([record.next_frames for record in records]),
    }
