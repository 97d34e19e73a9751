"""`leeward quickstart`: BC and Fisher-BRC on the shipped data, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from leeward.commands.parsing import flags_of, parse
from leeward.data.load import load_dataset
from leeward.data.registry import normalized_score
from leeward.errors import ConfigError
from leeward.run import Run
from leeward.train import train

DATA = "inverteddoublependulum-replay-v5"
# Ours, by measurement on this data (docs/index.md): small networks are enough for 9 numbers
# in and 1 out; the task's rewards are positive, so no bonus is needed; two minutes on two cores.
METHODS: dict[str, dict[str, Any]] = {
    "bc": {"steps": 10_000, "hidden": (64, 64)},
    "fisher-brc": {
        "steps": 25_000,
        "bc_pretraining_steps": 3_000,
        "hidden": (64, 64),
        "behavior_hidden": (64, 64),
        "f_reg": 0.01,
        "reward_bonus": 0.0,
    },
}


@dataclass(frozen=True)
class QuickstartOptions:
    """Flags of `quickstart`."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """One run a seed."""
    run_dir: str = "runs/quickstart"
    """Folder of both runs."""
    fraction: float = 1.0
    """Train this share of the usual updates only, for a first look."""


def main(arguments: list[str]) -> int:
    """Trains both and prints the comparison."""
    parsed = parse(
        flags_of(QuickstartOptions),
        arguments,
        prog="leeward quickstart",
        description="Trains behavior cloning and Fisher-BRC on the shipped data and compares them.",
    )
    if not 0.0 < parsed.fraction <= 1.0:
        raise ConfigError(f"--fraction must be in (0, 1], got {parsed.fraction}")
    console = Console()
    data = load_dataset(DATA)
    returns = data.episode_returns()
    console.print(
        f"{DATA}: {data.transitions:,} transitions, {data.episodes:,} episodes, mean return "
        f"{returns.mean():.1f}",
        highlight=False,
    )
    runs = {}
    for method, settings in METHODS.items():
        console.print(f"training {method}, seeds {' '.join(map(str, parsed.seeds))}")
        directory = free_directory(Path(parsed.run_dir) / method)
        shortened: dict[str, Any] = {
            name: max(1, round(value * parsed.fraction)) if name.endswith("steps") else value
            for name, value in settings.items()
        }
        runs[method] = train(
            method,
            DATA,
            seeds=parsed.seeds,
            run_dir=directory,
            eval_every=5_000,
            **shortened,
        )
    console.print(comparison(data.metadata, float(returns.mean()), runs))
    for method, run in runs.items():
        console.print(f"{method} run: {run.directory}", soft_wrap=True, highlight=False)
    last = runs["fisher-brc"].directory
    console.print(
        f"next: leeward watch {last} --video pendulum.mp4\n"
        f"      leeward evaluate {last} --episodes 100\n"
        f"      leeward inspect {DATA}\n"
        "      leeward train td3-bc YOUR-DATA.csv",
        soft_wrap=True,
        highlight=False,
    )
    return 0


def comparison(metadata: Any, data_return: float, runs: dict[str, Run]) -> Table:
    """Mean returns of the last evaluation, a row for the data and one for each method and seed."""
    table = Table(title="mean return of 10 episodes after training (score: 0 random, 100 expert)")
    for name in ("", "seed", "return", "score"):
        table.add_column(name, justify="left" if not name else "right")
    score = normalized_score(metadata, data_return)
    table.add_row("the data", "", f"{data_return:.1f}", "" if score is None else f"{score:.1f}")
    for method, run in runs.items():
        table.add_section()
        for row, value, score in zip(run.table, run.returns(), run.scores(), strict=True):
            table.add_row(method, str(row["seed"]), f"{value:.1f}", f"{score:.1f}")
    return table


def free_directory(wanted: Path) -> Path:
    """`wanted`, or with a number behind it where a run is there already."""
    directory, number = wanted, 2
    while directory.exists():
        directory, number = wanted.with_name(f"{wanted.name}-{number}"), number + 1
    return directory
