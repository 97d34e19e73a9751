"""Shards in RL Unplugged's format, written without the package: TFRecord, tf.train.Example, PNG.

Everything is spelled out from the formats' descriptions, so that reader and writer share no code.
"""

from __future__ import annotations

import functools
import gzip
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

SIDE = 84


class Step(NamedTuple):
    """One transition; frames [4, 84, 84] uint8."""

    o_t: np.ndarray
    a_t: int
    r_t: float
    d_t: float
    o_tp1: np.ndarray
    a_tp1: int
    episode_id: int
    episode_return: float


def play(lengths: Iterable[int], seed: int = 0, actions: int = 4) -> list[Step]:
    """Episodes of these lengths, whose stacks begin with three black frames; odd ones are cut."""
    generator = np.random.default_rng(seed)
    steps = []
    for episode, length in enumerate(lengths):
        new = [_frame(generator) for _ in range(length + 1)]
        frame = [np.zeros((SIDE, SIDE), np.uint8)] * 3 + new
        action = generator.integers(0, actions, length + 1)
        reward = generator.integers(-1, 2, length)
        for t in range(length):
            ended = t == length - 1 and episode % 2 == 0
            steps.append(
                Step(
                    np.stack(frame[t : t + 4]),
                    int(action[t]),
                    float(reward[t]),
                    0.0 if ended else 1.0,
                    np.stack(frame[t + 1 : t + 5]),
                    int(action[t + 1]),
                    1000 + episode,
                    float(reward.sum()),
                )
            )
    return steps


def _frame(generator: np.random.Generator) -> np.ndarray:
    """A picture of a few boxes and some noise."""
    frame = np.full((SIDE, SIDE), generator.integers(0, 100), np.uint8)
    for _ in range(3):
        y, x = generator.integers(0, 60, 2)
        frame[y : y + 12, x : x + 20] = generator.integers(100, 256)
    frame[40, :] = generator.integers(0, 256, SIDE)
    return frame


def write_shard(path: Path, contents: Iterable[bytes]) -> None:
    """A gzip file of records."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wb", compresslevel=1) as file:
        for content in contents:
            file.write(record(content))


def record(content: bytes) -> bytes:
    """A TFRecord."""
    length = struct.pack("<Q", len(content))
    return length + struct.pack("<I", masked(length)) + content + struct.pack("<I", masked(content))


def masked(content: bytes) -> int:
    """The masked CRC-32C of TFRecord files, bit by bit over a table."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _table()


def example(step: Step, **changes: bytes | None) -> bytes:
    """A tf.train.Example; `changes` replace features, or leave them out where None."""
    features = {
        "o_t": bytes_feature([_png_of(frame.tobytes()) for frame in step.o_t]),
        "a_t": integer_feature(step.a_t),
        "r_t": float_feature(step.r_t),
        "d_t": float_feature(step.d_t),
        "o_tp1": bytes_feature([_png_of(frame.tobytes()) for frame in step.o_tp1]),
        "a_tp1": integer_feature(step.a_tp1),
        "episode_id": integer_feature(step.episode_id),
        "episode_return": float_feature(step.episode_return),
    } | changes
    entries = b"".join(
        _field(1, _field(1, name.encode()) + _field(2, feature))
        for name, feature in features.items()
        if feature is not None
    )
    return _field(1, entries)


def bytes_feature(values: list[bytes]) -> bytes:
    """A Feature with a bytes_list."""
    return _field(1, b"".join(_field(1, value) for value in values))


def float_feature(value: float) -> bytes:
    """A Feature with a float_list, packed."""
    return _field(2, _field(1, struct.pack("<f", value)))


def integer_feature(value: int) -> bytes:
    """A Feature with an int64_list, not packed, which readers must accept too."""
    return _field(3, b"\x08" + _varint(value % 2**64))


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field of a protobuf message."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    result = bytearray()
    while value >= 0x80:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)


@functools.lru_cache(maxsize=64)
def _png_of(pixels: bytes) -> bytes:
    """A frame's PNG file, made once for the eight places where it stands."""
    return png(np.frombuffer(pixels, np.uint8).reshape(SIDE, SIDE))


def png(frame: np.ndarray, kind: int | None = None, *, bits: int = 8, color: int = 0) -> bytes:
    """A PNG file. `kind` is the filter of its lines (0 to 4); by default it changes with them."""
    height, width = frame.shape[:2]
    lines = frame.reshape(height, -1).astype(np.int16)
    step = max(1, lines.shape[1] // width)
    left = np.pad(lines, ((0, 0), (step, 0)))[:, :-step]
    above = np.pad(lines, ((1, 0), (0, 0)))[:-1]
    corner = np.pad(left, ((1, 0), (0, 0)))[:-1]
    estimate = left + above - corner
    far = [abs(estimate - one) for one in (left, above, corner)]
    paeth = np.where(
        (far[0] <= far[1]) & (far[0] <= far[2]), left, np.where(far[1] <= far[2], above, corner)
    )
    guesses = [0 * lines, left, above, (left + above) // 2, paeth]
    kinds = np.arange(height) % 5 if kind is None else np.full(height, kind)
    filtered = np.stack([lines - guess for guess in guesses])[kinds, np.arange(height)]
    raw = np.column_stack([kinds, filtered % 256]).astype(np.uint8).tobytes()
    header = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(raw))
        + chunk(b"IEND", b"")
    )


def chunk(kind: bytes, content: bytes) -> bytes:
    """One chunk of a PNG file."""
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)
