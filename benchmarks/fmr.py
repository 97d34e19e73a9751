"""Does FMR help? BC, FMR and TD3+BC with FMR's term on demonstrations and on mixed data.

A row is one data set and one method: all seeds train in one program, and their policies play from
the usual starts, from disturbed ones, and with noise on every action. Rows that
benchmarks/results/fmr.jsonl holds already are skipped, so the command can be repeated until all
are there; a row is made anew after its line is deleted. The data lie in one folder: D4RL files
hopper-expert.hdf5, hopper-mixed.hdf5, and two trajectories each in hopper-cs285-expert.hdf5 and
halfcheetah-cs285-expert.hdf5. The corridor (fmr_corridor.py) needs no file.

    python benchmarks/fmr.py --folder DATA
    python benchmarks/fmr.py --table
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import leeward
from fmr_corridor import Corridor, demonstrations
from fmr_table import make_table
from leeward.data.dataset import Dataset
from leeward.disturbance import Disturbed
from leeward.evaluate import Evaluator
from leeward.policy import load_policies
from records import append, conclude, read_lines, surroundings

HERE = Path(__file__).parent
EPISODES = 10
START_NOISE, ACTION_NOISE = 0.05, 0.2
FMR: dict[str, Any] = {"fmr_weight": 1.0}
SEARCH = [0.01, 0.1, 1.0, 10.0]


class Source(NamedTuple):
    """A data set."""

    file: str
    env: str
    episodes: int | None = None
    """How many are drawn; None: all."""


SOURCES = {
    "corridor": Source("", ""),
    "hopper-2": Source("hopper-cs285-expert.hdf5", "Hopper-v4"),
    "halfcheetah-2": Source("halfcheetah-cs285-expert.hdf5", "HalfCheetah-v4"),
    "hopper-expert-1": Source("hopper-expert.hdf5", "Hopper-v4", 1),
    "hopper-expert-5": Source("hopper-expert.hdf5", "Hopper-v4", 5),
    "hopper-expert-20": Source("hopper-expert.hdf5", "Hopper-v4", 20),
    "hopper-mixed": Source("hopper-mixed.hdf5", "Hopper-v4"),
}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "bc": ("bc", {"density": "gaussian"}),
    "bc-early": ("bc", {"density": "gaussian", "validation_fraction": 0.1}),
    "bc-mixture": ("bc", {"density": "mixture"}),
    "fmr-zero": ("fmr", {"fmr_weight": 0.0}),  # BC on the episodes that FMR trains on
    "fmr": ("fmr", FMR),
    "fmr-centered": ("fmr", FMR | {"weighting": "centered"}),
    "fmr-reversed": ("fmr", FMR | {"weighting": "reversed"}),
    "fmr-q": ("fmr", FMR | {"signal": "q"}),
    "fmr-advantage": ("fmr", FMR | {"signal": "advantage"}),
    "fmr-kernel": ("fmr", FMR | {"behavior": "kernel", "divergence": "js"}),
    "fmr-mixture": ("fmr", FMR | {"behavior": "mixture", "density": "mixture"}),
    "fmr-search": ("fmr", {"fmr_weight": SEARCH}),
    "td3-bc": ("td3_bc", {}),
    "td3-bc-fmr": ("td3_bc", {"fmr": "add"}),
}
KEY = ("data", "method", "algorithm", "settings", "updates", "seeds")


CONDITIONS = {"usual": (0.0, 0.0), "start": (START_NOISE, 0.0), "action": (0.0, ACTION_NOISE)}


def main(arguments: list[str] | None = None) -> int:
    """Runs the rows that are missing, then writes the table; 1 if there is none."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if not options.table:
        run_all(options, parser)
    return conclude(options.out, make_table)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description="FMR beside BC and TD3+BC.")
    parser.add_argument("--folder", type=Path, help="where the data files lie")
    parser.add_argument("--data", nargs="+", default=list(SOURCES), choices=SOURCES)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--updates", type=int, default=5_000, help="of every phase")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--hidden", type=int, nargs="+", default=[256, 256])
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--budget-minutes", type=float, help="start no row after this long")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "fmr.jsonl")
    parser.add_argument("--table", action="store_true", help="only write the table")
    return parser


