"""RL Unplugged's Atari shards to HDF5: in bounded memory, on several cores, stopped and continued.

Source: Gulcehre et al. 2020 (arXiv:2006.13888).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from leeward.data.hdf5 import open_hdf5, read_metadata
from leeward.data.rl_unplugged_frames import Batch, read_batches
from leeward.data.rl_unplugged_records import STACK, Fault
from leeward.data.rl_unplugged_rows import (
    ROW_COLUMNS,
    STACKED_COLUMNS,
    Chains,
    Layout,
    stacked,
    without_misfits,
)
from leeward.data.rl_unplugged_shards import Shard
from leeward.data.stream import ColumnStream
from leeward.errors import DataError

_BATCH = 512  # records decoded together; ours: 25 MiB of frames at most
_CHECKPOINT = 16  # batches between checkpoints; ours: a few seconds
_FORMAT = 1  # of what is written; raised when the same shard would be written otherwise
Advance = Callable[[int], None]
"""Called with the number of records read so far."""


class Converted(NamedTuple):
    """What became of one shard."""

    shard: Shard
    target: Path
    transitions: int
    episodes: int
    """Runs of records that continue one another; each is an episode of the file."""
    faults: tuple[Fault, ...]
    """Records that were left out."""
    was_there: bool = False
    """The file had been made before."""


def convert_shard(
    shard: Shard,
    target: Path,
    *,
    layout: Layout = "rows",
    processes: int = 1,
    transitions: int | None = None,
    overwrite: bool = False,
    batch_size: int = _BATCH,
    checkpoint_every: int = _CHECKPOINT,
    on_progress: Advance | None = None,
) -> Converted:
    """Converts one shard that is on the disk; goes on where an earlier try was stopped.

    A file that the same shard made before is left as it is.

    Args:
        shard: what to read.
        target: the HDF5 file.
        layout: "rows" keeps frames once; "d4rl" keeps both stacks of every transition.
        processes: how many may work; one more than the first decodes frames.
        transitions: stop after so many.
        overwrite: replace a file of other content.
        batch_size: records decoded together.
        checkpoint_every: batches between checkpoints.
        on_progress: told of the records read.

    Raises:
        DataError: no usable record, or a file of other content in the place of `target`.
        DiskError: the disk is full.
    """
    fingerprint = _fingerprint(shard, layout, transitions)
    if target.exists() and not overwrite:
        return _made_before(shard, target, fingerprint)
    columns = ROW_COLUMNS if layout == "rows" else STACKED_COLUMNS
    with ColumnStream(target, columns, fingerprint=fingerprint, thread=processes > 1) as stream:
        job = _Job(stream, layout, transitions)
        batches = read_batches(
            shard.path,
            actions=shard.actions,
            size=batch_size,
            skip=job.records,
            workers=processes - 1,
        )
        for number, batch in enumerate(batches, 1):
            job.add(batch)
            if on_progress is not None:
                on_progress(job.read)
            if job.enough:
                break
            if number % checkpoint_every == 0:
                stream.checkpoint(job.state())
        batches.close()
        job.finish()
        kept, faults = job.kept, tuple(sorted(job.faults))
        if kept == 0:
            raise DataError(_no_record(shard, faults))
        stream.finish(_metadata(shard, layout, fingerprint, kept, faults))
    episodes = stream.rows("episode_start") if layout == "rows" else kept
    return Converted(shard, target, kept, episodes, faults)


class _Job:
    """A conversion between two checkpoints: what was read, kept and left out."""

    def __init__(self, stream: ColumnStream, layout: Layout, limit: int | None) -> None:
        before = stream.state
        self.records: int = before.get("records", 0)
        """The first record to read."""
        self.read = self.records
        self.kept: int = before.get("kept", 0)
        self.faults = {Fault(*fault) for fault in before.get("faults", ())}
        self._stream = stream
        self._limit = limit
        self._chains = None
        if layout == "rows":
            self._chains = Chains(stream.rows("observations"), bool(before.get("continued", False)))

    @property
    def enough(self) -> bool:
        """Whether as many transitions as wanted are there."""
        return self._limit is not None and self.kept >= self._limit

    def add(self, batch: Batch) -> None:
        """Writes a batch, as much of it as is wanted."""
        if self._chains is not None:
            batch = without_misfits(batch)
        if self._limit is not None:
            batch = batch._replace(records=batch.records[: self._limit - self.kept])
        self.kept += len(batch.records)
        self.faults |= set(batch.faults)
        self.read = 1 + max(
            [self.read - 1, *(n for n, _ in batch.records), *(f.number for f in batch.faults)]
        )
        self._write(iter([stacked(batch)]) if self._chains is None else self._chains.add(batch))

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps. The record that waits for its follower is read again."""
        waiting = None if self._chains is None else self._chains.waiting
        records, continued = (self.read, False) if waiting is None else waiting
        return {
            "records": records,
            "continued": continued,
            "kept": self.kept - (waiting is not None),
            "faults": [list(fault) for fault in sorted(self.faults) if fault.number < records],
        }

    def finish(self) -> None:
        """Writes the last record."""
        if self._chains is not None:
            self._write(self._chains.finish())

    def _write(self, pieces: Iterator[dict[str, np.ndarray]]) -> None:
        for piece in pieces:
            self._stream.append(piece)


