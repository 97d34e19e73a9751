"""TensorBoard's event files, written at once.

tensorboardX's own writer does it in a thread, which a full disk ends without a word to ours; the
queue before it then fills, and training stands still for ever.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

from tensorboardX.proto.event_pb2 import (
    Event,  # pyright: ignore[reportAttributeAccessIssue]
    SessionLog,  # pyright: ignore[reportAttributeAccessIssue]
)
from tensorboardX.record_writer import masked_crc32c
from tensorboardX.summary import scalar

from leeward.growing_files import GrowingFile, disk_errors


class EventFile:
    """A new file of scalars in a folder."""

    def __init__(self, folder: Path, first_step: int | None) -> None:
        """Begins the file; `first_step` hides what older files have from that step on.

        Raises:
            DiskError: it cannot be written.
        """
        now = time.time_ns()  # a new name each time, in the order in which TensorBoard reads them
        name = f"events.out.tfevents.{now // 10**9}.{socket.gethostname()}.{now % 10**9:09d}"
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self._file = GrowingFile(folder / name)
        self._add(Event(file_version="brain.Event:2"))
        if first_step is not None:
            begun = SessionLog(status=SessionLog.START)
            self._add(Event(step=first_step, session_log=begun))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Appends named scalars at a step.

        Raises:
            DiskError: the disk is full or fails.
        """
        for name, value in values.items():
            self._add(Event(step=step, summary=scalar(name, value)))

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _add(self, event: Event) -> None:
        """One event as a TFRecord: its length, the length's checksum, itself, its checksum."""
        event.wall_time = time.time()
        content = event.SerializeToString()
        length = struct.pack("<Q", len(content))
        self._file.write(length + _checksum(length) + content + _checksum(content))


def _checksum(content: bytes) -> bytes:
    return struct.pack("<I", masked_crc32c(content))
