"""Updates a second and time to first update, of Leeward and of two bare yardsticks.

Leeward is measured from outside: the wall time of `leeward train` with many updates less that with
few, divided by the difference in updates, so that logging and checkpoints count and start-up does
not. Beside TD3+BC stand the same update as bare code, one JAX scan and eager PyTorch; beside the
rows of pixels eager PyTorch, d3rlpy and Tianshou, which need Pythons that have them. All rows are
measured in turn, several rounds; the machine must be idle. Results are appended to
benchmarks/results/speed.jsonl.

    python benchmarks/speed.py --rounds 3 --torch-python .venv-peers/bin/python
    python benchmarks/speed.py --rounds 2 --only pixels --torch-python .venv-peers/bin/python \\
        --tianshou-python .venv-tianshou/bin/python

`--torch-python` has PyTorch and d3rlpy (see compare.py); Tianshou wants an environment of its own:

    python3.11 -m venv .venv-tianshou
    .venv-tianshou/bin/pip install torch==2.13.0 tianshou==2.0.1
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
PIXELS = {"transitions": 5_000, "side": 84, "stack": 4, "actions": 6}  # Pong's shapes


class Row(NamedTuple):
    """One training command to measure."""

    name: str
    command: tuple[str, ...]
    few: int
    many: int
    runs: int = 1
    gigaflop: float | None = None
    """Matrix products an update (SPEED.md's analytic counts); None where not counted."""
    pixels: bool = False
    """On random frames of Pong's shapes in place of vectors."""


class Yardstick(NamedTuple):
    """A program that prints its updates a second, measured beside a row."""

    name: str
    row: str
    script: str
    arguments: tuple[str, ...] = ()
    python: str | None = None
    """The flag that names its Python; None for ours."""


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
    Row("pixel il", leeward("il", "--preset", "tianshou"), 300, 1_200, gigaflop=1.58, pixels=True),
    Row("pixel cql", leeward("cql", "--preset", "tianshou"), 200, 800, gigaflop=2.98, pixels=True),
    Row("pixel bcq", leeward("bcq"), 200, 800, gigaflop=2.78, pixels=True),
)
PIXEL_UPDATES = 200  # of a yardstick
PIXELS_OF = (
    ("eager PyTorch", "yardstick_pixels.py", "torch_python"),
    ("d3rlpy", "peers/pixels_d3rlpy.py", "torch_python"),
    ("Tianshou", "peers/pixels_tianshou.py", "tianshou_python"),
)
YARDSTICKS = (
    Yardstick("td3-bc, bare JAX scan", "td3-bc", "yardstick_jax.py"),
    Yardstick("td3-bc, eager PyTorch", "td3-bc", "yardstick_torch.py", (), "torch_python"),
    *(
        Yardstick(f"pixel {name}, {who}", f"pixel {name}", script, (name,), python)
        for name in ("il", "cql", "bcq")
        for who, script, python in PIXELS_OF
    ),
)


def main() -> None:
    """Measures all rows in turn and appends one line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--torch-python", help="a Python with PyTorch and d3rlpy")
    parser.add_argument("--tianshou-python", help="a Python with Tianshou")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the usual updates")
    parser.add_argument("--only", nargs="*", help="names of rows, or pixels for all of frames")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "speed.jsonl")
    arguments = parser.parse_args()
    rows = [
        row._replace(few=round(row.few * arguments.scale), many=round(row.many * arguments.scale))
        for row in ROWS
        if not arguments.only or {row.name, "pixels" * row.pixels} & set(arguments.only)
    ]
    peak = sgemm_gigaflops()
    with tempfile.TemporaryDirectory() as folder:
        data = {row.pixels: Path() for row in rows}
        for pixels in data:
            data[pixels] = (make_frames if pixels else make_data)(Path(folder))
        rates: dict[str, list[float]] = {}
        for _ in range(arguments.rounds):
            for row in rows:
                measured = {row.name: rate_of(row, data[row.pixels], Path(folder))}
                for name, command in yardsticks(arguments, row.name).items():
                    measured[name] = yardstick_rate(command)
                for name, rate in measured.items():
                    rates.setdefault(name, []).append(rate)
                    print(name, f"{rate:.1f}", flush=True)
        first = {}
        if any(row.name == "td3-bc" for row in rows):
            first = {
                "first update, cold": first_update(data[False], Path(folder), warm=False),
                "first update, warm": first_update(data[False], Path(folder), warm=True),
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
    write_row_file(path, data)
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


def yardsticks(arguments: argparse.Namespace, row: str) -> dict[str, list[str]]:
    """Those that stand beside a row and whose Python is named: name → command."""
    found = {}
    for one in YARDSTICKS:
        python = sys.executable if one.python is None else getattr(arguments, one.python)
        if one.row == row and python is not None:
            updates = [str(max(1, round(PIXEL_UPDATES * arguments.scale)))] * len(one.arguments)
            found[one.name] = [python, str(HERE / one.script), *one.arguments, *updates]
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
    flops |= {one.name: 0.415 for one in YARDSTICKS if one.row == "td3-bc"}
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
            if flops.get(name):
                line["share_of_sgemm"] = round(median * flops[name] / peak, 3)
            line |= {"rounds": len(values)}
            if name in updates:  # the yardsticks choose their own number
                line["updates"] = updates[name]
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
