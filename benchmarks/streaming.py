"""Training from disk beside training in memory: updates a second, and memory.

Synthetic data is written once: vectors of HalfCheetah's shapes for TD3+BC at batch 256, or frames
of 84 × 84 bytes, four to an observation, for discrete BC at batch 32, the quickest algorithm on
pixels and so the hardest to feed. Both places train through `leeward.train`, each in a process of
its own, in turn, for several rounds; the machine must be idle.

Two kinds of memory are told apart, both the largest seen in /proc/self/status while the process
lives: `private_mb` (RssAnon) cannot be given back, `resident_mb` (VmRSS) also counts pages of
mapped files, which the kernel drops when it needs room. --limit-mb sets RLIMIT_DATA in the child,
a bound on private memory that is enforced, reserved but unused memory included. --ballast-gb takes
memory meanwhile, so that the page cache cannot hold the file; --cold drops the file from it before
every round.

    python benchmarks/streaming.py vectors
    python benchmarks/streaming.py pixels --transitions 1000000 --folder /a/local/disk
    python benchmarks/streaming.py pixels --transitions 1000000 --cold --ballast-gb 16 --only disk
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from records import HERE, append, surroundings

BLOCK = 4096
"""Rows written at once."""


class Case(NamedTuple):
    """What is trained, and how long unless flags say otherwise."""

    algorithm: str
    batch_size: int
    transitions: int
    updates: int


CASES = {
    "vectors": Case("td3_bc", 256, 1_000_000, 20_000),
    "pixels": Case("discrete_bc", 32, 100_000, 2_000),
}
PLACES = ("memory", "disk")


def write_vectors(path: Path, transitions: int, compressed: bool) -> None:
    """Episodes of 1,000 steps of random numbers, in D4RL's layout."""
    columns = {"observations": (17,), "actions": (6,)}
    draw = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        made = {
            key: file.create_dataset(key, (transitions, *shape), np.float32, **_how(compressed))
            for key, shape in columns.items()
        }
        for begin in range(0, transitions, BLOCK):
            size = min(BLOCK, transitions - begin)
            for key, column in made.items():
                values = draw.uniform(-1, 1, (size, *columns[key]))
                column[begin : begin + size] = values
        row = np.arange(transitions)
        file["rewards"] = np.sin(row).astype(np.float32)
        file["terminals"] = row % 1000 == 999
        file["timeouts"] = np.zeros(transitions, bool)


def write_pixels(path: Path, transitions: int, compressed: bool) -> None:
    """Episodes of 1,000 frames, each a random frame moved down and across, in the row layout."""
    draw = np.random.default_rng(0)
    frame = draw.integers(0, 256, (84, 84), np.uint8)
    frame[draw.random((84, 84)) < 0.9] = 0  # most of a game's screen is one color
    with h5py.File(path, "w") as file:
        shape = (transitions, 84, 84)
        column = file.create_dataset("observations", shape, np.uint8, **_how(compressed))
        for begin in range(0, transitions, BLOCK):
            row = np.arange(begin, min(begin + BLOCK, transitions))
            moved = [np.roll(frame, (number % 84, number % 83), (0, 1)) for number in row]
            column[begin : begin + len(row)] = np.array(moved)
        row = np.arange(transitions)
        file["actions"] = (row % 6).astype(np.int32)
        file["rewards"] = np.sin(row).astype(np.float32)
        file["terminals"] = row % 1000 == 999
        file["timeouts"] = np.zeros(transitions, bool)
        file["recorded"] = np.ones(transitions, bool)
        file["episode_start"] = np.arange(0, transitions, 1000)
        file["metadata/frame_stack"], file["metadata/action_count"] = 4, 6


def _how(compressed: bool) -> dict[str, Any]:
    return {"compression": "gzip", "compression_opts": 1} if compressed else {}


def status() -> dict[str, float]:
    """Memory of this process in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    wanted = {"private_mb": "RssAnon", "resident_mb": "VmRSS", "reserved_mb": "VmData"}
    return {name: int(fields[field].split()[0]) / 1e3 for name, field in wanted.items()}


class Watch(threading.Thread):
    """Keeps the largest amounts of memory seen, ten times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = status()
        self._over = threading.Event()

    def run(self) -> None:
        """Looks until `stop`."""
        while not self._over.wait(0.1):
            self.most = {name: max(self.most[name], mb) for name, mb in status().items()}

    def stop(self) -> dict[str, float]:
        """The largest amounts."""
        self._over.set()
        self.join()
        return {name: round(mb, 1) for name, mb in self.most.items()}


