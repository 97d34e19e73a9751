"""Writing the files of a report: whole or not at all."""

from __future__ import annotations

import re
from pathlib import Path

from leeward.errors import CheckpointError, DiskError
from leeward.whole_files import write_whole


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file so that readers see the old one or the new one, never a part.

    Raises:
        DiskError: the disk is full.
        CheckpointError: the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content, mode=0o644, settled=False)
    except OSError as error:
        if error.errno in (28, 122):  # no space left, quota exceeded
            raise DiskError(f"{path.parent}: {error.strerror}: free some space") from error
        raise CheckpointError(
            f"{path.parent} cannot be written ({error.strerror}): choose another folder"
        ) from error


def file_name(*parts: str) -> str:
    """A plain name for files, such as learning-hopper-medium-v2."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower()).strip("-") or "figure"
