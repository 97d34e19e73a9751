"""Replay buffers that Tianshou saved as HDF5 (`ReplayBuffer.save_hdf5`): plain arrays only.

The buffer is a ring, or several end to end (`VectorReplayBuffer`), under `_meta`: obs, act, rew,
terminated and truncated (or done alone, before version 0.5), perhaps obs_next. Objects that are no
arrays were pickled into it; pickles run code when loaded, so they are skipped and named.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from leeward.data.dataset import Dataset
from leeward.data.hdf5 import read_column
from leeward.data.hints import Hints, assemble, flat, json_value
from leeward.errors import DataError

_TYPE = "__data_type__"
_PLAIN = ("ndarray", "Tensor")
_COLUMNS = {
    "obs": "observation",
    "act": "action",
    "rew": "reward",
    "terminated": "termination",
    "truncated": "truncation",
    "done": "done",
    "obs_next": "next_observation",
}
_BOOKKEEPING = {"_indices", "options", "last_index", "_offset", "_extend_offset", "_lengths"}
"""What a buffer needs to go on being filled, and this reader does without or by itself."""


def is_tianshou(file: h5py.File) -> bool:
    """Whether a file holds a buffer of Tianshou's."""
    return isinstance(file.get("_meta"), h5py.Group) and "_size" in file.attrs


def read_tianshou(path: Path, file: h5py.File, hints: Hints) -> Dataset:
    """The data set in an open file.

    Raises:
        DataError: a column that lacks or is no plain array, or an empty buffer.
    """
    meta: Any = file["_meta"]
    columns = {
        ours: read_column(file, f"_meta/{theirs}")
        for theirs, ours in _COLUMNS.items()
        if theirs in meta and _is_plain(meta[theirs])
    }
    notes = []
    skipped = sorted(_skipped(file))
    if skipped:
        notes.append(
            f"skipped in {path.name}, as they are no plain arrays: {', '.join(skipped)} (pickled "
            "objects are never loaded)"
        )
    done = columns.pop("done", None)
    if "termination" not in columns and done is not None:
        columns["termination"] = done
        notes.append(
            "the buffer has 'done' alone, which may hold time limits too: ends are taken for the "
            "task's"
        )
    for theirs, ours in _COLUMNS.items():
        if ours in ("observation", "action", "reward", "termination") and ours not in columns:
            raise DataError(
                f"{path} is a Tianshou buffer without a plain array '{theirs}': it holds "
                f"{', '.join(sorted(meta))}"
            )
    rings = list(_rings(path, file, len(columns["observation"])))
    order = np.concatenate([ring for ring in rings if len(ring)])
    chosen: dict[str, np.ndarray | None] = {key: value[order] for key, value in columns.items()}
    termination = flat(np.asarray(chosen["termination"])).astype(bool)
    truncation = np.zeros(len(order), bool)
    if columns.get("truncation") is not None:
        truncation = flat(np.asarray(chosen["truncation"])).astype(bool)
    ends = np.cumsum([len(ring) for ring in rings if len(ring)]) - 1
    truncation[ends] |= ~termination[ends]  # where a ring ends, the recording does
    chosen |= {"termination": termination, "truncation": truncation}
    chosen.setdefault("next_observation", None)
    return assemble(path, chosen, _metadata(file, columns), hints, notes=notes)


def _rings(path: Path, file: h5py.File, rows: int) -> Iterator[np.ndarray]:
    """Rows of each ring, oldest first.

    Raises:
        DataError: an empty buffer, or bookkeeping that does not fit its arrays.
    """
    last = np.ravel(read_column(file, "last_index")) if "last_index" in file else np.array([])
    if "_offset" in file and "_lengths" in file:
        offset, length = (np.ravel(read_column(file, key)) for key in ("_offset", "_lengths"))
        size = np.diff(np.append(offset, rows))
    else:
        offset, length = np.array([0]), np.array([json_value(file.attrs["_size"])], np.int64)
        size = np.array([rows])
    fits = len(offset) == len(length) == len(last) and (length <= size).all() and (size > 0).all()
    if not fits or (last < offset).any() or (last >= offset + size).any():
        raise DataError(
            f"{path} is a Tianshou buffer whose bookkeeping (last_index, _offset, _lengths) does "
            f"not fit its {rows} rows: save it again"
        )
    if length.sum() == 0:
        raise DataError(f"{path} is an empty Tianshou buffer")
    for begin, count, capacity, newest in zip(offset, length, size, last, strict=True):
        oldest = newest - begin + 1 if count == capacity else 0
        yield begin + (oldest + np.arange(count)) % capacity


def _metadata(file: h5py.File, columns: dict[str, np.ndarray]) -> dict[str, Any]:
    """The buffer's frame stack, where its rows are single images."""
    stack = json_value(file.attrs.get("stack_num", 1))
    observation = columns["observation"]
    image = observation.dtype == np.uint8 and observation.ndim == 3
    return {"frame_stack": int(stack)} if image and isinstance(stack, int) and stack > 1 else {}


def _skipped(file: h5py.File) -> Iterator[str]:
    """Names of what is no plain array, and no bookkeeping."""
    found: list[str] = []

    def visit(name: str, item: Any) -> None:
        known = name.split("/")[0] in _BOOKKEEPING
        if isinstance(item, h5py.Dataset) and not known and not _is_plain(item):
            found.append(name)

    file.visititems(visit)
    yield from found


def _is_plain(item: Any) -> bool:
    """Whether an item is an array that was stored as one."""
    if not isinstance(item, h5py.Dataset):
        return False
    kind = item.attrs.get(_TYPE, "ndarray")
    kind = kind.decode() if isinstance(kind, bytes) else str(kind)
    return kind in _PLAIN and item.dtype.kind in "fiub"
