"""Batches of RL Unplugged records with their frames decoded, each distinct PNG of a batch once."""

from __future__ import annotations

import itertools
import os
import signal
import struct
import zlib
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from leeward.data.rl_unplugged_records import (
    SIDE,
    Fault,
    Record,
    parse_record,
    read_contents,
)
from leeward.errors import DataError

_SIGNATURE = 8  # bytes before a PNG file's first chunk
_AHEAD = 2  # batches that wait for each decoding process; ours: keeps it busy


class Batch(NamedTuple):
    """Records that follow one another in a file, and their frames."""

    records: list[tuple[int, Record]]
    """(number in the file, record), without those that cannot be used."""
    faults: list[Fault]
    """The others."""
    position: dict[bytes, int]
    """Where in `frame` a PNG file's pixels are."""
    frame: np.ndarray
    """[P, 84, 84] uint8."""


def decode_png(png: bytes) -> np.ndarray:
    """[84, 84] uint8: the pixels of a gray PNG file whose header was looked at.

    Pillow unpacks and unfilters the lines; the file's few parts are told apart here, which takes
    half the time of opening an image.

    Raises:
        DataError: damaged content.
    """
    packed = []
    place = _SIGNATURE
    try:
        while True:
            length, kind = struct.unpack_from(">I4s", png, place)
            content = png[place + 8 : place + 8 + length]
            (checksum,) = struct.unpack_from(">I", png, place + 8 + length)
            if zlib.crc32(kind + content) != checksum:
                raise DataError("a frame is a PNG image with a wrong checksum")
            if kind == b"IDAT":
                packed.append(content)
            elif kind == b"IHDR" and content[10:] != b"\0\0\0":
                raise DataError("a frame is a PNG image of a kind that is not read (interlaced)")
            elif kind == b"IEND":
                break
            place += 12 + length
        image = Image.frombytes("L", (SIDE, SIDE), b"".join(packed), "zip", "L", 0)
    except (struct.error, ValueError, OSError) as error:
        raise DataError(f"a frame is a damaged PNG image ({error})") from error
    return np.frombuffer(image.tobytes(), np.uint8).reshape(SIDE, SIDE)


def decode_all(pngs: list[bytes]) -> tuple[np.ndarray, list[tuple[int, str]]]:
    """([P, 84, 84] uint8, [(position, what is wrong with it)])."""
    frame = np.zeros((len(pngs), SIDE, SIDE), np.uint8)
    wrong = []
    for position, png in enumerate(pngs):
        try:
            frame[position] = decode_png(png)
        except DataError as error:
            wrong.append((position, str(error)))
    return frame, wrong


def read_batches(
    path: Path, *, actions: int | None, size: int, skip: int = 0, workers: int = 0
) -> Generator[Batch, None, None]:
    """All records of a file after the first `skip`, `size` at a time, decoded.

    Args:
        path: a TFRecord file.
        actions: how many actions the game has; None where that is not known.
        size: records of a batch.
        skip: records that are passed over unread.
        workers: processes that decode; 0 decodes here.
    """
    batches = _parsed(read_contents(path, skip), actions, size)
    if workers == 0:
        for records, faults, position in batches:
            yield _joined(records, faults, position, decode_all(list(position)))
        return
    with decoding_processes(workers) as pool:
        waiting: deque[tuple[list, list, dict, Future]] = deque()
        for records, faults, position in batches:
            decoded = pool.submit(decode_all, list(position))
            waiting.append((records, faults, position, decoded))
            if len(waiting) > _AHEAD * workers:
                records, faults, position, decoded = waiting.popleft()
                yield _joined(records, faults, position, decoded.result())
        for records, faults, position, decoded in waiting:
            yield _joined(records, faults, position, decoded.result())


@contextmanager
def decoding_processes(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that an interrupt from the keyboard leaves to their owner."""
    pool = ProcessPoolExecutor(workers, get_context("spawn"), ignore_interrupts)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def ignore_interrupts() -> None:
    """For processes whose owner decides what an interrupt means."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def processors() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _parsed(
    contents: Iterable[tuple[int, bytes] | Fault], actions: int | None, size: int
) -> Iterator[tuple[list[tuple[int, Record]], list[Fault], dict[bytes, int]]]:
    """(records, faults, the distinct PNG files numbered) of every `size` records."""
    contents = iter(contents)
    while part := list(itertools.islice(contents, size)):
        records: list[tuple[int, Record]] = []
        faults: list[Fault] = []
        position: dict[bytes, int] = {}
        for item in part:
            if isinstance(item, Fault):
                faults.append(item)
                continue
            number, content = item
            try:
                record = parse_record(content, actions)
            except DataError as error:
                faults.append(Fault(number, str(error)))
                continue
            records.append((number, record))
            for png in record.frames + record.next_frames:
                position.setdefault(png, len(position))
        yield records, faults, position


def _joined(
    records: list[tuple[int, Record]],
    faults: list[Fault],
    position: dict[bytes, int],
    decoded: tuple[np.ndarray, list[tuple[int, str]]],
) -> Batch:
    """A batch without the records that have a damaged frame."""
    frame, wrong = decoded
    if wrong:
        reason = dict(wrong)
        usable = []
        for number, record in records:
            found = [
                reason[position[png]]
                for png in record.frames + record.next_frames
                if position[png] in reason
            ]
            if found:
                faults.append(Fault(number, found[0]))
            else:
                usable.append((number, record))
        records, faults = usable, sorted(faults)
    return Batch(records, faults, position, frame)
