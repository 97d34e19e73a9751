"""Several files that are written as one: all of them under other names first, then renamed."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from leeward.errors import CheckpointError, DiskError

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)


def write_files(files: Mapping[Path, bytes]) -> None:
    """Writes files; where one cannot be written, all places stay as they were.

    Args:
        files: by path; the last one gets to its place last.

    Raises:
        CheckpointError: a place that cannot be written to.
        DiskError: the disk is full or fails.
    """
    temporary: dict[Path, Path] = {}
    try:
        for path, content in files.items():
            temporary[path] = _temporary(path, content)
        for path, written in temporary.items():
            written.replace(path)
    except OSError as error:
        path = list(files)[-1]
        reason = error.strerror or str(error)
        if error.errno in _DISK:
            raise DiskError(f"{path} could not be written: {reason}: free some space") from error
        raise CheckpointError(
            f"{path} cannot be written ({reason}): choose another --out"
        ) from error
    finally:
        for written in temporary.values():
            with contextlib.suppress(OSError):
                written.unlink(missing_ok=True)


def _temporary(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        Path(name).unlink()
        raise
    Path(name).chmod(0o644)  # a temporary file is for its owner alone
    return Path(name)
