"""Transitions a second of `leeward convert` on RL Unplugged's format, and of the plain way.

Shards are made here: records in order, as episodes were played, and shuffled. The plain way does
what the published script does: each of a record's eight frames is decoded, both stacks are kept in
memory, and h5py writes five gzip data sets; with `--tensorflow-python`, a Python that has
TensorFlow and h5py, the same with TensorFlow's reader and decoder. All are wall times of whole
processes, start-up included. The published script takes about an hour a shard of 500,000. Results
are appended to benchmarks/results/convert.jsonl.

    python benchmarks/convert.py --transitions 20000 --frames pong.hdf5
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import platform
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import google_crc32c
import h5py
import numpy as np
from PIL import Image

from leeward.data.rl_unplugged_records import example_type
from records import append, surroundings

HERE = Path(__file__).parent
HOUR_A_SHARD = 500_000 / 3_600  # transitions a second of the published script, as it says
EPISODE = 1_000  # steps of the episodes made here; ours
SIDE = 84


def main() -> None:
    """Measures every way on both shards, in turn, and appends one line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--transitions", type=int, default=20_000)
    parser.add_argument("--plain-transitions", type=int, default=2_000, help="of the plain way")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--frames", help="an HDF5 file whose 'frames' are real ones [N, 84, 84]")
    parser.add_argument("--tensorflow-python", help="a Python with TensorFlow and h5py")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "convert.jsonl")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = []
        for order in ("in order", "shuffled"):
            rows += rows_of(Path(folder), order, options)
        rates: dict[str, list[float]] = {name: [] for name, _, _ in rows}
        for _ in range(options.rounds):
            for name, count, command in rows:
                rates[name].append(count / seconds(command))
                print(f"{name}: {rates[name][-1]:,.0f} transitions/s", flush=True)
    results = [result(name, rates[name], options) for name, _, _ in rows]
    for line in results:
        append(options.out, line | surroundings())
        print(f"{line['name']:<40} {line['median']:>8,.0f}/s  {line['times_an_hour']:6.1f} ×")


def rows_of(
    folder: Path, order: str, options: argparse.Namespace
) -> list[tuple[str, int, list[str]]]:
    """(name, transitions, command) of every way to convert one shard."""
    whole, part = (
        folder / order.replace(" ", "-") / "Pong" / f"run_1-{number:05d}-of-00100"
        for number in (0, 1)
    )
    for path, count in ((whole, options.transitions), (part, options.plain_transitions)):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_shard(path, count, shuffled=order == "shuffled", frames=options.frames)
    target = folder / "target.hdf5"
    leeward = [sys.executable, "-m", "leeward.cli", "convert", str(whole), str(target)]
    leeward += ["--overwrite", "--quiet"]
    rows = [
        (f"{order}, {n} process{'es' * (n > 1)}", options.transitions, processes(leeward, n))
        for n in options.processes
    ]
    rows.append(
        (f"{order}, d4rl layout", options.transitions, [*processes(leeward, 1), "--layout", "d4rl"])
    )
    plain = [str(HERE / "peers" / "convert_plain.py"), str(part), str(target)]
    rows.append((f"{order}, the plain way", options.plain_transitions, [sys.executable, *plain]))
    if options.tensorflow_python:
        rows.append(
            (
                f"{order}, the plain way with TensorFlow",
                options.plain_transitions,
                [options.tensorflow_python, *plain, "--tensorflow"],
            )
        )
    return rows


def processes(command: list[str], count: int) -> list[str]:
    """The command on so many processes, and cores."""
    pinned = [] if not hasattr(os, "sched_setaffinity") else ["taskset", "-c", f"0-{count - 1}"]
    return [*pinned, *command, "--processes", str(count)]


def seconds(command: list[str]) -> float:
    """Wall time of a command."""
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return time.monotonic() - begin


def result(name: str, rates: list[float], options: argparse.Namespace) -> dict[str, Any]:
    """One line of results."""
    median = statistics.median(rates)
    return {
        "name": name,
        "median": median,
        "rates": rates,
        "times_an_hour": median / HOUR_A_SHARD,
        "frames": "real" if options.frames else "made",
        "transitions": options.transitions,
        "python": platform.python_version(),
    }


def write_shard(path: Path, count: int, *, shuffled: bool, frames: str | None) -> None:
    """A shard of `count` transitions of episodes of `EPISODE` steps."""
    images = frames_of(count + 1, frames)
    pngs = [png(image) for image in images]
    black = png(np.zeros((SIDE, SIDE), np.uint8))
    generator = np.random.default_rng(0)
    order = generator.permutation(count) if shuffled else np.arange(count)
    action = generator.integers(0, 6, count + 1)
    with gzip.open(path, "wb", compresslevel=6) as file:
        for number in order.tolist():
            step = number % EPISODE
            begin = number - step
            stack = [black] * 3 + pngs[begin : begin + step + 2]
            ended = step == EPISODE - 1
            content = record(stack[-5:], action[number : number + 2], number // EPISODE, ended)
            length = struct.pack("<Q", len(content))
            file.write(length + masked(length) + content + masked(content))


def record(stack: list[bytes], action: np.ndarray, episode: int, ended: bool) -> bytes:
    """A serialized tf.train.Example of five frames that follow one another."""
    example = example_type()()
    feature: Any = example.features.feature  # type: ignore[attr-defined]
    feature["o_t"].bytes_list.value.extend(stack[:4])
    feature["o_tp1"].bytes_list.value.extend(stack[1:])
    feature["a_t"].int64_list.value.append(int(action[0]))
    feature["a_tp1"].int64_list.value.append(int(action[1]))
    feature["r_t"].float_list.value.append(0.0)
    feature["d_t"].float_list.value.append(0.0 if ended else 1.0)
    feature["episode_id"].int64_list.value.append(episode)
    feature["episode_return"].float_list.value.append(0.0)
    return example.SerializeToString()


def masked(content: bytes) -> bytes:
    """The checksum of a TFRecord."""
    crc = google_crc32c.value(content)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def png(image: np.ndarray) -> bytes:
    """A PNG file."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


def frames_of(count: int, file: str | None) -> np.ndarray:
    """[count, 84, 84]: real frames, over and over if need be, or two bats and a ball."""
    if file is not None:
        with h5py.File(file) as source:
            real = source["frames"][: min(count, len(source["frames"]))]
        return real[np.arange(count) % len(real)]
    images = np.full((count, SIDE, SIDE), 87, np.uint8)
    images[:, 10:14] = images[:, 78:80] = 236
    t = np.arange(count)
    for i in range(count):
        ball_y, ball_x = 16 + abs(t[i] * 3 % 116 - 58), 12 + abs(t[i] * 5 % 116 - 58)
        images[i, ball_y : ball_y + 2, ball_x : ball_x + 1] = 236
        left, right = 16 + abs(t[i] * 2 % 100 - 50), 16 + abs(t[i] * 3 % 100 - 50)
        images[i, left : left + 9, 8:10] = 147
        images[i, right : right + 9, 74:76] = 148
    return images


if __name__ == "__main__":
    main()