def measure(given: Mapping[str, Any]) -> dict[str, Any]:
    """Trains in this process and tells updates a second and memory."""
    if given["limit_mb"]:
        limit = given["limit_mb"] * 10**6
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    watch = Watch()
    watch.start()
    import leeward  # after the watch has begun

    times: list[tuple[int, float]] = []
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        leeward.train(
            given["algorithm"],
            given["data"],
            run_dir=Path(folder) / "run",
            batch_size=given["batch_size"],
            steps=given["updates"],
            log_every=max(1, given["updates"] // 10),
            checkpoint_every=given["updates"],
            data_location=given["place"],
            on_metrics=lambda row: times.append((row["step"], time.perf_counter())),
            quiet=True,
            logger=(),
        )
    (first, start), (last, end) = times[0], times[-1]  # the first line comes after compilation
    return {
        "updates_per_second": round((last - first) / (end - start), 2),
        "seconds_before_first_line": round(start - begun, 1),
        **watch.stop(),
    }


def in_child(given: Mapping[str, Any], cache: Path) -> dict[str, Any]:
    """The same in a process of its own."""
    child = subprocess.run(
        [sys.executable, __file__, "child", json.dumps(given)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "LEEWARD_CACHE": str(cache)},
    )
    if child.returncode:
        raise SystemExit(f"{given['place']}: the process ended with {child.returncode}")
    return json.loads(child.stdout.splitlines()[-1])


def drop_from_cache(folder: Path) -> None:
    """Lets the kernel forget the files' pages."""
    for file in folder.rglob("*"):
        if file.is_file():
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def compare(options: argparse.Namespace, folder: Path) -> None:
    """Measures both places in turn and appends one line each, and one that compares them."""
    case = CASES[options.case]
    transitions = options.transitions or case.transitions
    kind = "gzip" if options.compressed else "plain"
    data = folder / f"{options.case}-{transitions}-{kind}.hdf5"
    if not data.exists():
        temporary = data.with_suffix(".part")
        write = write_vectors if options.case == "vectors" else write_pixels
        write(temporary, transitions, options.compressed)
        temporary.rename(data)
    given = {
        "algorithm": case.algorithm,
        "batch_size": case.batch_size,
        "updates": options.updates or case.updates,
        "data": str(data),
        "limit_mb": options.limit_mb,
    }
    places = [options.only] if options.only else list(PLACES)
    found: dict[str, list[dict[str, Any]]] = {place: [] for place in places}
    ballast = np.ones(int(options.ballast_gb * 2**27))  # numbers of eight bytes, all written
    for _ in range(options.rounds):
        for place in places:
            if options.cold:
                drop_from_cache(folder)
            found[place].append(in_child({**given, "place": place}, folder / "cache"))
            print(place, found[place][-1], flush=True)
    del ballast
    setting = {
        "transitions": transitions,
        "file": kind,
        "file_mb": round(data.stat().st_size / 1e6, 1),
        "batch_size": case.batch_size,
        "updates": given["updates"],
        "rounds": options.rounds,
        "cold": options.cold,
        "limit_mb": options.limit_mb,
        "ballast_gb": options.ballast_gb,
    }
    rate = {}
    for place, results in found.items():
        rates = sorted(result["updates_per_second"] for result in results)
        rate[place] = statistics.median(rates)
        line = {
            "row": f"{case.algorithm}, {options.case}, {place}",
            "updates_per_second": rate[place],
        }
        line |= {"least": rates[0], "most": rates[-1]}
        for name in ("private_mb", "resident_mb", "reserved_mb", "seconds_before_first_line"):
            line[name] = max(result[name] for result in results)
        append(options.out, line | setting | surroundings())
    if len(rate) > 1:
        ratio = round(rate["disk"] / rate["memory"], 3)
        row = f"{case.algorithm}, {options.case}, disk by memory"
        append(options.out, {"row": row, "share_of_speed": ratio} | setting | surroundings())
        print(f"{row}: {ratio}")


def main() -> None:
    """Runs one comparison, or, in a child, one training."""
    if sys.argv[1:2] == ["child"]:
        print(json.dumps(measure(json.loads(sys.argv[2]))))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("case", choices=tuple(CASES))
    parser.add_argument("--transitions", type=int)
    parser.add_argument("--updates", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the data is kept; default: nowhere")
    parser.add_argument("--compressed", action="store_true", help="gzip, so rows are copied once")
    parser.add_argument("--only", choices=PLACES)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--limit-mb", type=int, default=0)
    parser.add_argument("--ballast-gb", type=float, default=0.0)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "streaming.jsonl")
    options = parser.parse_args()
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
        compare(options, options.folder)
        return
    with tempfile.TemporaryDirectory() as folder:
        compare(options, Path(folder))


if __name__ == "__main__":
    main()
