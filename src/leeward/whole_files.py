"""Files that are written whole or not at all, and what a power cut leaves of them."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write_whole(path: Path, content: bytes, mode: int = 0o600, *, settled: bool = True) -> None:
    """Writes a file so that readers see the old one or the new one, never a part.

    Args:
        path: in a folder that exists.
        content: all of it.
        mode: who may read it; temporary files are for their owner alone.
        settled: it lies on the disk itself before it replaces the old one, so that a power cut
            leaves one of them, too; that takes a while for many files.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    temporary = write_beside(path, content, mode, settled=settled)
    try:
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def write_beside(path: Path, content: bytes, mode: int, *, settled: bool = True) -> Path:
    """A new file of another name in the folder of `path`, to be renamed; as `write_whole`."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            if settled:
                file.flush()
                os.fsync(file.fileno())
        temporary.chmod(mode)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return temporary


def settle(path: Path) -> None:
    """Puts a file, or which files a folder has, on the disk itself, where a power cut leaves it.

    Raises:
        OSError: the disk fails.
    """
    if path.is_dir() and os.name != "posix":  # elsewhere a folder cannot be opened
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def settle_all(folder: Path) -> None:
    """The same for a folder with all that lies in it.

    Raises:
        OSError: the disk fails.
    """
    for path in folder.rglob("*"):
        settle(path)
    settle(folder)
