"""Pong from recorded frames: IL, BCQ, CQL, CRR and CRR with CQL's term, beside the data's return.

Takes a file of single frames (`frames`, `final_frames`, `episode_offsets` and D4RL's other columns)
or one that `leeward collect` wrote, and appends a line an algorithm to
benchmarks/results/pong.jsonl. 10,000 updates of CQL take about ten minutes on two cores.

    python benchmarks/pong.py --data pong.hdf5 --out runs/pong --only il cql
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from pathlib import Path

import h5py
import numpy as np

import leeward

HERE = Path(__file__).parent
ENV = "PongNoFrameskip-v4"
ALGORITHMS = {
    "il": ("bc", {}),
    "bcq": ("bcq", {}),
    "cql": ("cql", {}),
    "crr": ("crr", {"cql_weight": 0.0}),
    "crr+cql": ("crr", {"cql_weight": 10.0}),
}
PUBLISHED = {"il": 20.0, "bcq": 20.1, "cql": 20.4, "crr": -21.0, "crr+cql": 17.7}
"""Tianshou's README, 1,000,000 transitions of QR-DQN with ε 0.2, 50,000 updates."""


def main() -> None:
    """Trains and writes one line an algorithm."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder of runs")
    parser.add_argument("--only", nargs="*", choices=ALGORITHMS)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--results", type=Path, default=HERE / "results" / "pong.jsonl")
    arguments = parser.parse_args()
    data = read(arguments.data)
    for name in arguments.only or ALGORITHMS:
        algorithm, settings = ALGORITHMS[name]
        begun = time.time()
        run = leeward.train(
            algorithm,
            data,
            env=ENV,
            seeds=arguments.seeds,
            preset="tianshou",
            steps=arguments.steps,
            eval_every=arguments.steps,
            run_dir=arguments.out / f"{name}-{time.time_ns()}",
            **settings,
        )
        line = {
            "algorithm": name,
            "returns": [round(float(value), 2) for value in run.returns()],
            "data_mean_return": round(float(data.episode_returns().mean()), 2),
            "published": PUBLISHED[name],
            "transitions": data.transitions,
            "steps": arguments.steps,
            "seeds": arguments.seeds,
            "episodes": 10,
            "seconds": round(time.time() - begun),
            "date": time.strftime("%Y-%m-%d"),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        }
        print(line, flush=True)
        arguments.results.parent.mkdir(exist_ok=True)
        with arguments.results.open("a") as file:
            file.write(json.dumps(line) + "\n")


def read(path: Path) -> leeward.Dataset:
    """The data set, of single frames with those after each episode's last step apart, or ours."""
    with h5py.File(path) as file:
        if "frames" not in file:
            return leeward.load_dataset(path)
        column = {key: file[key][()] for key in ("actions", "rewards", "terminals", "timeouts")}
        frame, final, offset = (file[k][()] for k in ("frames", "final_frames", "episode_offsets"))
    following = np.roll(frame, -1, axis=0)
    following[offset[1:] - 1] = final
    return leeward.Dataset.from_arrays(
        frame,
        column["actions"],
        column["rewards"],
        column["terminals"],
        column["timeouts"],
        next_observation=following,
        action_count=6,
        metadata={"name": path.stem, "env": ENV, "frame_stack": 4},
    )


if __name__ == "__main__":
    main()
