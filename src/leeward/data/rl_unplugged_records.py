"""TFRecord files of RL Unplugged's Atari transitions, read without TensorFlow.

A record is its length (8 bytes, little-endian), the checksum of that, the content, and the
content's checksum: CRC-32C, rotated right by 15 bits, plus 0xA282EAD8 (TensorFlow's
`core/lib/io/record_writer.h`). The content is a protobuf message tf.train.Example
(`core/example/example.proto`) of the features that Gulcehre et al. 2020 (arXiv:2006.13888)
publish. Files are compressed by gzip.
"""

from __future__ import annotations

import contextlib
import functools
import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import google_crc32c
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from leeward.errors import DataError

STACK = 4
"""Frames of an observation, oldest first."""
SIDE = 84
"""Pixels of a frame's side."""
LARGEST_RECORD = 2**24
"""Bytes; ours: a thousand times a real one, so that a damaged length cannot fill the memory."""
_HEADER = struct.Struct("<QI")
_MASK = 0xA282EAD8
_READ = 2**16  # bytes read at once; ours
_GZIP = 31  # zlib's code for gzip's own header and checksum
_PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4s", 13, b"IHDR")
_GRAY = _PNG + struct.pack(">IIBB", SIDE, SIDE, 8, 0)
"""How a PNG of 84 × 84 gray pixels of 8 bits begins."""


class Record(NamedTuple):
    """One transition as it is published."""

    frames: tuple[bytes, ...]
    """o_t: four PNG files, oldest first."""
    next_frames: tuple[bytes, ...]
    """o_tp1."""
    action: int
    next_action: int
    reward: float
    """Clipped to [−1, 1]."""
    discount: float
    """0 where the task ended."""
    episode: int
    episode_return: float
    """Of the whole episode, of clipped rewards."""


class Fault(NamedTuple):
    """A record that cannot be used, or where the file cannot be read on."""

    number: int
    """Counted from 0."""
    reason: str
    ends: bool = False
    """Nothing after it can be read."""


def read_contents(path: Path, skip: int = 0) -> Iterator[tuple[int, bytes] | Fault]:
    """(number, content) of every record after the first `skip`, and faults in their place.

    Raises:
        DataError: the file cannot be opened.
    """
    try:
        raw = path.open("rb")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    with raw:
        file = _Unpacked(raw)
        number = 0
        while True:
            try:
                found = _next_content(file, number, check=number >= skip)
            except (OSError, zlib.error) as error:
                found = Fault(number, f"the file is damaged there ({error})", ends=True)
            if found is None:
                return
            if number >= skip:
                yield found if isinstance(found, Fault) else (number, found)
            if isinstance(found, Fault) and found.ends:
                return
            number += 1


class _Unpacked:
    """A file's content, out of gzip where it is in it, as far as it is sound.

    The standard library's reader throws away what it read last when it meets an error.
    """

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._content = raw.read(2)
        self._place = 0
        self._packed = self._content == b"\x1f\x8b"
        self._error: zlib.error | None = None
        if self._packed:
            raw.seek(0)
            self._content = b""
            self._unpack = zlib.decompressobj(_GZIP)

    def read(self, size: int) -> bytes:
        """The next `size` bytes, or fewer at the end.

        Raises:
            zlib.error: damage before `size` bytes came.
        """
        while len(self._content) - self._place < size:
            if self._error is not None:
                raise self._error
            piece = self._more()
            if piece is None:
                break
            self._content = self._content[self._place :] + piece
            self._place = 0
        part = self._content[self._place : self._place + size]
        self._place += len(part)
        return part

    def _more(self) -> bytes | None:
        """What the next bytes of the file unpack to; None at its end."""
        piece = self._raw.read(_READ)
        if not piece:
            if self._packed and not self._unpack.eof:
                raise OSError("it ends before the end of its compressed content")
            return None
        if not self._packed:
            return piece
        unpacked = []
        while piece:
            if self._unpack.eof:  # another gzip file follows in the same file
                self._unpack = zlib.decompressobj(_GZIP)
            before = self._unpack.copy()
            try:
                unpacked.append(self._unpack.decompress(piece))
            except zlib.error as error:
                self._error = error
                unpacked.append(_sound(before, piece))
                break
            piece = self._unpack.unused_data.lstrip(b"\0")  # padding, which gzip allows
        return b"".join(unpacked)


def _sound(unpack: Any, piece: bytes) -> bytes:
    """What the beginning of `piece` unpacks to, up to the damage in it."""
    unpacked = []
    with contextlib.suppress(zlib.error):
        for place in range(len(piece)):
            unpacked.append(unpack.decompress(piece[place : place + 1]))  # noqa: PERF401
    return b"".join(unpacked)


def _next_content(file: _Unpacked, number: int, *, check: bool) -> bytes | Fault | None:
    """The next record's content, what is wrong with it, or None at the end of the file."""
    header = file.read(12)
    if not header:
        return None
    if len(header) < 12:
        return Fault(number, "the file ends within it", ends=True)
    length, checksum = _HEADER.unpack(header)
    if _masked_crc(header[:8]) != checksum:
        return Fault(number, "its length has a wrong checksum, so the rest is lost", ends=True)
    if length > LARGEST_RECORD:
        return Fault(number, f"it says it has {length} bytes, so the rest is lost", ends=True)
    content, footer = file.read(length), file.read(4)
    if len(content) < length or len(footer) < 4:
        return Fault(number, "the file ends within it", ends=True)
    if check and _masked_crc(content) != int.from_bytes(footer, "little"):
        return Fault(number, "its content has a wrong checksum")
    return content


