"""What phases show of single transitions at their end: arrays for the report's figures."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from leeward.errors import CheckpointError, DiskError
from leeward.whole_files import write_whole

FOLDER = "closeups"
_DISK = (28, 122)
"""errno of a full disk and of an exceeded quota."""


def write(directory: Path, phase: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes closeups/PHASE.npz of a run directory, whole or not at all.

    Raises:
        DiskError, CheckpointError: the file cannot be written.
    """
    archive = io.BytesIO()
    np.savez_compressed(archive, allow_pickle=False, **arrays)
    path = directory / FOLDER / f"{phase}.npz"
    try:
        path.parent.mkdir(exist_ok=True)
        write_whole(path, archive.getvalue())
    except OSError as error:
        kind = DiskError if error.errno in _DISK else CheckpointError
        raise kind(f"{path} could not be written: {error.strerror}") from error


def read(directory: Path, phase: str) -> dict[str, np.ndarray] | None:
    """The arrays of closeups/PHASE.npz, or None where there is no such file.

    Raises:
        CheckpointError: the file is damaged.
    """
    path = directory / FOLDER / f"{phase}.npz"
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as archive:
            return dict(archive)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, KeyError) as error:
        raise CheckpointError(f"{path}: damaged ({error})") from error
