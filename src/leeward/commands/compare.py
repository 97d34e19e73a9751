"""`leeward compare A B`: is the one better than the other, and how sure is that?"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from leeward.commands.parsing import flags_of, parse, positional
from leeward.compare import Comparison, compare, report, sentence
from leeward.online_selection import TRIES
from leeward.statistics import Estimate


@dataclass(frozen=True)
class CompareOptions:
    """Flags of `compare`."""

    protocol: Literal["last", "last-10", "best"] = "last"
    """Which evaluations give a run's number: the last, the mean of the last ten, or the best."""
    json: bool = False
    """Print the comparison as one line of JSON."""


def main(arguments: list[str]) -> int:
    """Compares two methods and prints the verdict."""
    help_text = "a run directory, or a folder that holds the runs of one method on several tasks"
    parsed = parse(
        [
            positional("first", help_text),
            positional("second", "what to compare it with"),
            *flags_of(CompareOptions),
        ],
        arguments,
        prog="leeward compare",
        description="Says whether one method is better than another, and how sure that is.",
    )
    found = compare(parsed.first, parsed.second, protocol=parsed.protocol)
    if parsed.json:
        print(json.dumps(report(found)))  # noqa: T201
        return 0
    console = Console(width=None if Console().is_terminal else 160)
    console.print(_table(found))
    if any(one.selection is not None for one in found.tasks):
        console.print(_selection_table(found))
    for note in found.notes:
        console.print(f"note: {note}", soft_wrap=True, highlight=False, markup=False)
    console.print(sentence(found), soft_wrap=True, highlight=False, markup=False)
    return 0


def _table(found: Comparison) -> Table:
    """One row a task: both means, their difference and the probability of improvement."""
    table = Table()
    table.add_column("task")
    for name in (found.first, found.second, "difference", "P(first beats second)"):
        table.add_column(escape(name), justify="right")
    for one in found.tasks:
        table.add_row(
            f"{escape(one.task.name)} ({one.task.quantity})",
            f"{one.first.mean():.1f} ({len(one.first)} seeds)",
            f"{one.second.mean():.1f} ({len(one.second)} seeds)",
            _shown(one.difference, 1),
            _shown(one.probability, 2),
        )
    if len(found.tasks) > 1:
        table.add_section()
        table.add_row("all tasks", "", "", "", _shown(found.probability, 2))
    return table


def _selection_table(found: Comparison) -> Table:
    """What the chosen policy is worth after so many episodes spent on choosing it."""
    table = Table(
        title="worth of the policy that is chosen by trying (UCB bandit, arXiv 2504.11453)"
    )
    table.add_column("task")
    for tries in TRIES:
        table.add_column(f"{tries} episode{'' if tries == 1 else 's'}", justify="right")
    for one in found.tasks:
        if one.selection is not None:
            table.add_row(escape(one.task.name), *_worth(*(side.mean for side in one.selection)))
    if found.selection is not None:
        table.add_section()
        table.add_row("mean of all tasks", *_worth(*found.selection))
    return table


def _worth(first: np.ndarray, second: np.ndarray) -> list[str]:
    return [f"{first[tries - 1]:.1f} | {second[tries - 1]:.1f}" for tries in TRIES]


def _shown(number: Estimate, digits: int) -> str:
    if number.low is None or number.high is None:
        return f"{float(number.value):.{digits}f}"
    low, high = float(number.low), float(number.high)
    return f"{float(number.value):.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
