"""What Ray adds to a sweep: the same job in order in one process, and on a local Ray cluster.

Each is a whole `leeward sweep` command, from its start to its end. What is added is a part that
does not grow (starting Ray, a worker that imports the package) and a part that does (slower
updates); both are measured, and from them what they would be of a run of five minutes. Both
commands are run in turn --repeats times; the medians count. The result is appended to
benchmarks/results/sweep.jsonl.

    python benchmarks/sweep.py --seconds 60
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from records import HERE, append, surroundings

ALGORITHM, DATA = "td3-bc", "inverteddoublependulum-replay-v5"
LONG_RUN = 300.0
"""Seconds of the run that the overhead is told of."""
MOST = 0.03
"""Of that run, what Ray may add."""
CALIBRATION = 2_000
"""Updates of the run that tells how many make --seconds."""


class Measured(NamedTuple):
    """One command."""

    wall: float
    """Seconds from its start to its end."""
    rate: float
    """Updates a second while training."""


def main() -> int:
    """Measures, and says whether Ray adds less than it may."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="about how long one run is")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "sweep.jsonl")
    chosen = parser.parse_args()
    steps = max(CALIBRATION, int(chosen.seconds * sweep(CALIBRATION, "order").rate))
    found: dict[str, list[Measured]] = {"order": [], "ray": []}
    for _ in range(chosen.repeats):
        for where, runs in found.items():
            runs.append(sweep(steps, where))
    line = summary(found, steps) | surroundings()
    append(chosen.out, line)
    print(json.dumps(line, indent=1))
    return 0 if line["of_five_minutes"] < MOST else 1


def summary(found: dict[str, list[Measured]], steps: int) -> dict[str, float | int | str]:
    """The medians, and what they mean for a run of five minutes."""
    wall = {where: statistics.median(run.wall for run in runs) for where, runs in found.items()}
    rate = {where: statistics.median(run.rate for run in runs) for where, runs in found.items()}
    fixed = {where: wall[where] - steps / rate[where] for where in found}
    growing = LONG_RUN * (rate["order"] / rate["ray"] - 1.0)
    added = fixed["ray"] - fixed["order"] + growing
    return {
        "job": f"{ALGORITHM} on {DATA}",
        "updates": steps,
        "order_seconds": round(wall["order"], 2),
        "ray_seconds": round(wall["ray"], 2),
        "order_updates_per_second": round(rate["order"], 1),
        "ray_updates_per_second": round(rate["ray"], 1),
        "fixed_seconds": round(fixed["ray"] - fixed["order"], 2),
        "measured_overhead": round(wall["ray"] / wall["order"] - 1.0, 4),
        "of_five_minutes": round(added / LONG_RUN, 4),
        "repeats": len(found["ray"]),
    }


def sweep(steps: int, where: str) -> Measured:
    """Runs the command; `where` is "order" or "ray"."""
    with tempfile.TemporaryDirectory(prefix="leeward-sweep-") as place:
        folder = Path(place) / "sweep"
        line = [sys.executable, "-m", "leeward", "sweep", "--algorithms", ALGORITHM]
        line += ["--datasets", DATA, "--steps", str(steps), "--sweep-dir", str(folder)]
        line += ["--eval-every", "0", "--quiet", *(["--ray", "local"] if where == "ray" else [])]
        begin = time.perf_counter()
        subprocess.run(line, check=True)
        wall = time.perf_counter() - begin
        (file,) = folder.rglob("metrics.jsonl")
        lines = [json.loads(text) for text in file.read_text().splitlines()]
        rates = [row["time/updates_per_second"] for row in lines]
    return Measured(wall, len(rates) / sum(1.0 / rate for rate in rates))


if __name__ == "__main__":
    sys.exit(main())
