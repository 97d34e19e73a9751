"""Updates a second and time to first update, of Leeward and of two bare yardsticks.

Leeward is measured from outside: the wall time of `leeward train` with many updates less that with
few, divided by the difference in updates, so that logging and checkpoints count and start-up does
not. The yardsticks are the same TD3+BC update as bare code: one JAX scan, and eager PyTorch (which
needs `--torch-python`, a Python that has it). All rows are measured in turn, several rounds; the
machine must be idle. Results are appended to benchmarks/results/speed.jsonl.

    python benchmarks/speed.py --rounds 3 --torch-python .venv-peers/bin/python
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

HERE = Path(__file__).parent
SYNTHETIC = {"transitions": 200_000, "observation": 17, "action": 6}  # HalfCheetah's shapes
PIXELS = {"transitions": 20_000, "side": 84, "stack": 4, "actions": 6}  # Pong's shapes


class Row(NamedTuple):
    """One thing to measure."""

    name: str
    command: tuple[str, ...]
    few: int
    many: int
    runs: int = 1
    gigaflop: float | None = None
    """Matrix products an update (SPEED.md's analytic counts); None where not counted."""
    pixels: bool = False
    """On random frames of Pong's shapes in place of vectors."""


def leeward(name: str, *flags: str, steps: str = "--steps") -> tuple[str, ...]:
    """A training command without evaluation; the number of updates is put behind it."""
    return (name, *flags, steps)


ROWS = (
    Row("td3-bc", leeward("td3-bc"), 8_000, 24_000, gigaflop=0.415),
    Row(
        "td3-bc, 4 seeds", leeward("td3-bc", "--seeds", "0", "1", "2", "3"), 2_000, 6_000, 4, 0.415
    ),
    Row("bc", leeward("bc"), 24_000, 72_000, gigaflop=0.107),
    Row(
        "fisher-brc, behavior phase",
        leeward("fisher-brc", "--steps", "1", steps="--bc-pretraining-steps"),
        8_000,
        24_000,
        gigaflop=0.141,
    ),
    Row(
        "fisher-brc",
        leeward("fisher-brc", "--bc-pretraining-steps", "1"),
        1_000,
        4_000,
        gigaflop=1.894,
    ),
    Row("iql", leeward("iql"), 6_000, 18_000, gigaflop=0.536),
    Row("cql", leeward("cql", "--hidden", "256", "256"), 200, 800, gigaflop=7.081),
    Row("bcq", leeward("bcq", "--preset", "tianshou", "--n-step", "1"), 400, 1_600, gigaflop=3.938),
    # Multiply-adds of the Nature network, forward: 9.4 million an observation; backward twice as
    # many but for the first layer's input.
    Row("pixel il", leeward("il", "--preset", "tianshou"), 300, 900, gigaflop=1.58, pixels=True),
    Row("pixel cql", leeward("cql"), 200, 600, gigaflop=2.34, pixels=True),
    Row("pixel bcq", leeward("bcq"), 200, 600, gigaflop=2.78, pixels=True),
)


def main() -> None:
    """Measures all rows in turn and appends one line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--torch-python", help="a Python with PyTorch, for that yardstick")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the usual updates")
    parser.add_argument("--only", nargs="*", help="names of rows")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "speed.jsonl")
    arguments = parser.parse_args()
    rows = [
        row._replace(few=round(row.few * arguments.scale), many=round(row.many * arguments.scale))
        for row in ROWS
        if not arguments.only or row.name in arguments.only
    ]
    peak = sgemm_gigaflops()
    with tempfile.TemporaryDirectory() as folder:
        data = make_data(Path(folder))
        frames = make_frames(Path(folder)) if any(row.pixels for row in rows) else data
        rates: dict[str, list[float]] = {}
        for _ in range(arguments.rounds):
            for row in rows:
                rates.setdefault(row.name, []).append(
                    rate_of(row, frames if row.pixels else data, Path(folder))
                )
                print(row.name, f"{rates[row.name][-1]:.1f}", flush=True)
            for name, command in yardsticks(arguments.torch_python).items():
                rates.setdefault(name, []).append(yardstick_rate(command))
                print(name, f"{rates[name][-1]:.1f}", flush=True)
        first = {
            "first update, cold": first_update(data, Path(folder), warm=False),
            "first update, warm": first_update(data, Path(folder), warm=True),
        }
    write(arguments.out, rows, rates, first, peak)


def make_data(folder: Path) -> Path:
    """A random data set with HalfCheetah's shapes."""
    generator = np.random.default_rng(0)
    count = SYNTHETIC["transitions"]
    path = folder / "synthetic.npz"
    np.savez(
        path,
        observations=generator.normal(size=(count, SYNTHETIC["observation"])).astype(np.float32),
        actions=generator.uniform(-1, 1, size=(count, SYNTHETIC["action"])).astype(np.float32),
        rewards=generator.normal(size=count).astype(np.float32),
        terminations=np.zeros(count, bool),
        truncations=np.arange(count) % 1_000 == 999,
    )
    return path


def make_frames(folder: Path) -> Path:
    """A random data set with Pong's shapes, every frame stored once."""
    from leeward.data.dataset import Dataset
    from leeward.data.row_file import write_row_file

    generator = np.random.default_rng(0)
    count, side = PIXELS["transitions"], PIXELS["side"]
    data = Dataset.from_arrays(
        generator.integers(0, 256, (count, side, side), np.uint8),
        generator.integers(0, PIXELS["actions"], count),
        generator.normal(size=count),
        np.zeros(count, bool),
        np.arange(count) % 1_000 == 999,
        action_count=PIXELS["actions"],
        metadata={"frame_stack": PIXELS["stack"]},
    )
    path = folder / "frames.hdf5"
    write_row_file(path, data, {"frame_stack": PIXELS["stack"]})
    return path


def train(command: tuple[str, ...], updates: int, data: Path, folder: Path) -> float:
    """Wall seconds of one training command with that many updates."""
    run = tempfile.mkdtemp(dir=folder)
    name, *flags = command
    line = [sys.executable, "-m", "leeward.cli", "train", name, str(data), *flags, str(updates)]
    line += ["--run-dir", f"{run}/run", "--quiet"]
    begin = time.perf_counter()
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def rate_of(row: Row, data: Path, folder: Path) -> float:
    """Updates a second, all runs of the program together."""
    few = train(row.command, row.few, data, folder)
    many = train(row.command, row.many, data, folder)
    return row.runs * (row.many - row.few) / (many - few)


def first_update(data: Path, folder: Path, *, warm: bool) -> float:
    """Wall seconds of a whole process that makes one TD3+BC update; the cache empty or filled."""
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": f"{folder}/cache-{warm}"}
    line = [sys.executable, "-m", "leeward.cli", "train", "td3-bc", str(data), "--steps", "1"]
    for _ in range(1 + warm):
        run = tempfile.mkdtemp(dir=folder)
        begin = time.perf_counter()
        subprocess.run(
            [*line, "--run-dir", f"{run}/run", "--quiet"],
            check=True,
            env=environment,
            stdout=subprocess.DEVNULL,
        )
        seconds = time.perf_counter() - begin
    return seconds


def yardsticks(torch_python: str | None) -> dict[str, list[str]]:
    """The bare versions of TD3+BC: name → command that prints its updates a second."""
    found = {"td3-bc, bare JAX scan": [sys.executable, str(HERE / "yardstick_jax.py")]}
    if torch_python is not None:
        found["td3-bc, eager PyTorch"] = [torch_python, str(HERE / "yardstick_torch.py")]
    return found


def yardstick_rate(command: list[str]) -> float:
    """The number that a yardstick prints last."""
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(re.findall(r"[\d.]+", output)[-1])


def sgemm_gigaflops() -> float:
    """The machine's float32 matrix product of 2048³, best of 10, in GFLOP/s."""
    matrix = np.random.default_rng(0).random((2048, 2048), np.float32)
    seconds = []
    for _ in range(10):
        begin = time.perf_counter()
        matrix @ matrix
        seconds.append(time.perf_counter() - begin)
    return 2 * 2048**3 / min(seconds) / 1e9


def write(
    out: Path,
    rows: list[Row],
    rates: dict[str, list[float]],
    first: dict[str, float],
    peak: float,
) -> None:
    """Appends one line a row, and prints them."""
    flops = {row.name: row.gigaflop for row in rows}
    updates = {row.name: row.many - row.few for row in rows}
    flops |= dict.fromkeys([name for name in rates if name.startswith("td3-bc, ")], 0.415)
    common = {
        "date": time.strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "processor": processor(),
        "python": platform.python_version(),
        "sgemm_gflops": round(peak, 1),
    }
    with out.open("a") as file:
        for name, values in rates.items():
            median = statistics.median(values)
            line = {"row": name, "updates_per_second": round(median, 1)}
            line |= {"least": round(min(values), 1), "most": round(max(values), 1)}
            if flops[name]:
                line["share_of_sgemm"] = round(median * flops[name] / peak, 3)
            line |= {"rounds": len(values), "updates": updates.get(name, 2_000)}
            file.write(json.dumps(line | common) + "\n")
            print(line)
        for name, seconds in first.items():
            file.write(json.dumps({"row": name, "seconds": round(seconds, 2)} | common) + "\n")
            print(name, f"{seconds:.2f} s")


def processor() -> str:
    """The processor's name, where the system tells."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    found = re.search(r"model name\s*:\s*(.*)", text)
    return found[1] if found else platform.processor()


if __name__ == "__main__":
    main()
