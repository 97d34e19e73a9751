"""Columns written as they come, in bounded memory, into one HDF5 file that is whole or not there.

Chunks are compressed here and appended to plain files in a folder beside the target; `finish` puts
them into the HDF5 file as they are. Unlike an HDF5 file that is being written, this survives a
kill (`checkpoint` says from where to go on) and a full disk.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import zipfile
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import filelock
import h5py
import numpy as np

from leeward.errors import DataError, DiskError

CHUNK_BYTES = 2**18
"""Bytes of one chunk; ours: HDF5's chunk cache holds several, and gzip gains nothing from more."""

_LEVEL = 6
"""zlib's level; ours: Pong's frames take 61 bytes and 24 µs each, with level 1 111 and 11."""
_AHEAD = 16  # chunks that wait for a compressing thread at most; ours: 4 MiB
_SPARE = 2**20  # bytes that a file needs besides its chunks; ours, generous


class Column(NamedTuple):
    """One column: the shape of a row, and its type."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def chunk_rows(self) -> int:
        """Whole rows in a chunk."""
        row_bytes = np.dtype(self.dtype).itemsize * int(np.prod(self.shape))
        return max(1, CHUNK_BYTES // max(1, row_bytes))


class ColumnStream:
    """A file in the making. Columns may differ in length.

    `state` is what the last `checkpoint` of the same conversion kept, or empty at a fresh start.
    """

    def __init__(
        self,
        target: Path,
        columns: Mapping[str, Column],
        *,
        fingerprint: str = "",
        thread: bool = False,
    ) -> None:
        """Opens the folder of the unfinished file.

        Args:
            target: the HDF5 file to be.
            columns: by name, which may have a group before it (infos/goal).
            fingerprint: names the conversion; what another one left is removed, so is everything
                where it is empty.
            thread: compress in a thread of its own.

        Raises:
            DataError: the folder cannot be written, or another process writes this file.
        """
        self.target = target
        self.state: dict[str, Any] = {}
        self._fingerprint = fingerprint
        self._folder = target.with_name(f".{target.name}.partial")
        self._pool = ThreadPoolExecutor(1) if thread else None
        with disk_errors(target):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = filelock.FileLock(self._folder / "lock")
            try:
                self._lock.acquire(timeout=0)
            except filelock.Timeout as error:
                raise DataError(f"{target} is being written by another process") from error
            journal = self._read_journal(columns)
            self._parts = {
                key: _Part(self._file(key), column, self._pool) for key, column in columns.items()
            }
            if journal:
                self.state = json.loads(str(journal["state"]))
            for key, part in self._parts.items():
                part.open(journal.get(f"sizes:{key}"), journal.get(f"rest:{key}"))

    def rows(self, key: str) -> int:
        """Rows of a column so far."""
        return self._parts[key].rows

    def append(self, columns: Mapping[str, np.ndarray]) -> None:
        """Adds rows to some or all columns.

        Raises:
            DiskError: the disk is full.
        """
        with disk_errors(self.target):
            for key, rows in columns.items():
                self._parts[key].append(rows)

    def checkpoint(self, state: Mapping[str, Any]) -> None:
        """Makes all rows so far, and `state` (JSON values), survive a kill.

        Raises:
            DiskError: the disk is full.
        """
        kept: dict[str, np.ndarray] = {
            "fingerprint": np.array(self._fingerprint),
            "columns": np.array(_described({k: p.column for k, p in self._parts.items()})),
            "state": np.array(json.dumps(state)),
        }
        with disk_errors(self.target):
            for key, part in self._parts.items():
                part.flush()
                kept[f"sizes:{key}"] = np.array(part.sizes, np.int64)
                kept[f"rest:{key}"] = part.rest()
            journal = self._folder / "journal.npz"
            temporary = journal.with_suffix(".part")
            with temporary.open("wb") as file:
                np.savez(file, allow_pickle=False, **kept)  # pyright: ignore[reportArgumentType]
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(journal)
        self.state = dict(state)

    def finish(self, metadata: Mapping[str, Any]) -> None:
        """Makes the HDF5 file, with `metadata` under metadata/, and removes the folder.

        Raises:
            DiskError: the disk is full.
        """
        temporary = self._folder / "whole.hdf5"
        with disk_errors(self.target):
            for part in self._parts.values():
                part.flush()
            need = sum(sum(p.sizes) + p.rest().nbytes for p in self._parts.values()) + _SPARE
            if shutil.disk_usage(self._folder).free < need:
                # HDF5 crashes the process when the disk fills up under it.
                raise OSError(errno.ENOSPC, "No space left on device")
            with h5py.File(temporary, "w") as file:
                for key, part in self._parts.items():
                    part.put_into(file, key)
                for key, value in metadata.items():
                    file[f"metadata/{key}"] = value
            temporary.replace(self.target)
        self.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def close(self) -> None:
        """Leaves the unfinished file as the last checkpoint has it."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
        for part in self._parts.values():
            part.close()
        self._lock.release()

    def __enter__(self) -> ColumnStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _file(self, key: str) -> Path:
        return self._folder / f"{key.replace('/', '-')}.chunks"

    def _read_journal(self, columns: Mapping[str, Column]) -> dict[str, np.ndarray]:
        """What the last checkpoint kept; what cannot be used is removed from the folder."""
        journal = self._folder / "journal.npz"
        if self._fingerprint and journal.exists():
            with contextlib.suppress(ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile):
                with journal.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                    kept = {key: archive[key] for key in archive.files}
                same = str(kept["columns"]) == _described(columns)
                if same and str(kept["fingerprint"]) == self._fingerprint:
                    return kept
        journal.unlink(missing_ok=True)
        return {}


