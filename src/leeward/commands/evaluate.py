"""`leeward evaluate RUN`: a trained policy in its environment, every episode counted."""

from __future__ import annotations

import json
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from leeward.commands.parsing import flags_of, parse, positional
from leeward.commands.show import returns_row
from leeward.errors import ConfigError


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
    evaluation_seed: int = 1
    """Other numbers give other starts; training itself evaluates with 0."""
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
    from leeward.evaluate import evaluate
    from leeward.export import is_exported, load_exported
    from leeward.policy import load_policies

    if is_exported(parsed.run):
        stack = load_exported(parsed.run)
    else:
        stack = load_policies(parsed.run, checkpoint=parsed.checkpoint)
    environment = parsed.env or stack.env
    if environment is None:
        raise ConfigError(f"{parsed.run} names no environment: give one with --env")
    result = evaluate(
        stack,
        environment,
        episodes=parsed.episodes,
        evaluation_seed=parsed.evaluation_seed,
        reference=None if parsed.env else {**stack.data, "env": environment},
    )
    scores = result.mean_score
    if parsed.json:
        rows = [
            {
                "seed": trained.seed,
                **trained.settings,
                "returns": result.returns[i].tolist(),
                "lengths": result.lengths[i].tolist(),
                "score_mean": None if scores is None else float(scores[i]),
            }
            for i, trained in enumerate(stack.runs)
        ]
        print(json.dumps({"environment": environment, "runs": rows}))  # noqa: T201
        return 0
    table = Table(title=f"{parsed.run}: {parsed.episodes} episodes of {environment}")
    for name in ("seed", "settings", "return", "length", "score"):
        table.add_column(name, justify="right")
    for i, trained in enumerate(stack.runs):
        table.add_row(
            str(trained.seed),
            " ".join(f"{n}={v:g}" for n, v in trained.settings.items()),
            returns_row(result.returns[i]),
            f"{result.lengths[i].mean():.0f}",
            "" if scores is None else f"{scores[i]:.1f}",
        )
    Console().print(table)
    return 0
