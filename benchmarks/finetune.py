"""Does it get better online? Runs trained offline, then fine-tuned, evaluated all the way.

The shipped replay of the inverted double pendulum is poor (a score near 2), so that there is
something to learn. Every method trains offline for `--offline-steps` updates and is fine-tuned for
`--steps` steps; a line a method, with the return of every evaluation, is appended to
benchmarks/results/finetune.jsonl. `--only` chooses methods; `--out` must not hold runs yet.

    python benchmarks/finetune.py --out runs/finetune
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import leeward
from records import append, surroundings

HERE = Path(__file__).parent
DATA = "inverteddoublependulum-replay-v5"
SMALL: dict[str, Any] = {"hidden": (64, 64)}  # the quick start's, enough for 9 numbers in and 1 out
METHODS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "iql": ("iql", {}, {}),
    "iql-appended": ("iql", {}, {"replay": "appended"}),
    "cal-ql": ("cal_ql", {}, {}),
    "td3-bc": ("td3_bc", {}, {}),
    "td3-bc-alpha-5": ("td3_bc", {}, {"alpha_end": 5.0}),
}
"""name → algorithm, settings of offline training, options of fine-tuning."""


def main() -> None:
    """Trains, fine-tunes and writes one line a method."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--only", nargs="*", choices=METHODS, help="some of the methods")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--offline-steps", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--eval-every", type=int, default=2_000)
    parser.add_argument("--shared", action="store_true", help="other processes run: say so")
    parser.add_argument("--results", type=Path, default=HERE / "results" / "finetune.jsonl")
    arguments = parser.parse_args()
    data = leeward.load_dataset(DATA)
    offline: dict[str, Path] = {}
    for name in arguments.only or METHODS:
        algorithm, settings, options = METHODS[name]
        key = f"{algorithm}{sorted(settings)}"
        if key not in offline:
            offline[key] = arguments.out / f"{name}-offline"
            leeward.train(
                algorithm,
                DATA,
                run_dir=offline[key],
                seeds=arguments.seeds,
                steps=arguments.offline_steps,
                eval_every=0,
                logger=(),
                quiet=True,
                **SMALL | settings,
            )
        begun = time.monotonic()
        run = leeward.finetune(
            offline[key],
            run_dir=arguments.out / name,
            steps=arguments.steps,
            eval_every=arguments.eval_every,
            logger=(),
            quiet=True,
            **options,
        )
        returns: dict[int, list[float]] = {seed: [] for seed in arguments.seeds}
        for line in run.evaluations():
            returns[line["seed"]].append(round(line["return_mean"], 1))
        row = {
            "method": name,
            "data": DATA,
            "data_return": round(float(data.episode_returns().mean()), 1),
            "offline_updates": arguments.offline_steps,
            "steps": arguments.steps,
            "eval_every": arguments.eval_every,
            "episodes": 10,
            "options": run.config["finetune"],
            "settings": SMALL | settings,
            "returns": {str(seed): values for seed, values in returns.items()},
            "scores": [round(float(score), 1) for score in run.scores()],
            "seconds": round(time.monotonic() - begun, 1),
            "shared": arguments.shared,
            **surroundings(),
        }
        append(arguments.results, row)
        print(name, row["returns"], f"{row['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
