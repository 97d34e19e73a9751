"""Leeward beside d3rlpy and CORL-style PyTorch: score, speed, first update and memory.

All train on the same transitions with the same networks, batch size, updates and settings (SETTINGS
below), and play 20 episodes with the same starts. A row is one library, algorithm, number of
updates and list of seeds, in a process of its own. Rows that benchmarks/results/compare.jsonl holds
already are skipped, so the command can be repeated until all are there; a row is made anew after
its line is deleted. Two short processes before each row time the first update: first with an empty
compilation cache, then again. The machine must be idle; cores that other processes took are noted.

The peers need an environment of their own, as d3rlpy wants another Gymnasium:

    python3.11 -m venv .venv-peers
    .venv-peers/bin/pip install torch==2.13.0        # the CPU build is enough
    .venv-peers/bin/pip install d3rlpy==2.8.1 "gymnasium[mujoco]==1.0.0" mujoco==4.0.0 h5py

    python benchmarks/compare.py --data hopper-medium-expert.hdf5 \\
        --peers-python .venv-peers/bin/python --peer-seeds 2
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from compare_table import REFERENCE_RETURNS, make_table
from records import append, conclude, read_lines, surroundings

HERE = Path(__file__).parent
EPISODES = 20
LIBRARIES = ("leeward", "torch", "d3rlpy")
UPDATES = {"td3_bc": 30_000, "iql": 30_000, "cql": 5_000, "bcq": 5_000}
WITHOUT = {("torch", "bcq")}

SHARED = {
    "hidden": [256, 256],
    "batch_size": 256,
    "discount": 0.99,
    "tau": 0.005,
    "normalize_observations": False,
}
# The names are those of Leeward's settings.
SETTINGS: dict[str, dict[str, Any]] = {
    "td3_bc": SHARED  # the paper
    | {
        "actor_lr": 3e-4,
        "critic_lr": 3e-4,
        "alpha": 2.5,
        "policy_delay": 2,
        "noise_std": 0.2,
        "noise_clip": 0.5,
        "normalize_observations": True,
    },
    "iql": SHARED  # the paper; the actor's rate decays to 0 by a cosine
    | {
        "actor_lr": 3e-4,
        "critic_lr": 3e-4,
        "value_lr": 3e-4,
        "expectile": 0.7,
        "beta": 3.0,
        "weight_clip": 100.0,
        "reward_transform": "return-range",
    },
    "cql": SHARED  # d3rlpy's reproduction: fixed weight, 5 for all but medium
    | {
        "actor_lr": 1e-4,
        "critic_lr": 3e-4,
        "alpha": 1.0,
        "alpha_lr": 1e-4,
        "cql_weight": 5.0,
        "sampled_actions": 10,
    },
    "bcq": SHARED  # Tianshou's sizes with the paper's weights and rates
    | {
        "actor_lr": 1e-3,
        "critic_lr": 1e-3,
        "vae_lr": 1e-3,
        "vae_hidden": [512, 512],
        "sampled_actions": 10,
        "acting_samples": 100,
        "phi": 0.05,
        "minimum_weight": 0.75,
    },
}
KEY = ("library", "algorithm", "updates", "seeds", "data", "env", "settings")


class Row(NamedTuple):
    """One training process to measure."""

    library: str
    algorithm: str
    updates: int
    seeds: tuple[int, ...]

    def __str__(self) -> str:
        seeds = " ".join(map(str, self.seeds))
        return f"{self.library}/{self.algorithm}, {self.updates:,} updates, seeds {seeds}"


def main(arguments: list[str] | None = None) -> int:
    """Runs the rows that are missing, then writes the table; 1 if a row failed."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    failed = 0
    if not options.table:
        for path in (options.data, options.peers_python):
            if path is not None and not path.is_file():
                parser.error(f"no such file: {path}")
        if options.data is None:
            parser.error("--data is needed: a D4RL file, such as hopper-medium-expert.hdf5")
        rows = choose(planned(options), options.only)
        if not rows:
            parser.error("no row fits --only; peers need --peers-python")
        failed = run_all(rows, options)
    return conclude(options.out, make_table) or int(failed > 0)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description="Leeward beside d3rlpy and CORL-style PyTorch.")
    parser.add_argument("--data", type=Path, help="a D4RL file with next_observations")
    parser.add_argument("--env", default="Hopper-v4", choices=REFERENCE_RETURNS)
    parser.add_argument("--peers-python", type=Path, help="without it only Leeward's rows are run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of Leeward")
    parser.add_argument(
        "--peer-seeds", type=int, default=1, help="rows of each peer, seeds 0, 1, …"
    )
    parser.add_argument("--updates", type=int, help="of every row, in place of the defaults")
    parser.add_argument(
        "--only", nargs="+", default=[], help="libraries, algorithms or library/algorithm"
    )
    parser.add_argument("--budget-minutes", type=float, help="start no row after this long")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "compare.jsonl")
    parser.add_argument("--table", action="store_true", help="only write the table")
    return parser


