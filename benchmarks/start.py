"""How long starting and a million transitions take, and how much memory they need.

The data are 1,000,000 transitions of Hopper's shapes in D4RL's layout, compressed by gzip, made
here. Measured are wall times of whole processes (help texts, inspecting, training), the median of
several, and the seconds from the file to arrays on the device, ready to train; memory is the peak
of the process's resident set. The machine must be idle. Results are appended to
benchmarks/results/start.jsonl, and the table beside it is of the last run.

    python benchmarks/start.py
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from records import append, conclude, surroundings

HERE = Path(__file__).parent
OBSERVATION, ACTION = 11, 3  # Hopper's shapes
EPISODE = 1_000
HELP, TRAIN_HELP = "leeward --help", "leeward train td3-bc --help"
LOAD, INSPECT, TRAIN = "load", "inspect", "train td3-bc, 100 updates"
AIMS = {
    HELP: ("seconds", 0.5),
    TRAIN_HELP: ("seconds", 3.0),
    LOAD: ("seconds", 5.0),
    INSPECT: ("seconds", 5.0),
    TRAIN: ("peak_mb", 1_500.0),
}
"""What is to be reached: the quantity and the most it may be."""
LOADING = """
import json, sys, time

import jax
from leeward.data.load import load_dataset
from leeward.data.sampling import fit_scaling, to_device

begin = time.perf_counter()
dataset = load_dataset(sys.argv[1])
jax.block_until_ready(to_device(dataset, fit_scaling(dataset, True)))
print(json.dumps({"seconds": time.perf_counter() - begin, "transitions": dataset.transitions}))
"""


class Process(NamedTuple):
    """What one process took."""

    seconds: float
    peak_mb: float
    output: str


def main(arguments: list[str] | None = None) -> int:
    """Measures everything, appends one line each and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--transitions", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--table", action="store_true", help="only write the table")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "start.jsonl")
    options = parser.parse_args(arguments)
    if not options.table:
        with tempfile.TemporaryDirectory(prefix="leeward-start-") as folder:
            lines = measured(Path(folder), options.transitions, options.rounds)
        where = surroundings() | {"time": time.strftime("%H:%M:%S")}
        for line in lines:
            append(options.out, line | where)
    return conclude(options.out, table)


def measured(folder: Path, transitions: int, rounds: int) -> list[dict[str, Any]]:
    """One line for everything that is measured."""
    data = folder / "hopper.hdf5"
    write_data(data, transitions)
    leeward = [sys.executable, "-m", "leeward"]
    training = [*leeward, "train", "td3-bc", str(data), "--steps", "100", "--quiet"]
    commands = {
        HELP: [*leeward, "--help"],
        TRAIN_HELP: [*leeward, "train", "td3-bc", "--help"],
        LOAD: [sys.executable, "-c", LOADING, str(data)],
        INSPECT: [*leeward, "inspect", str(data)],
    }
    found: dict[str, list[Process]] = {name: [] for name in commands} | {TRAIN: []}
    for count in range(rounds):
        for name, command in commands.items():
            found[name].append(run(command))
        found[TRAIN].append(run([*training, "--run-dir", str(folder / f"run-{count}")]))
    return [line(name, processes, transitions) for name, processes in found.items()]


def line(name: str, processes: list[Process], transitions: int) -> dict[str, Any]:
    """The medians of one thing."""
    seconds = [process.seconds for process in processes]
    result: dict[str, Any] = {"name": name}
    if name == LOAD:  # without the time that Python and imports take
        answers = [json.loads(process.output) for process in processes]
        assert {answer["transitions"] for answer in answers} == {transitions}
        seconds = [answer["seconds"] for answer in answers]
    if name in (LOAD, INSPECT, TRAIN):
        result["transitions"] = transitions
    return result | {
        "seconds": statistics.median(seconds),
        "all_seconds": seconds,
        "peak_mb": max(process.peak_mb for process in processes),
    }


def run(command: list[str]) -> Process:
    """Runs a command to its end."""
    begin = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - begin
        output.seek(0)
        text = output.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{text}")
    unit = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, KiB elsewhere
    return Process(seconds, usage.ru_maxrss / unit, text)


def write_data(path: Path, transitions: int) -> None:
    """Random transitions, of which each next observation is the next row's but at the ends."""
    generator = np.random.default_rng(0)
    observation = generator.normal(size=(transitions, OBSERVATION)).astype(np.float32)
    following = np.roll(observation, -1, axis=0)
    end = np.arange(transitions) % EPISODE == EPISODE - 1
    end[-1] = True
    following[end] = generator.normal(size=(end.sum(), OBSERVATION)).astype(np.float32)
    columns = {
        "observations": observation,
        "next_observations": following,
        "actions": generator.uniform(-1.0, 1.0, size=(transitions, ACTION)).astype(np.float32),
        "rewards": generator.normal(size=transitions).astype(np.float32),
        "terminals": end & (np.cumsum(end) % 2 == 0),
        "timeouts": end & (np.cumsum(end) % 2 == 1),
    }
    with h5py.File(path, "w") as file:
        for name, values in columns.items():
            file.create_dataset(name, data=values, compression="gzip")


def table(lines: list[dict[str, Any]]) -> str:
    """The last run's rows as a Markdown table."""
    last = lines[-1]
    moment = ("date", "time")
    rows = [
        "| What | Seconds | Peak memory, MB | Aim |",
        "|---|---|---|---|",
    ]
    for one in lines:
        if any(one[part] != last[part] for part in moment):
            continue
        quantity, most = AIMS[one["name"]]
        aim = f"{most:g} s" if quantity == "seconds" else f"{most:,.0f} MB"
        name = f"`{one['name']}`" if one["name"].startswith("leeward") else one["name"]
        if "transitions" in one:
            name += f", {one['transitions']:,} transitions"
        reached = "reached" if one[quantity] <= most else "missed"
        rows.append(f"| {name} | {one['seconds']:.2f} | {one['peak_mb']:,.0f} | {aim}: {reached} |")
    where = f"{last['processor']}, {last['cores']} cores, {last['date']}"
    return "\n".join(rows) + f"\n\nMedians of {len(last['all_seconds'])} processes; {where}.\n"


if __name__ == "__main__":
    sys.exit(main())
