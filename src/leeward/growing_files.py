"""Files that grow while a run goes on: whole writes, a disk that is full told in one line."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from leeward.errors import DiskError

_PIECE = 2**16  # bytes looked at at once for the end of a line; ours


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turns what the system says while a run's file is written into one line."""
    try:
        yield
    except OSError as error:
        raise DiskError(
            f"{path}: cannot be written ({error.strerror or error}): free some space and continue "
            "with --resume"
        ) from error


class GrowingFile:
    """A file that is appended to; what was written is with the system, not in a buffer of ours."""

    def __init__(self, path: Path) -> None:
        """Opens a file, or makes it.

        Raises:
            DiskError: it cannot be opened.
        """
        self.path = path
        self._failed = False
        with disk_errors(path):
            self._file = path.open("ab")  # open for the whole run

    def write(self, content: bytes) -> None:
        """Appends the content.

        Raises:
            DiskError: the disk is full or fails.
        """
        try:
            with disk_errors(self.path):
                self._file.write(content)
                self._file.flush()
        except DiskError:
            self._failed = True
            raise

    def settle(self) -> int:
        """Puts what was written on the disk itself, where a power cut leaves it; its bytes."""
        with disk_errors(self.path):
            os.fsync(self._file.fileno())
        return self._file.tell()

    def cut(self, size: int) -> bool:
        """Drops everything after the first `size` bytes; False where there are fewer.

        Of a file that has fewer only whole lines are kept.
        """
        with disk_errors(self.path):
            there = self.path.stat().st_size
            kept = size if there >= size else self._end_of_last_line(there)
            self._file.truncate(kept)
            self._file.seek(0, os.SEEK_END)
        return there >= size

    def close(self) -> None:
        """Closes the file.

        Raises:
            DiskError: the disk fails, and no write has said so before.
        """
        told = (DiskError,) if self._failed else ()
        with contextlib.suppress(*told), disk_errors(self.path):
            self._file.close()  # tries once more to write what could not be written

    def _end_of_last_line(self, size: int) -> int:
        """Bytes up to and with the last end of a line among the first `size`."""
        with self.path.open("rb") as file:
            while size > 0:
                begin = max(0, size - _PIECE)
                file.seek(begin)
                found = file.read(size - begin).rfind(b"\n")
                if found >= 0:
                    return begin + found + 1
                size = begin
        return 0