def planned(options: argparse.Namespace) -> list[Row]:
    """All rows: first one of each library and algorithm, then the peers' further seeds."""
    rows = []
    for seed in range(max(1, options.peer_seeds)):
        for algorithm, updates in UPDATES.items():
            for library in LIBRARIES:
                if (library, algorithm) in WITHOUT or (library == "leeward" and seed > 0):
                    continue
                if library != "leeward" and (
                    options.peers_python is None or seed >= options.peer_seeds
                ):
                    continue
                seeds = tuple(options.seeds) if library == "leeward" else (seed,)
                rows.append(Row(library, algorithm, options.updates or updates, seeds))
    return rows


def choose(rows: list[Row], only: list[str]) -> list[Row]:
    """The rows that a word of `only` names; all where it is empty."""
    if not only:
        return rows
    return [
        row
        for row in rows
        if {row.library, row.algorithm, f"{row.library}/{row.algorithm}"} & set(only)
    ]


def run_all(rows: list[Row], options: argparse.Namespace) -> int:
    """Runs what is missing and appends a line a row; how many failed."""
    begin, failed = time.monotonic(), 0
    for row in rows:
        key = key_of(row, options)
        if any(same_row(line, key) for line in read_lines(options.out)):
            print(f"{row}: there already")
            continue
        minutes = (time.monotonic() - begin) / 60
        if options.budget_minutes is not None and minutes >= options.budget_minutes:
            print(f"{row}: left for the next time, the budget is used up")
            continue
        print(f"{row}: running", flush=True)
        try:
            line = key | measure(row, options) | surroundings()
        except subprocess.CalledProcessError as error:
            last = "\n".join(error.output.splitlines()[-15:])
            print(f"{row}: failed\n{last}", flush=True)
            failed += 1
            continue
        append(options.out, line)
        print(f"  {line['updates_per_second']:.1f} updates/s", flush=True)
    return failed


def key_of(row: Row, options: argparse.Namespace) -> dict[str, Any]:
    """What tells one row from another."""
    values = (*row, options.data.stem, options.env, SETTINGS[row.algorithm])
    return json.loads(json.dumps(dict(zip(KEY, values, strict=True))))


def same_row(line: dict[str, Any], key: dict[str, Any]) -> bool:
    """Whether a line of the results is that row, with today's settings."""
    return all(line.get(name) == key[name] for name in KEY)


def measure(row: Row, options: argparse.Namespace) -> dict[str, Any]:
    """Times the first update twice, then trains in a third process, caches empty as at first."""
    with tempfile.TemporaryDirectory() as folder:
        first = [
            run_process(row, options, Path(folder), cache="probes", probe=True)[
                "first_update_seconds"
            ]
            for _ in range(2)
        ]
        result = run_process(row, options, Path(folder), cache="training", probe=False)
    return {"first_update_seconds": first, **result}


def run_process(
    row: Row, options: argparse.Namespace, folder: Path, *, cache: str, probe: bool
) -> dict[str, Any]:
    """The result of one runner; raises CalledProcessError with its output if it fails."""
    python = sys.executable if row.library == "leeward" else str(options.peers_python.absolute())
    updates = 1 if probe else row.updates
    job = {
        "algorithm": row.algorithm,
        "updates": updates,
        "seeds": row.seeds,
        "data": str(options.data.absolute()),
        "env": options.env,
        "episodes": EPISODES,
        "settings": SETTINGS[row.algorithm],
        "warm_up": warm_up(updates),
        "probe": probe,
        "started": time.time(),
        "result": str(folder / "result.json"),
    }
    (folder / "job.json").write_text(json.dumps(job))
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(folder / cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",  # as Leeward sets it
    }
    runner = HERE / "peers" / f"{row.library}_run.py"
    subprocess.run(
        [python, str(runner), str(folder / "job.json")],
        check=True,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
    )
    return json.loads((folder / "result.json").read_text())


def warm_up(updates: int) -> int:
    """The updates that are not timed: the largest divisor up to a tenth, at most 1000."""
    most = max(1, min(1_000, updates // 10))
    return max(count for count in range(1, most + 1) if updates % count == 0)


if __name__ == "__main__":
    sys.exit(main())
