"""One shard of RL Unplugged to five gzip data sets, without any care for speed or memory.

python convert_plain.py SHARD TARGET [--tensorflow]
"""

from __future__ import annotations

import gzip
import io
import struct
import sys
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np


def main() -> None:
    """Decodes every frame of every record, keeps all, writes all."""
    source, target = sys.argv[1:3]
    steps = with_tensorflow(source) if "--tensorflow" in sys.argv else with_pillow(source)
    columns = [np.array(column) for column in zip(*steps, strict=True)]
    names = ("observations", "actions", "rewards", "terminals", "next_observations")
    with h5py.File(target, "w") as file:
        for name, column in zip(names, columns, strict=True):
            file.create_dataset(name, data=column, compression="gzip")


def with_pillow(source: str) -> Iterator[tuple[Any, ...]]:
    """(o_t, a_t, r_t, ended, o_tp1) of every record; no checksum is looked at."""
    from PIL import Image

    from leeward.data.rl_unplugged_records import example_type

    kind: Any = example_type()
    with gzip.open(source) as file:
        while header := file.read(12):
            (length,) = struct.unpack("<Q", header[:8])
            example = kind.FromString(file.read(length))
            file.read(4)
            feature = example.features.feature
            stacks = [
                np.stack(
                    [
                        np.asarray(Image.open(io.BytesIO(png)))
                        for png in feature[name].bytes_list.value
                    ]
                )
                for name in ("o_t", "o_tp1")
            ]
            yield (
                stacks[0],
                feature["a_t"].int64_list.value[0],
                np.float32(feature["r_t"].float_list.value[0]),
                feature["d_t"].float_list.value[0] == 0,
                stacks[1],
            )


def with_tensorflow(source: str) -> Iterator[tuple[Any, ...]]:
    """The same through TensorFlow, one record at a time and eagerly."""
    import tensorflow as tf  # type: ignore[import-not-found]

    features = {
        "o_t": tf.io.FixedLenFeature([4], tf.string),
        "o_tp1": tf.io.FixedLenFeature([4], tf.string),
        "a_t": tf.io.FixedLenFeature([], tf.int64),
        "r_t": tf.io.FixedLenFeature([], tf.float32),
        "d_t": tf.io.FixedLenFeature([], tf.float32),
    }
    for content in tf.data.TFRecordDataset(source, compression_type="GZIP"):
        step = tf.io.parse_single_example(content, features)
        stacks = [
            tf.stack([tf.image.decode_png(step[name][i], channels=1)[..., 0] for i in range(4)])
            for name in ("o_t", "o_tp1")
        ]
        yield (
            stacks[0].numpy(),
            int(step["a_t"]),
            np.float32(step["r_t"]),
            float(step["d_t"]) == 0,
            stacks[1].numpy(),
        )


if __name__ == "__main__":
    main()
