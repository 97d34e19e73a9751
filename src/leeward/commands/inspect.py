"""`leeward inspect DATASET`: is it fit to learn from? Exit code 2 when it is not."""

from __future__ import annotations

import json
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from leeward.commands.parsing import (
    DataOptions,
    flags_of,
    load_arguments,
    parse,
    pick,
    positional,
)
from leeward.data import registry
from leeward.data.checks import Report, inspect
from leeward.data.load import load_dataset
from leeward.data.table_columns import TableColumns
from leeward.environments import environment_spec
from leeward.errors import ConfigError

COLORS = {"error": "red", "warning": "yellow", "info": "cyan"}


@dataclass(frozen=True)
class InspectOptions:
    """Flags of `inspect`."""

    env: str | None = None
    """The environment the data comes from: its action box, step limit and reference returns."""
    json: bool = False
    """Print the report as JSON."""
    plots: str | None = None
    """Also draw returns, lengths, actions, rewards and states into this folder (SVG, PNG, CSV)."""
    policy: str | None = None
    """With --plots: a run, to draw how far its actions lie from the data's in like states."""


def main(arguments: list[str]) -> int:
    """Prints the report; 2 where a finding is an error that training would stop at."""
    parsed = parse(
        [
            positional("dataset", "a name (leeward list datasets), a path, an address or an id"),
            *flags_of(InspectOptions),
            *flags_of(DataOptions),
        ],
        arguments,
        prog="leeward inspect",
        description="Looks at a data set and says what may go wrong when learning from it.",
    )
    if parsed.policy is not None and parsed.plots is None:
        raise ConfigError(
            "--policy draws how far a run leaves the data: name a folder with --plots"
        )
    values = load_arguments(pick(DataOptions, parsed))
    if "columns" in values:
        values["columns"] = TableColumns(**values["columns"])
    if registry.find(parsed.dataset) is not None:
        values.setdefault("d4rl_rows", "all")  # stored next observations are worth a look, too
    space = None if parsed.env is None else environment_spec(parsed.env).action
    dataset = load_dataset(
        parsed.dataset, env=parsed.env, action_space=space, strict=False, **values
    )
    policy = None
    if parsed.policy is not None:
        from leeward.policy import load_policy

        policy = load_policy(parsed.policy)
    report = inspect(dataset)
    if parsed.json:
        print(json.dumps(report.to_json()))  # noqa: T201
    else:
        show(report)
    if parsed.plots is not None:  # after the report, which says what hinders drawing
        from leeward.report.doctor import plot_dataset  # takes a second to import

        drawn = plot_dataset(dataset, parsed.plots, policy)
        if not parsed.json:
            print(f"plots: {parsed.plots} ({', '.join(drawn)})")  # noqa: T201
    return 2 if report.errors else 0


def show(report: Report) -> None:
    """The report as a table and one paragraph a finding."""
    console = Console()
    table = Table(title=report.name, show_header=False)
    for what, value in report.lines():
        table.add_row(what, value)
    console.print(table)
    for note in report.notes:
        console.print(f"note: {note}", markup=False, highlight=False)
    for found in report.findings:
        color = COLORS[found.severity]
        console.print(f"[{color}]{found.severity}[/] {found.code}", end=": ", highlight=False)
        console.print(f"{found.message}. {found.remedy}", markup=False, highlight=False)
    if not report.findings:
        console.print("nothing found that would hinder learning")
