"""A saved policy on disk: a folder with policy.json and policy.npz, replaced as a whole.

The folder is written under another name and renamed. Where one is replaced, the old one is moved
aside first and read from there until the new one is in place: a kill leaves one or the other.
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
import shutil
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from leeward import checkpoint
from leeward.errors import CheckpointError, DiskError
from leeward.run import SWEEP

FORMAT = 1
"""Version of the folder's layout."""
DESCRIPTION, ARRAYS = "policy.json", "policy.npz"
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)
_HEADER = 4096
"""Bytes that a member of the archive may have besides its numbers."""


def exists(folder: Path) -> bool:
    """Whether a saved policy lies there, or did until a save was killed while replacing it."""
    return (folder / DESCRIPTION).is_file() or (_previous(folder) / DESCRIPTION).is_file()


def write(folder: Path, description: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes a saved policy, in place of the one that lies there.

    Args:
        folder: its parents are made.
        description: JSON values.
        arrays: by name.

    Raises:
        CheckpointError: the folder holds something else, or cannot be written.
        DiskError: the disk is full or fails. What was there before is still there.
    """
    folder = folder.resolve()
    incomplete = folder.with_name(f".{folder.name}.incomplete")
    previous = _previous(folder)
    try:
        if folder.exists() and not (folder / DESCRIPTION).is_file() and any(folder.iterdir()):
            raise CheckpointError(f"{folder} holds other files: choose another folder")
        shutil.rmtree(incomplete, ignore_errors=True)  # of a save that was killed
        incomplete.mkdir(parents=True)
        text = json.dumps({"format": FORMAT, **description}, indent=1)
        archive = io.BytesIO()
        np.savez(archive, allow_pickle=False, **arrays)
        _write_file(incomplete / DESCRIPTION, text.encode())
        _write_file(incomplete / ARRAYS, archive.getvalue())
        _replace(incomplete, folder, previous)
    except OSError as error:
        shutil.rmtree(incomplete, ignore_errors=True)
        reason = error.strerror or str(error)
        kind = DiskError if error.errno in _DISK else CheckpointError
        raise kind(f"the policy {folder} could not be written: {reason}") from error


def read(folder: Path) -> tuple[dict[str, Any], bytes]:
    """The description and the bytes of the arrays, both of the same save.

    Raises:
        CheckpointError: missing, damaged, or of a newer format.
    """
    problem = "it changes all the time"
    for _ in range(10):  # a save that runs at the same time may swap the folder in between
        place = folder if (folder / DESCRIPTION).is_file() else _previous(folder)
        try:
            text = (place / DESCRIPTION).read_bytes()
            arrays = (place / ARRAYS).read_bytes()
            if (place / DESCRIPTION).read_bytes() == text:
                return _description(folder / DESCRIPTION, text), arrays
        except OSError as error:
            problem = error.strerror or str(error)
    name = ARRAYS if (folder / DESCRIPTION).is_file() else DESCRIPTION
    raise CheckpointError(
        f"{folder / name} cannot be read ({problem}): the saved policy is incomplete"
    )


def unpack(
    folder: Path, archive: bytes, shapes: Mapping[str, tuple[tuple[int, ...], np.dtype]]
) -> dict[str, np.ndarray]:
    """The arrays of `shapes` (name → shape, type) out of the bytes of the archive.

    Raises:
        CheckpointError: damaged, an array that is missing, or one of another shape or type.
    """
    path = folder / ARRAYS
    try:
        members = {m.filename: m.file_size for m in zipfile.ZipFile(io.BytesIO(archive)).infolist()}
        for name, (shape, dtype) in shapes.items():
            _check_size(path, members.get(f"{name}.npy"), name, shape, dtype)
        with np.load(io.BytesIO(archive), allow_pickle=False) as file:
            arrays = {name: file[name] for name in shapes}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise CheckpointError(f"{path} is damaged or truncated") from error
    for name, (shape, dtype) in shapes.items():
        array = arrays[name]
        if array.shape != shape or array.dtype != dtype:
            raise CheckpointError(
                f"{path}: the array '{name}' is {array.shape} {array.dtype}, policy.json asks for "
                f"{shape} {dtype}"
            )
    return arrays


def find(path: Path, which: str | None) -> Path:
    """The folder of the policy to load from `path`, a run directory or such a folder.

    Args:
        path: where to look.
        which: of a run directory: "best", "last", or a checkpoint's name; None is the best where
            there is one, else the last. A policy's folder holds only one, whichever is asked for.

    Raises:
        CheckpointError: there is none.
    """
    if exists(path):
        if which not in (None, "best", "last"):
            raise CheckpointError(
                f"{path} is one saved policy, not a run directory, and has no checkpoint '{which}'"
            )
        return path
    best, final = path / "best", path / "final"
    steps = {
        checkpoint.name_of(folder): folder / "policy"
        for folder in checkpoint.complete(path / "checkpoints")
    }
    if not (exists(best) or exists(final) or steps):
        if (path / "config.json").is_file():
            raise CheckpointError(f"{path} has no checkpoint yet")
        if (path / SWEEP).is_file():
            raise CheckpointError(f"{path} is a sweep: name one of the run directories in it")
        missing = "is no run directory and no saved policy" if path.exists() else "does not exist"
        raise CheckpointError(f"{path} {missing}")
    if which == "best" and not exists(best):
        raise CheckpointError(
            f"{path} has no best policy, since it was not evaluated in training: "
            "ask for the last (--checkpoint last)"
        )
    if which in (None, "best") and exists(best):
        return best
    if which in (None, "last"):
        return _last(final, list(steps.values()))
    if which not in steps:
        names = ", ".join(steps) or "none"
        raise CheckpointError(
            f"{path} has no checkpoint '{which}': there are best, last and {names}"
        )
    return steps[which]


def _last(final: Path, steps: list[Path]) -> Path:
    """The final policy, unless a run that was trained on has a newer checkpoint."""
    if not exists(final):
        return steps[-1]
    if not steps:
        return final

    def updates(folder: Path) -> int:
        return max(run["step"] for run in read(folder)[0]["runs"])

    return steps[-1] if updates(steps[-1]) > updates(final) else final


def _check_size(
    path: Path, size: int | None, name: str, shape: tuple[int, ...], dtype: np.dtype
) -> None:
    """Before unpacking: `size` is what the archive says an array has in bytes, None if it lacks it.

    Raises:
        CheckpointError: missing, or far larger than it should be.
    """
    if size is None:
        raise CheckpointError(f"{path} lacks the array '{name}' that policy.json asks for")
    if size > 2 * math.prod(shape) * dtype.itemsize + _HEADER:
        raise CheckpointError(
            f"{path}: the array '{name}' is too large: policy.json asks for {shape} {dtype}"
        )


def _description(path: Path, text: bytes) -> dict[str, Any]:
    try:
        description = json.loads(text)
        version = description["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is damaged or no saved policy") from error
    if not isinstance(version, int) or version > FORMAT:
        raise CheckpointError(
            f"{path}: format {version} is newer than this version of leeward reads ({FORMAT}): "
            "upgrade leeward"
        )
    return description


def _previous(folder: Path) -> Path:
    folder = folder.resolve()
    return folder.with_name(f".{folder.name}.previous")


def _replace(incomplete: Path, folder: Path, previous: Path) -> None:
    if not folder.exists():
        incomplete.replace(folder)
    else:
        shutil.rmtree(previous, ignore_errors=True)
        folder.replace(previous)
        try:
            incomplete.replace(folder)
        except OSError:
            previous.replace(folder)
            raise
    shutil.rmtree(previous, ignore_errors=True)


def _write_file(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
