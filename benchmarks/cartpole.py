"""Discrete actions end to end on CartPole: an online learner, its mixed data, offline learners.

QR-DQN learns online; the policy nearest to a third of its best one acts with half of its actions
random, and every discrete algorithm learns from that. What each reaches is set beside the mean
return of the data. Rows that benchmarks/results/cartpole.jsonl holds already are skipped, so the
command can be repeated until all are there.

    python benchmarks/cartpole.py --runs runs/cartpole
    python benchmarks/cartpole.py --table
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import leeward
from leeward.collect import CollectOptions, QRDQNOptions, collect
from records import append, conclude, read_lines, surroundings

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
EPISODES = 20
SETTINGS = {"hidden": (128, 128), "batch_size": 128, "normalize_observations": True}
COPIES = {"lr": 5e-4, "target_every": 200}
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "bc": ("bc", {"lr": 5e-4}),
    "bc, best 10 %": ("bc", {"lr": 5e-4, "best_fraction": 0.1}),
    "bcq": ("bcq", COPIES),
    "cql": ("cql", COPIES | {"quantiles": 32, "cql_weight": 1.0}),
    "crr": ("crr", COPIES),
    "iql": ("iql", {}),
    "qrdqn": ("qrdqn", COPIES | {"quantiles": 32}),
    "dqn": ("dqn", COPIES),
}
KEY = ("row", "steps", "seeds", "episodes", "data", "data_mean_return", "settings")


def main(arguments: list[str] | None = None) -> int:
    """Collects, trains the rows that are missing and writes the table."""
    parser = argparse.ArgumentParser(description="Discrete actions end to end on CartPole.")
    parser.add_argument("--runs", type=Path, default=Path("runs/cartpole"), help="data and runs")
    parser.add_argument("--quality", default="medium", choices=("expert", "medium"))
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--steps", type=int, default=20_000, help="updates of each row")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=HERE / "results" / "cartpole.jsonl")
    parser.add_argument("--table", action="store_true", help="only write the table")
    options = parser.parse_args(arguments)
    if not options.table:
        run_all(options)
    return conclude(options.out, table)


def run_all(options: argparse.Namespace) -> None:
    """Makes the data, trains what is missing and appends a line a row."""
    path = options.runs / f"cartpole-{options.quality}-v1.hdf5"
    if not path.exists():
        quality = (options.quality,)
        wanted = CollectOptions("qrdqn", quality, transitions=20_000, epsilon=EPSILON)
        collect(ENV, options.runs, wanted, LEARNER, quiet=False)
    data = leeward.load_dataset(path)
    behavior = float(data.episode_returns().mean())
    print(f"data: {data.transitions} transitions, mean return {behavior:.1f}")
    for name in options.only:
        algorithm, settings = ROWS[name]
        settings = SETTINGS | settings
        values = (name, options.steps, options.seeds, EPISODES, path.name, behavior, settings)
        key = json.loads(json.dumps(dict(zip(KEY, values, strict=True))))
        if any(all(line.get(k) == key[k] for k in KEY) for line in read_lines(options.out)):
            print(f"{name}: there already")
            continue
        begun = time.monotonic()
        run = leeward.train(
            algorithm,
            path,
            seeds=options.seeds,
            steps=options.steps,
            eval_every=options.steps,
            eval_episodes=EPISODES,
            log_every=options.steps,
            logger=(),
            quiet=True,
            run_dir=options.runs / f"{options.quality}-{algorithm}-{time.time_ns()}",
            **settings,
        )
        found = {
            "algorithm": run.algorithm,
            "returns": run.returns().tolist(),
            "behavior": data.metadata["file_metadata"]["behavior"],
            "epsilon": EPSILON,
            "seconds": time.monotonic() - begun,
        }
        append(options.out, key | found | surroundings())
        print(f"{name}: {np.round(found['returns'], 1)}", flush=True)


def table(lines: list[dict[str, Any]]) -> str:
    """A Markdown table of all rows, the data's first."""
    rows = [
        "| method | updates | seeds | return, each seed | mean | above the data's mean |",
        "|---|---|---|---|---|---|",
    ]
    for name, value in dict.fromkeys((line["data"], line["data_mean_return"]) for line in lines):
        rows.append(f"| the data ({name}) | | | | {value:.1f} | |")
    for line in lines:
        returns = np.array(line["returns"])
        above = int((returns > line["data_mean_return"]).sum())
        values = ", ".join(f"{value:.1f}" for value in returns)
        name = line.get("row", line["algorithm"].removeprefix("discrete_"))
        rows.append(
            f"| {name} | {line['steps']:,} | {len(returns)} | {values} | {returns.mean():.1f} | "
            f"{above} of {len(returns)} |"
        )
    return "\n".join(rows) + (
        f"\n\nReturns of {EPISODES} episodes after the last update; 500 is the most. The data are "
        f"those of the policy nearest to a third of QR-DQN's best one, with ε {EPSILON}.\n"
    )


if __name__ == "__main__":
    sys.exit(main())