class _Part:
    """One column's chunks in a file of its own, and the rows that fill no chunk yet."""

    def __init__(self, path: Path, column: Column, pool: ThreadPoolExecutor | None) -> None:
        self.column = column
        self.sizes: list[int] = []
        """Bytes of every chunk in the file."""
        self._path = path
        self._pool = pool
        self._waiting: deque[Future[bytes]] = deque()
        self._pending: list[np.ndarray] = []
        self._pending_rows = 0

    @property
    def rows(self) -> int:
        """Rows so far."""
        chunks = len(self.sizes) + len(self._waiting)
        return chunks * self.column.chunk_rows + self._pending_rows

    def open(self, sizes: np.ndarray | None, rest: np.ndarray | None) -> None:
        """Goes on from a checkpoint, or begins."""
        self._output = self._path.open("ab")
        self.sizes = [] if sizes is None else sizes.tolist()
        self._output.truncate(sum(self.sizes))
        if rest is not None and len(rest):
            self._pending, self._pending_rows = [rest], len(rest)

    def append(self, rows: np.ndarray) -> None:
        """Adds rows; whole chunks are compressed and written."""
        if len(rows) == 0:
            return
        self._pending.append(np.asarray(rows, self.column.dtype))
        self._pending_rows += len(rows)
        size = self.column.chunk_rows
        if self._pending_rows < size:
            return
        joined = self.rest()
        whole = len(joined) // size * size
        for begin in range(0, whole, size):
            self._compress(joined[begin : begin + size])
        self._pending = [joined[whole:].copy()]
        self._pending_rows = len(joined) - whole

    def rest(self) -> np.ndarray:
        """The rows that fill no chunk."""
        empty = np.zeros((0, *self.column.shape), self.column.dtype)
        return np.concatenate([empty, *self._pending])

    def flush(self) -> None:
        """Waits until all chunks are on the disk."""
        while self._waiting:
            self._write(self._waiting.popleft().result())
        self._output.flush()
        os.fsync(self._output.fileno())

    def put_into(self, file: h5py.File, key: str) -> None:
        """Makes the column of the HDF5 file."""
        rest, size = self.rest(), self.column.chunk_rows
        options = {"compression": "gzip", "compression_opts": _LEVEL}
        if not self.sizes:
            size = max(1, min(size, len(rest)))
            chunks = (size, *self.column.shape)
            options = {"chunks": chunks, "maxshape": (None, *self.column.shape), **options}
            file.create_dataset(key, data=rest, **options)
            return
        made = file.create_dataset(
            key,
            shape=(self.rows, *self.column.shape),
            dtype=self.column.dtype,
            chunks=(size, *self.column.shape),
            **options,
        )
        corner = (0,) * len(self.column.shape)
        with self._path.open("rb") as chunks_file:
            for number, length in enumerate(self.sizes):
                made.id.write_direct_chunk((number * size, *corner), chunks_file.read(length))
        if len(rest):
            made[len(self.sizes) * size :] = rest

    def close(self) -> None:
        """Closes the file of chunks."""
        self._output.close()

    def _compress(self, chunk: np.ndarray) -> None:
        if self._pool is None:
            self._write(_deflate(chunk))
            return
        self._waiting.append(self._pool.submit(_deflate, chunk))
        while len(self._waiting) > _AHEAD:
            self._write(self._waiting.popleft().result())

    def _write(self, content: bytes) -> None:
        self._output.write(content)
        self.sizes.append(len(content))


def _deflate(chunk: np.ndarray) -> bytes:
    return zlib.compress(np.ascontiguousarray(chunk).data, _LEVEL)


def _described(columns: Mapping[str, Column]) -> str:
    """Columns as text, to tell whether a journal fits."""
    return json.dumps({key: [list(c.shape), c.dtype] for key, c in columns.items()})


@contextlib.contextmanager
def disk_errors(target: Path) -> Iterator[None]:
    """Turns a full disk and missing rights into our errors."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
            raise DiskError(f"the disk is full while writing {target}") from error
        raise DataError(f"cannot write {target}: {error.strerror or error}") from error
