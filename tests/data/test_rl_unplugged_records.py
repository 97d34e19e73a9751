"""One record at a time: frames of every PNG filter, and what is wrong with damaged ones."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from leeward.data.rl_unplugged_frames import decode_all, decode_png
from leeward.data.rl_unplugged_records import parse_record
from leeward.errors import DataError
from shards import (
    Step,
    bytes_feature,
    chunk,
    example,
    float_feature,
    integer_feature,
    play,
    png,
)


@pytest.fixture(scope="module")
def step() -> Step:
    return play((5,))[3]


@pytest.mark.parametrize("kind", [0, 1, 2, 3, 4, None])
def test_frames_of_every_filter_are_read(kind: int | None) -> None:
    frame = np.random.default_rng(0).integers(0, 256, (84, 84), np.uint8)
    np.testing.assert_array_equal(decode_png(png(frame, kind)), frame)


def test_a_record_says_what_was_written(step: Step) -> None:
    record = parse_record(example(step), 4)
    assert [decode_png(frame).tolist() for frame in record.frames] == step.o_t.tolist()
    assert [decode_png(frame).tolist() for frame in record.next_frames] == step.o_tp1.tolist()
    assert record[2:] == (
        step.a_t,
        step.a_tp1,
        step.r_t,
        step.d_t,
        step.episode_id,
        step.episode_return,
    )


def frames(image: bytes) -> dict[str, bytes]:
    return {"o_t": bytes_feature([image] * 4)}


WIDE = np.zeros((84, 96), np.uint8)
SQUARE = np.zeros((84, 84), np.uint8)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"a_t": integer_feature(4)}, "action a_t is 4, the game's are 0 to 3"),
        ({"a_t": integer_feature(-1)}, "action a_t is -1, the game's are 0 to 3"),
        ({"a_tp1": integer_feature(9)}, "action a_tp1 is 9, the game's are 0 to 3"),
        ({"r_t": float_feature(np.nan)}, "reward r_t is nan"),
        ({"d_t": float_feature(1.5)}, "discount d_t is 1.5, not between 0 and 1"),
        ({"d_t": integer_feature(1)}, "feature d_t is no float_list"),
        ({"o_tp1": bytes_feature([png(SQUARE)] * 3)}, "feature o_tp1 has 3 frames, not 4"),
        (frames(png(WIDE)), "a frame of o_t has 96 × 84 pixels, not 84 × 84"),
        (
            frames(png(np.zeros((84, 168), np.uint8)[:, :84], bits=16)),
            "a frame of o_t is no 8-bit gray image (bit depth 16, PNG color type 0)",
        ),
        (
            frames(png(np.zeros((84, 84, 3), np.uint8), color=2)),
            "a frame of o_t is no 8-bit gray image (bit depth 8, PNG color type 2)",
        ),
        (frames(b"GIF89a"), "a frame of o_t is no PNG image"),
        (
            {"r_t": None},
            "it has no feature r_t; it holds a_t, a_tp1, d_t, episode_id, episode_return, o_t, "
            "o_tp1",
        ),
    ],
)
def test_what_is_wrong_with_a_record_is_named(
    step: Step, changes: dict[str, bytes | None], reason: str
) -> None:
    with pytest.raises(DataError) as error:
        parse_record(example(step, **changes), 4)
    assert str(error.value) == reason


def test_any_action_passes_where_the_game_is_not_known(step: Step) -> None:
    assert parse_record(example(step._replace(a_t=17)), None).action == 17
    with pytest.raises(DataError) as error:
        parse_record(example(step._replace(a_t=-2)), None)
    assert str(error.value) == "action a_t is -2, the game's are 0"


def test_no_action_follows_the_end_of_the_task(step: Step) -> None:
    ended = step._replace(d_t=0.0, a_tp1=-1)
    assert parse_record(example(ended), 4).next_action == -1


def test_what_is_no_example_is_refused() -> None:
    with pytest.raises(DataError) as error:
        parse_record(b"\xff\xff\xff", 4)
    assert str(error.value) == "its content is no tf.train.Example"


def test_damaged_frames_are_named_and_the_others_read() -> None:
    whole = png(SQUARE + 7)
    flipped = bytearray(whole)
    flipped[50] ^= 1
    short = whole[:60]
    interlaced = whole[:8] + chunk(b"IHDR", struct.pack(">IIBBBBB", 84, 84, 8, 0, 0, 0, 1))
    empty = whole[:33] + chunk(b"IEND", b"")
    decoded, wrong = decode_all([whole, bytes(flipped), short, interlaced, empty, whole])
    assert (decoded[[0, 5]] == 7).all()
    assert [position for position, _ in wrong] == [1, 2, 3, 4]
    reasons = [reason for _, reason in wrong]
    assert reasons[0] == "a frame is a PNG image with a wrong checksum"
    assert reasons[1].startswith("a frame is a damaged PNG image (")
    assert reasons[2] == "a frame is a PNG image of a kind that is not read (interlaced)"
    assert reasons[3].startswith("a frame is a damaged PNG image (")