def fault_summary(converted: Converted) -> str | None:
    """One line on the records that were left out, or None."""
    faults = converted.faults
    if not faults:
        return None
    first = faults[0]
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    remedy = (
        "get the shard again"
        if converted.shard.url is None
        else f"delete {converted.shard.path} to fetch it again"
    )
    return (
        f"{converted.shard.name}: record {first.number} cannot be used: {first.reason}{more}; "
        f"{converted.transitions:,} good records are kept in {converted.target}; {remedy}, and "
        "convert with --overwrite"
    )


def _no_record(shard: Shard, faults: tuple[Fault, ...]) -> str:
    reason = f": record {faults[0].number}: {faults[0].reason}" if faults else ", it is empty"
    return f"{shard.name} has no record that can be used{reason}"


def _fingerprint(shard: Shard, layout: Layout, transitions: int | None) -> str:
    """Names a conversion: the same shard, as long as it was, to the same layout."""
    return json.dumps(
        {
            "format": _FORMAT,
            "shard": f"{shard.game}/{shard.file}",
            "bytes": shard.path.stat().st_size,
            "layout": layout,
            "transitions": transitions,
        }
    )


def _metadata(
    shard: Shard, layout: Layout, fingerprint: str, kept: int, faults: tuple[Fault, ...]
) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "converted_from": fingerprint,
        "records_kept": kept,
        "records_left_out": len(faults),
        "rewards": "clipped to [-1, 1]",
    }
    if shard.game is not None:
        metadata |= {
            "env_id": f"ALE/{shard.game}-v5",  # with sticky actions, as they are evaluated
            "sticky_actions": True,
            "action_count": shard.actions,
        }
    if layout == "rows":
        metadata["frame_stack"] = STACK
    return metadata


def _made_before(shard: Shard, target: Path, fingerprint: str) -> Converted:
    """What is there already, if the same whole shard made it.

    Raises:
        DataError: it is something else, or lacks records.
    """
    with open_hdf5(target) as file:
        metadata = read_metadata(file)
        begin = file.get("episode_start")
        episodes = len(begin) if isinstance(begin, h5py.Dataset) else 0
    same = metadata.get("converted_from") == fingerprint
    if not same or metadata.get("records_left_out"):
        raise DataError(
            f"{target} exists"
            + (" and lacks records" if same else "")
            + ": --overwrite replaces it"
        )
    kept = int(metadata["records_kept"])
    return Converted(shard, target, kept, episodes or kept, (), was_there=True)
