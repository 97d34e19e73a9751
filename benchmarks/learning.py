"""Does it learn? Whole runs through the command, beside random, the data and published scores.

A row is one `leeward train` and the evaluations that it made; rows whose folder is in
benchmarks/results/learning already are skipped, a row that was stopped goes on where it was, so
the command can be repeated until all are there. The Hopper rows need D4RL's files; the Pendulum
rows make their data first (`leeward collect`); those of the double pendulum are the quick start's.
The random policy's returns lie in benchmarks/results/learning/random.json. Run it when nothing else
runs: the wall times are kept.

    python benchmarks/learning.py --hopper hopper-medium-expert.hdf5 \
        --hopper-medium hopper-medium.hdf5
    python benchmarks/learning.py --table
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from leeward.data.load import load_dataset
from leeward.data.registry import normalized_score
from speed import processor

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "learning"
SEEDS = ("0", "1", "2")
COLLECT = ("Pendulum-v1", "--dataset", "full-replay", "--steps", "12000", "--random-steps", "2000")
EPISODES = ("--eval-every", "5000", "--eval-episodes", "20")
SHIPPED = "inverteddoublependulum-replay-v5"
SMALL = ("--hidden", "64", "64")
BEST = ("--best-fraction", "0.1")
RANDOM_EPISODES = 100
ENVIRONMENTS = {
    "hopper": "Hopper-v4",
    "hopper-medium": "Hopper-v4",
    "double pendulum": "InvertedDoublePendulum-v5",
    "pendulum": "Pendulum-v1",
}
"""Where the data of every row were made."""


class Row(NamedTuple):
    """One training command."""

    name: str
    data: str
    command: tuple[str, ...]
    published: str = ""
    """Scores of the same method on D4RL's v0 and v2 files, whose protocol is another."""

    @property
    def algorithm(self) -> str:
        """The name the command knows."""
        return self.command[0]


ROWS = (
    Row(
        "hopper-td3-bc",
        "hopper",
        ("td3-bc", "--steps", "50000", "--seeds", *SEEDS),
        "112.2 (v0), 98.0 (v2): arXiv 2106.06860, tables 2 and 9",
    ),
    Row(
        "hopper-bc",
        "hopper",
        ("bc", "--steps", "50000", "--seeds", *SEEDS),
        "89.6 (v0): arXiv 2106.06860, table 2; 52.5 (v2): arXiv 2110.06169, table 1",
    ),
    Row(
        "hopper-bc-10",
        "hopper",
        ("bc", *BEST, "--steps", "50000", "--seeds", *SEEDS),
        "110.9 (v2): arXiv 2110.06169, table 1",
    ),
    Row(
        "hopper-fisher-brc",
        "hopper",
        ("fisher-brc", "--bc-pretraining-steps", "50000", "--steps", "100000"),
        "112.4 (v0): arXiv 2103.08050, table 1; 90.6 (v0): arXiv 2106.06860, table 2",
    ),
    # One behavior, on which Fisher-BRC is steady early; settings of the reference code.
    Row(
        "hopper-medium-bc",
        "hopper-medium",
        ("bc", "--preset", "reference", "--steps", "40000", "--seeds", *SEEDS),
        "29.0 (v0): arXiv 2103.08050, table 1; 52.9 (v2): arXiv 2110.06169, table 1",
    ),
    Row(
        "hopper-medium-bc-10",
        "hopper-medium",
        ("bc", "--preset", "reference", *BEST, "--steps", "40000", "--seeds", *SEEDS),
        "56.9 (v2): arXiv 2110.06169, table 1",
    ),
    Row(
        "hopper-medium-fisher-brc",
        "hopper-medium",
        (
            *("fisher-brc", "--preset", "reference", "--bc-pretraining-steps", "30000"),
            *("--steps", "40000", "--seeds", *SEEDS),
        ),
        "99.4 (v0): arXiv 2103.08050, table 1; 99.4 (v0): arXiv 2106.06860, table 2",
    ),
    Row(
        "double-pendulum-bc",
        "double pendulum",
        ("bc", "--steps", "10000", *SMALL, "--seeds", *SEEDS),
    ),
    Row(
        "double-pendulum-bc-10",
        "double pendulum",
        ("bc", *BEST, "--steps", "10000", *SMALL, "--seeds", *SEEDS),
    ),
    Row(
        "double-pendulum-fisher-brc",
        "double pendulum",
        (
            *("fisher-brc", "--bc-pretraining-steps", "3000", "--steps", "25000", *SMALL),
            *("--behavior-hidden", "64", "64", "--f-reg", "0.01", "--reward-bonus", "0"),
            *("--seeds", *SEEDS),
        ),
    ),
    Row("pendulum-bc", "pendulum", ("bc", "--steps", "10000", "--seeds", *SEEDS)),
    Row("pendulum-bc-10", "pendulum", ("bc", *BEST, "--steps", "10000", "--seeds", *SEEDS)),
    Row(
        "pendulum-fisher-brc",
        "pendulum",
        (
            *("fisher-brc", "--bc-pretraining-steps", "5000", "--steps", "30000"),
            *("--hidden", "64", "64", "--behavior-hidden", "64", "64", "--seeds", *SEEDS),
        ),
    ),
    Row(  # values near those of a unit of reward a step, so that the density counts beside them
        "pendulum-fisher-brc-scaled",
        "pendulum",
        (
            *("fisher-brc", "--reward-scale", "0.1", "--reward-bonus", "0"),
            *("--bc-pretraining-steps", "3000", "--steps", "20000"),
            *("--hidden", "64", "64", "--behavior-hidden", "64", "64", "--seeds", *SEEDS),
        ),
    ),
)