def run_all(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Runs what is missing and appends a line a row."""
    for name in options.data:
        file = SOURCES[name].file
        if file and (options.folder is None or not (options.folder / file).is_file()):
            parser.error(f"{name} needs {file} in --folder")
    begin = time.monotonic()
    for name in options.data:
        data = load(name, options.folder)
        for method in options.methods:
            key = key_of(name, method, data, options)
            if key is None:
                print(f"{name}, {method}: not possible, one episode cannot be held out")
                continue
            if any(all(line.get(n) == key[n] for n in KEY) for line in read_lines(options.out)):
                print(f"{name}, {method}: there already")
                continue
            minutes = (time.monotonic() - begin) / 60
            if options.budget_minutes is not None and minutes >= options.budget_minutes:
                print(f"{name}, {method}: left for the next time, the budget is used up")
                continue
            print(f"{name}, {method}: running", flush=True)
            line = key | measure(data, SOURCES[name], key, options) | surroundings()
            append(options.out, line)
            jax.clear_caches()


def load(name: str, folder: Path) -> Dataset:
    """The data set, thinned to some episodes where its source says so."""
    source = SOURCES[name]
    if not source.file:
        return demonstrations()
    data = leeward.load_dataset(folder / source.file, env=source.env)
    if source.episodes is None:
        return data
    keep = np.zeros(data.episodes, bool)
    keep[np.random.default_rng(0).permutation(data.episodes)[: source.episodes]] = True
    return data.select_episodes(keep)


def key_of(
    name: str, method: str, data: Dataset, options: argparse.Namespace
) -> dict[str, Any] | None:
    """What tells one row from another; None where the method cannot be had on so few episodes.

    With fewer than five episodes none is held out, and FMR's behavior model gets a fifth of the
    updates in place of early stopping.
    """
    algorithm, chosen = METHODS[method]
    updates = options.updates
    settings = chosen | {"steps": updates, "hidden": list(options.hidden)}
    few = len(np.unique(data.episode_of_row[data.start])) < 5
    every = max(1, updates // 20)
    if algorithm == "fmr":
        settings |= {"value_steps": updates, "validation_every": every, "patience": 3}
        settings |= {"behavior_steps": updates // 5 if few else updates}
        settings |= {"validation_fraction": 0.0 if few else 0.1}
    if algorithm == "bc":
        settings |= {"validation_every": every, "patience": 3}
        if few and settings.get("validation_fraction"):
            return None
    return {
        "data": name,
        "method": method,
        "algorithm": algorithm,
        "settings": settings,
        "updates": updates,
        "seeds": list(options.seeds),
    }


def measure(
    data: Dataset, source: Source, key: dict[str, Any], options: argparse.Namespace
) -> dict[str, Any]:
    """Trains all seeds, then plays under every condition."""
    env: str | Callable[[], Any] = source.env or Corridor
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        run = leeward.train(
            key["algorithm"],
            data,
            seeds=key["seeds"],
            run_dir=Path(folder) / "run",
            eval_every=0,
            log_every=max(1, options.updates // 2),
            quiet=True,
            logger=(),
            **key["settings"],
        )
        seconds = time.monotonic() - begin
        policies = load_policies(run.directory, "last")
        measured = [
            row
            for row in run.metrics()
            if any(name.startswith(("held_out/", "training/")) for name in row)
        ]
        runs = [{n: v for n, v in row.items() if n != "run"} for row in run.table]
    returns, scores = {}, {}
    for condition, (start, action) in CONDITIONS.items():
        with Evaluator(
            env,
            episodes=options.episodes,
            reference=data.metadata,
            wrapper=lambda made, start=start, action=action: Disturbed(made, start, action),
        ) as evaluator:
            result = evaluator.evaluate(policies)
        returns[condition] = result.returns.tolist()
        scores[condition] = None if result.mean_score is None else result.mean_score.tolist()
    return {
        "runs": runs,
        "episodes": len(np.unique(data.episode_of_row[data.start])),
        "transitions": data.transitions,
        "returns": returns,
        "scores": scores,
        "measured": measured,
        "training_seconds": round(seconds, 1),
        "seconds": round(time.monotonic() - begin, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
