"""Reads TensorBoard's event files."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
from tensorboardX.proto.event_pb2 import Event


def events(folder: Path) -> list[Event]:
    """All events of the files in a folder, in TensorBoard's order."""
    return [event for path in sorted(folder.glob("events.out.tfevents.*")) for event in of(path)]


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Name → (step, value), all that a folder's files hold."""
    found: dict[str, list[tuple[int, float]]] = {}
    for event in events(folder):
        for value in event.summary.value:
            found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def of(path: Path) -> Iterator[Event]:
    """The events of one file, whose checksums must hold."""
    content = path.read_bytes()
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        event, rest = content[12 : 12 + length], content[12 + length :]
        assert struct.unpack("<I", content[8:12])[0] == masked(content[:8])
        assert struct.unpack("<I", rest[:4])[0] == masked(event)
        yield Event.FromString(event)
        content = rest[4:]


def masked(content: bytes) -> int:
    """TensorFlow's checksum: CRC-32C, rotated right by 15 bits, plus a constant."""
    crc = google_crc32c.value(content)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