def main() -> None:
    """Runs the rows that are missing and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hopper", type=Path, help="hopper-medium-expert in D4RL's layout")
    parser.add_argument("--hopper-medium", type=Path, help="hopper-medium in D4RL's layout")
    parser.add_argument("--runs", type=Path, default=Path("runs/learning"))
    parser.add_argument("--only", nargs="+", default=[], help="names of rows")
    parser.add_argument("--shared", action="store_true", help="other processes run: say so")
    parser.add_argument("--table", action="store_true", help="only write the table")
    options = parser.parse_args()
    for row in ROWS:
        if options.table or (options.only and row.name not in options.only):
            continue
        if not (RESULTS / row.name).exists():
            run(row, options)
    text = table(random_returns())
    (HERE / "results" / "learning.md").write_text(text)
    print(text)


def run(row: Row, options: argparse.Namespace) -> None:
    """Trains a row, or goes on with it, and keeps its evaluations."""
    given = {"hopper": options.hopper, "hopper-medium": options.hopper_medium}
    data = given.get(row.data, SHIPPED)
    if data is None:
        print(f"{row.name} needs --{row.data}")
        return
    if row.data == "pendulum":
        data = pendulum(options.runs)
    directory = options.runs / row.name
    command = ("train", row.algorithm, str(data), *row.command[1:], *EPISODES)
    begun = time.monotonic()
    if directory.exists():
        leeward("train", "--resume", str(directory))
        seconds = None  # the time of a run in two parts says nothing
    else:
        leeward(*command, "--run-dir", str(directory))
        seconds = time.monotonic() - begun
    loaded = load_dataset(data)
    returns = loaded.episode_returns()[loaded.complete_episodes()]
    scores = {
        name: float(normalized_score(loaded.metadata, value))
        for name, value in (("mean", returns.mean()), ("best", returns.max()))
    }
    facts = {
        "command": " ".join(("leeward", *command)).replace(str(data), Path(data).name),
        "data": row.data,
        "data_return": float(returns.mean()),
        "data_score": scores["mean"],
        "data_best_score": scores["best"],
        "seconds": seconds,
        "shared": options.shared,
        "processor": processor(),
        "date": time.strftime("%Y-%m-%d"),
    }
    kept = RESULTS / f".{row.name}"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    shutil.copy(directory / "evaluations.jsonl", kept)
    (kept / "facts.json").write_text(json.dumps(facts, indent=2) + "\n")
    kept.rename(RESULTS / row.name)


def leeward(*arguments: str) -> None:
    """The command, in a process of its own."""
    subprocess.run([sys.executable, "-m", "leeward.cli", *arguments], check=True)


def pendulum(runs: Path) -> Path:
    """All that SAC saw while it learned to swing a pendulum up."""
    path = runs / "pendulum-full-replay.hdf5"
    if not path.exists():
        leeward("collect", *COLLECT, "--out", str(path))
    return path


def random_returns() -> dict[str, float]:
    """Mean returns of the random policy in every environment; measured where no file has them."""
    file = RESULTS / "random.json"
    known = json.loads(file.read_text()) if file.is_file() else {}
    missing = [env for env in dict.fromkeys(ENVIRONMENTS.values()) if env not in known]
    for env in missing:
        known[env] = {
            "return_mean": random_return(env, RANDOM_EPISODES),
            "episodes": RANDOM_EPISODES,
        }
    if missing:
        file.write_text(json.dumps(known, indent=2) + "\n")
    return {env: one["return_mean"] for env, one in known.items()}


def random_return(env: str, episodes: int) -> float:
    """Mean return of actions drawn uniformly from the box, episodes seeded by their number."""
    environment = gymnasium.make(env)
    environment.action_space.seed(0)
    total = 0.0
    for episode in range(episodes):
        environment.reset(seed=episode)
        over = False
        while not over:
            _, reward, ended, cut, _ = environment.step(environment.action_space.sample())
            total += float(reward)
            over = ended or cut
    environment.close()
    return total / episodes


def table(random: Mapping[str, float]) -> str:
    """A Markdown table of all rows that are there.

    Args:
        random: mean return of the random policy by environment.
    """
    lines = [
        "| data | method | seeds | updates | score, each seed | mean of the last five "
        "| a random policy | the data's mean (best episode) | published | minutes |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        folder = RESULTS / row.name
        if not folder.exists():
            continue
        facts = json.loads((folder / "facts.json").read_text())
        kept = (folder / "evaluations.jsonl").read_text().splitlines()
        evaluations = [json.loads(text) for text in kept]
        last = [one for one in evaluations if one["phase"] == evaluations[-1]["phase"]]
        lines.append(line(row, facts, last, random[ENVIRONMENTS[row.data]]))
    return "\n".join(lines) + "\n"


def line(row: Row, facts: dict[str, Any], evaluations: list[dict[str, Any]], random: float) -> str:
    """One row: the last evaluation, how steady those before it were, and what stands beside.

    Args:
        row: what was trained.
        facts: its facts.json.
        evaluations: of the last phase.
        random: mean return of the random policy.
    """
    seeds = sorted({one["seed"] for one in evaluations})
    curves = {seed: [one for one in evaluations if one["seed"] == seed] for seed in seeds}
    last = [curve[-1]["score_mean"] for curve in curves.values()]
    steady = [
        float(np.mean([one["score_mean"] for one in curve[-5:]])) for curve in curves.values()
    ]
    minutes = "in parts" if facts["seconds"] is None else f"{facts['seconds'] / 60:.1f}"
    minutes += " (machine shared)" * facts["shared"]
    cells = (
        facts["data"],
        " ".join((row.algorithm, *telling(row.command))),
        str(len(seeds)),
        f"{evaluations[-1]['step']:,}",
        ", ".join(f"{score:.1f}" for score in last),
        ", ".join(f"{score:.1f}" for score in steady),
        f"{round(score_of(random, evaluations), 1) + 0.0:.1f}",  # no minus before a zero
        f"{facts['data_score']:.1f} ({facts['data_best_score']:.1f})",
        row.published,
        minutes,
    )
    return "| " + " | ".join(cells) + " |"


def score_of(value: float, evaluations: list[dict[str, Any]]) -> float:
    """A return as a score, on the line through the evaluations' returns and scores."""
    low, high = (choose(evaluations, key=lambda one: one["return_mean"]) for choose in (min, max))
    rise = (high["score_mean"] - low["score_mean"]) / (high["return_mean"] - low["return_mean"])
    return low["score_mean"] + rise * (value - low["return_mean"])


def telling(command: tuple[str, ...]) -> tuple[str, ...]:
    """The flags of a row that tell it from others: on rewards, episodes and presets."""
    return tuple(
        part
        for flag, value in itertools.pairwise(command)
        if flag.startswith(("--reward", "--best-fraction", "--preset"))
        for part in (flag, value)
    )


if __name__ == "__main__":
    main()
