"""Discrete actions end to end on CartPole: an online learner, its mixed data, offline learners.

QR-DQN learns online; the policy nearest to a third of its best one acts with half of its actions
random, and every discrete algorithm learns from that. What each reaches is set beside the mean
return of the data and appended to benchmarks/results/cartpole.jsonl.

    python benchmarks/cartpole.py --out runs/cartpole
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from pathlib import Path

import leeward
from leeward.collect import CollectOptions, QRDQNOptions, collect

HERE = Path(__file__).parent
ENV = "CartPole-v1"
LEARNER = QRDQNOptions(
    steps=40_000,
    copies=4,
    updates_per_step=2,
    random_steps=1_000,
    batch_size=64,
    buffer_size=40_000,
    hidden=(128, 128),
    quantiles=32,
    lr=5e-4,
    target_every=200,
    exploration_steps=10_000,
    eval_every=2_000,
    checkpoint_every=10_000,
)
EPSILON = 0.5
SETTINGS = {"hidden": (128, 128), "batch_size": 128, "normalize_observations": True}
COPIES = {"lr": 5e-4, "target_every": 200}
ALGORITHMS = {
    "bc": {"lr": 5e-4},
    "bcq": COPIES,
    "cql": COPIES | {"quantiles": 32, "cql_weight": 1.0},
    "crr": COPIES,
    "iql": {},
    "qrdqn": COPIES | {"quantiles": 32},
    "dqn": COPIES,
}


def main() -> None:
    """Collects, trains and writes one line an algorithm."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of data and runs")
    parser.add_argument("--quality", default="medium", choices=("expert", "medium"))
    parser.add_argument("--only", nargs="*", choices=ALGORITHMS, help="some of the algorithms")
    parser.add_argument("--steps", type=int, default=20_000, help="updates of each algorithm")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--results", type=Path, default=HERE / "results" / "cartpole.jsonl")
    arguments = parser.parse_args()
    begun = time.time()
    options = CollectOptions(
        policy="qrdqn", dataset=(arguments.quality,), transitions=20_000, epsilon=EPSILON
    )
    path = arguments.out / f"cartpole-{arguments.quality}-v1.hdf5"
    if not path.exists():
        collect(ENV, arguments.out, options, LEARNER, quiet=False)
    data = leeward.load_dataset(path)
    behavior = float(data.episode_returns().mean())
    print(f"data: {data.transitions} transitions, mean return {behavior:.1f}")
    lines = []
    for name in arguments.only or ALGORITHMS:
        settings = ALGORITHMS[name]
        run = leeward.train(
            name,
            path,
            seeds=arguments.seeds,
            steps=arguments.steps,
            eval_every=arguments.steps,
            eval_episodes=20,
            log_every=arguments.steps,
            logger=(),
            quiet=True,
            run_dir=arguments.out / f"{arguments.quality}-{name}-{time.time_ns()}",
            **SETTINGS | settings,
        )
        returns = run.returns()
        lines.append(
            {
                "algorithm": run.algorithm,
                "returns": [round(float(value), 1) for value in returns],
                "mean": round(float(returns.mean()), 1),
                "data_mean_return": round(behavior, 1),
            }
        )
        print(lines[-1], flush=True)
    common = {
        "data": path.name,
        "behavior": data.metadata["file_metadata"]["behavior"],
        "epsilon": EPSILON,
        "steps": arguments.steps,
        "seeds": arguments.seeds,
        "episodes": 20,
        "date": time.strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "seconds": round(time.time() - begun),
    }
    arguments.results.parent.mkdir(exist_ok=True)
    with arguments.results.open("a") as file:
        for line in lines:
            file.write(json.dumps(line | common) + "\n")


if __name__ == "__main__":
    main()
