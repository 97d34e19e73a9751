"""Builds the report of 10 algorithms × 9 tasks × 10 seeds, from made-up runs of the usual size.

Every run directory has 100 evaluations of 10 episodes and 1,000 lines of metrics for each seed, as
a run of 1,000,000 updates leaves them by default. The page must be built in under 30 s and be
under 10 MB. The result is appended to benchmarks/results/report.jsonl.

    python benchmarks/report.py --keep report-of-benchmark
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from leeward.algorithms import get_algorithm
from leeward.config import to_json
from leeward.data import registry
from leeward.options import RunOptions

HERE = Path(__file__).parent
ALGORITHMS = (
    "bc",
    "td3_bc",
    "fisher_brc",
    "iql",
    "cql",
    "cal_ql",
    "bcq",
    "crr",
    "awac",
    "rebrac",
)
TASKS = tuple(
    f"{robot}-{quality}-v2"
    for robot in ("halfcheetah", "hopper", "walker2d")
    for quality in ("medium", "medium-replay", "medium-expert")
)
METRICS = (
    "critic/loss",
    "critic/q",
    "critic/next_q",
    "critic/gap",
    "actor/loss",
    "actor/entropy",
    "actor/alpha",
    "actor/weight",
    "actor/divergence",
    "actor/advantage",
    "value/loss",
    "value/v",
)
STEPS, EVALUATIONS, LINES, EPISODES = 1_000_000, 100, 1_000, 10
LONGEST_SECONDS, MOST_BYTES = 30.0, 10_000_000


def main() -> int:
    """Measures and says whether the limits hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--keep", type=Path, help="keep the report in this folder")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "report.jsonl")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="leeward-report-") as place:
        runs = Path(place) / "runs"
        for index, algorithm in enumerate(ALGORITHMS):
            for task in TASKS:
                fabricate(runs / algorithm / task, algorithm, task, chosen.seeds, index)
        report = chosen.keep or Path(place) / "report"
        begin = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "leeward.cli", "report", str(runs), "--out", str(report)],
            check=True,
            env=os.environ | {"PYTHONHASHSEED": "0"},
        )
        seconds = time.perf_counter() - begin
        read = sum(file.stat().st_size for file in runs.rglob("*.jsonl"))
        page = (report / "index.html").stat().st_size
        whole = sum(file.stat().st_size for file in report.rglob("*") if file.is_file())
        drawn = len(list((report / "figures").glob("*.svg")))
    line = {
        "date": time.strftime("%Y-%m-%d"),
        "runs": f"{len(ALGORITHMS)} algorithms, {len(TASKS)} tasks, {chosen.seeds} seeds",
        "seconds": round(seconds, 1),
        "page_bytes": page,
        "folder_bytes": whole,
        "figures": drawn,
        "bytes_read": read,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    with chosen.out.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(json.dumps(line))
    return 0 if seconds < LONGEST_SECONDS and page < MOST_BYTES else 1


def fabricate(directory: Path, algorithm: str, task: str, seeds: int, index: int) -> None:
    """A run directory with the files that training would leave."""
    generator = np.random.default_rng([index, TASKS.index(task)])
    (directory / "final").mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config(algorithm, task, seeds)))
    reference = registry.reference_scores(task)
    assert reference is not None
    goal = generator.uniform(20, 100) + 2 * index
    rise = 1 - np.exp(-np.arange(1, EVALUATIONS + 1) / 15)
    score = goal * rise * generator.normal(1, 0.08, (seeds, 1)) + generator.normal(
        0, 4, (seeds, EVALUATIONS)
    )
    span = reference.maximum - reference.minimum
    mean = reference.minimum + score / 100 * span
    episodes = mean[..., None] + 0.05 * span * generator.normal(size=(*mean.shape, EPISODES))
    lines = []
    for k in range(EVALUATIONS):
        for seed in range(seeds):
            returns = episodes[seed, k]
            true_mean = float(returns.mean())
            lines.append(
                json.dumps(
                    {
                        "phase": "train",
                        "step": (k + 1) * STEPS // EVALUATIONS,
                        "run": seed,
                        "seed": seed,
                        "returns": returns.tolist(),
                        "lengths": [1000] * EPISODES,
                        "return_mean": true_mean,
                        "return_std": float(returns.std()),
                        "score_mean": 100 * (true_mean - reference.minimum) / span,
                    }
                )
            )
    (directory / "evaluations.jsonl").write_text("\n".join(lines) + "\n")
    write_metrics(directory / "metrics.jsonl", seeds, generator)


def config(algorithm: str, task: str, seeds: int) -> dict[str, Any]:
    """config.json of a run with the algorithm's defaults."""
    options = RunOptions()
    entry = registry.find(task)
    assert entry is not None
    return {
        "format": 1,
        "algorithm": algorithm,
        "config": to_json(get_algorithm(algorithm).config_type()),
        "steps": STEPS,
        "runs": [{"run": seed, "seed": seed} for seed in range(seeds)],
        "options": {**options.__dict__, "seeds": list(range(seeds))},
        "environment": entry.env,
        "data": {
            "source": task,
            "options": {},
            "name": task,
            "hash": f"{TASKS.index(task):064x}",
            "transitions": 999_000,
            "episodes": 2_000,
            "return_mean": 1_500.0,
            "notes": ["made up by the benchmark"],
            "findings": [
                {
                    "code": "actions_on_bounds",
                    "severity": "info",
                    "count": 1_000,
                    "rows": [1, 2],
                    "message": "1,000 actions lie on the bounds",
                    "remedy": "Widen the margin of tanh densities",
                }
            ],
        },
        "versions": {"leeward": "0.1.0.dev0", "python": "3.12", "mujoco": "4.0.0"},
    }


def write_metrics(path: Path, seeds: int, generator: np.random.Generator) -> None:
    """LINES lines for each seed."""
    walk = np.cumsum(generator.normal(size=(LINES, seeds, len(METRICS))), axis=0)
    names = [json.dumps(name) for name in METRICS]
    with path.open("w") as file:
        for k in range(LINES):
            step = (k + 1) * STEPS // LINES
            for seed in range(seeds):
                values = ", ".join(
                    f"{name}: {value!r}"
                    for name, value in zip(names, walk[k, seed].tolist(), strict=True)
                )
                file.write(
                    f'{{"phase": "train", "step": {step}, "run": {seed}, "seed": {seed}, {values}, '
                    '"time/updates_per_second": 412.0}\n'
                )


if __name__ == "__main__":
    sys.exit(main())
