"""Several files that are written as one: all of them under other names first, then renamed."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Mapping
from pathlib import Path

from leeward.errors import CheckpointError, DiskError
from leeward.whole_files import write_beside

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
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary[path] = write_beside(path, content, mode=0o644)
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
