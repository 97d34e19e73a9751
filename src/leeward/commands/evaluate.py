"""`leeward evaluate RUN`: a trained policy in its environment, every episode counted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from leeward.commands.parsing import flags_of, parse, positional
from leeward.commands.show import returns_row
from leeward.errors import ConfigError

COLUMNS = ("run", "seed", "returns", "lengths", "score_mean")
"""What a row holds besides its run's settings."""


@dataclass(frozen=True)
class EvaluateOptions:
    """Flags of `evaluate`."""

    episodes: int = 100
    """Episodes of every seed."""
    checkpoint: str = "last"
    """Which policy: last, best (by the evaluations of training), or a checkpoint's STEP; an
    exported file holds only one."""
    env: str | None = None
    """Another environment than the run's."""
    sticky_actions: bool = False
    """Atari games: repeat the action before with probability 0.25, as RL Unplugged's policies are
    evaluated."""
    evaluation_seed: int = 1
    """Other numbers give other starts; training itself evaluates with 0."""
    start_noise: float = 0.0
    """Std of noise on the first state's positions and velocities (MuJoCo tasks)."""
    action_noise: float = 0.0
    """Std of noise on every action, in units of half its range; of discrete actions the
    probability of a random one."""
    keep: bool = False
    """Keep the result in the run directory, for leeward report."""
    json: bool = False
    """Print every episode's return and length as JSON."""


def main(arguments: list[str]) -> int:
    """Evaluates all runs of a run directory, a policy folder or an exported file."""
    parsed = parse(
        [
            positional("run", "a run directory, a saved policy or an exported one"),
            *flags_of(EvaluateOptions),
        ],
        arguments,
        prog="leeward evaluate",
        description="Runs trained policies in their environment.",
    )
    if parsed.episodes < 1:
        raise ConfigError(f"--episodes must be at least 1, got {parsed.episodes}")
    from leeward import played
    from leeward.environments import with_sticky_actions
    from leeward.evaluate import evaluate
    from leeward.export import is_exported, load_exported
    from leeward.policy import load_policies

    if parsed.keep:
        played.check_keepable(Path(parsed.run))
    if is_exported(parsed.run):
        stack = load_exported(parsed.run)
    else:
        stack = load_policies(parsed.run, checkpoint=parsed.checkpoint)
    environment = parsed.env or stack.env
    if environment is None:
        raise ConfigError(f"{parsed.run} names no environment: give one with --env")
    if parsed.sticky_actions:
        environment = with_sticky_actions(environment)
    result = evaluate(
        stack,
        environment,
        episodes=parsed.episodes,
        evaluation_seed=parsed.evaluation_seed,
        reference=None if parsed.env else {**stack.data, "env": environment},
        start_noise=parsed.start_noise,
        action_noise=parsed.action_noise,
    )
    rows = played.rows_of(stack.runs, result)
    if parsed.keep:
        names = ("checkpoint", "start_noise", "action_noise", "evaluation_seed", "episodes")
        how = {name: getattr(parsed, name) for name in names}
        played.keep(Path(parsed.run), {"environment": environment, **how, "runs": rows})
    if parsed.json:
        print(json.dumps({"environment": environment, "runs": rows}))  # noqa: T201
        return 0
    _print_table(parsed, environment, rows)
    return 0


def _print_table(parsed: Any, environment: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """One line a run."""
    disturbed = ""
    if parsed.start_noise or parsed.action_noise:
        disturbed = f", start noise {parsed.start_noise:g}, action noise {parsed.action_noise:g}"
    table = Table(title=f"{parsed.run}: {parsed.episodes} episodes of {environment}{disturbed}")
    for name in ("seed", "settings", "return", "length", "score"):
        table.add_column(name, justify="right")
    for row in rows:
        settings = {n: v for n, v in row.items() if n not in COLUMNS}
        score = row["score_mean"]
        table.add_row(
            str(row["seed"]),
            " ".join(f"{n}={v:g}" for n, v in settings.items()),
            returns_row(np.asarray(row["returns"])),
            f"{np.mean(row['lengths']):.0f}",
            "" if score is None else f"{score:.1f}",
        )
    Console().print(table)
