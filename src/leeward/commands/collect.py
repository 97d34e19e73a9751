"""`leeward collect ENV`: data in D4RL layout, from an online learner, a trained run or random."""

from __future__ import annotations

import argparse
import dataclasses

from rich.console import Console
from rich.table import Table

from leeward.collect import Collected, CollectOptions, OnlineOptions, collect
from leeward.commands.parsing import flags_of, parse, pick, positional
from leeward.online_qrdqn import QRDQNOptions


@dataclasses.dataclass(frozen=True)
class OutputOptions:
    """Flags of `collect` that are about the command."""

    out: str = "data"
    """A folder for TASK-QUALITY-vN.hdf5, or a file (.hdf5) for one data set."""
    quiet: bool = False
    """No progress view."""


def main(arguments: list[str]) -> int:
    """Collects, and prints what was written."""
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    early.add_argument("--policy")
    learner = early.parse_known_args(arguments)[0].policy
    training = QRDQNOptions if learner == "qrdqn" else OnlineOptions
    parsed = parse(
        [
            positional("env", "a Gymnasium environment (leeward list environments)"),
            *flags_of(CollectOptions),
            *flags_of(training),
            *flags_of(OutputOptions),
        ],
        arguments,
        prog="leeward collect",
        description="Makes data sets in D4RL layout, with the policy that --policy names.",
    )
    written = collect(
        parsed.env,
        parsed.out,
        pick(CollectOptions, parsed),
        pick(training, parsed),
        quiet=parsed.quiet,
    )
    Console().print(collected_table(written))
    return 0


def collected_table(written: list[Collected]) -> Table:
    """One row a data set."""
    table = Table(title="collected")
    for name in ("file", "transitions", "episodes", "mean return", "least", "most"):
        table.add_column(name, justify="left" if name == "file" else "right", overflow="fold")
    for one in written:
        table.add_row(
            str(one.path),
            f"{one.transitions:,}",
            f"{len(one.returns):,}",
            f"{one.returns.mean():.1f}",
            f"{one.returns.min():.1f}",
            f"{one.returns.max():.1f}",
        )
    return table