def _masked_crc(content: bytes) -> int:
    crc = google_crc32c.value(content)
    return (((crc >> 15) | (crc << 17)) + _MASK) & 0xFFFFFFFF


def parse_record(content: bytes, actions: int | None) -> Record:
    """The transition in a record's content.

    Args:
        content: a serialized tf.train.Example.
        actions: how many actions the game has; None where that is not known.

    Raises:
        DataError: why it is no transition, as the end of a sentence.
    """
    example: Any = example_type()()
    try:
        example.ParseFromString(content)
    except message.DecodeError as error:
        raise DataError("its content is no tf.train.Example") from error
    features = example.features.feature
    record = Record(
        _pngs(features, "o_t"),
        _pngs(features, "o_tp1"),
        _integer(features, "a_t"),
        _integer(features, "a_tp1"),
        _number(features, "r_t"),
        _number(features, "d_t"),
        _integer(features, "episode_id"),
        _number(features, "episode_return"),
    )
    taken = {"a_t": record.action}
    if record.discount > 0:  # no action follows where the task ended
        taken["a_tp1"] = record.next_action
    for name, action in taken.items():
        if action < 0 or (actions is not None and action >= actions):
            most = "" if actions is None else f" to {actions - 1}"
            raise DataError(f"action {name} is {action}, the game's are 0{most}")
    if not math.isfinite(record.reward):
        raise DataError(f"reward r_t is {record.reward}")
    if not 0.0 <= record.discount <= 1.0:
        raise DataError(f"discount d_t is {record.discount:g}, not between 0 and 1")
    return record


def _pngs(features: Any, name: str) -> tuple[bytes, ...]:
    """Four PNG files of 84 × 84 gray pixels; only their headers are looked at."""
    found = tuple(_values(features, name, "bytes_list"))
    if len(found) != STACK:
        raise DataError(f"feature {name} has {len(found)} frames, not {STACK}")
    for png in found:
        if not png.startswith(_GRAY):
            raise DataError(f"a frame of {name} {_wrong_png(png)}")
    return found


def _wrong_png(png: bytes) -> str:
    """What a frame is, in place of 84 × 84 gray pixels of 8 bits."""
    if not png.startswith(_PNG) or len(png) < len(_GRAY):
        return "is no PNG image"
    width, height, bits, color = struct.unpack(">IIBB", png[len(_PNG) : len(_GRAY)])
    if (width, height) != (SIDE, SIDE):
        return f"has {width} × {height} pixels, not {SIDE} × {SIDE}"
    return f"is no 8-bit gray image (bit depth {bits}, PNG color type {color})"


def _integer(features: Any, name: str) -> int:
    return int(_single(features, name, "int64_list"))


def _number(features: Any, name: str) -> float:
    return float(_single(features, name, "float_list"))


def _single(features: Any, name: str, kind: str) -> Any:
    values = _values(features, name, kind)
    if len(values) != 1:
        raise DataError(f"feature {name} has {len(values)} values, not 1")
    return values[0]


def _values(features: Any, name: str, kind: str) -> Any:
    if name not in features:
        raise DataError(f"it has no feature {name}; it holds {', '.join(sorted(features))}")
    feature = features[name]
    if feature.WhichOneof("kind") != kind:
        raise DataError(f"feature {name} is no {kind}")
    return getattr(feature, kind).value


@functools.cache
def example_type() -> type[message.Message]:
    """The message tf.train.Example, described here since no light package has it."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="leeward/example.proto", package="leeward.tfrecord", syntax="proto3"
    )
    kinds = (
        ("BytesList", "bytes_list", field.TYPE_BYTES),
        ("FloatList", "float_list", field.TYPE_FLOAT),
        ("Int64List", "int64_list", field.TYPE_INT64),
    )
    for name, _, kind in kinds:
        values = file.message_type.add(name=name)
        values.field.add(name="value", number=1, label=field.LABEL_REPEATED, type=kind)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, (name, label, _) in enumerate(kinds, 1):
        feature.field.add(
            name=label,
            number=number,
            label=field.LABEL_OPTIONAL,
            type=field.TYPE_MESSAGE,
            type_name=f".leeward.tfrecord.{name}",
            oneof_index=0,
        )
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=field.LABEL_OPTIONAL, type=field.TYPE_STRING)
    _add_message(entry, "value", 2, "Feature")
    _add_message(features, "feature", 1, "Features.FeatureEntry", repeated=True)
    _add_message(file.message_type.add(name="Example"), "features", 1, "Features")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("leeward.tfrecord.Example"))


def _add_message(
    owner: descriptor_pb2.DescriptorProto,
    name: str,
    number: int,
    kind: str,
    *,
    repeated: bool = False,
) -> None:
    """Adds a field that holds another message."""
    field = descriptor_pb2.FieldDescriptorProto
    owner.field.add(
        name=name,
        number=number,
        label=field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL,
        type=field.TYPE_MESSAGE,
        type_name=f".leeward.tfrecord.{kind}",
    )
