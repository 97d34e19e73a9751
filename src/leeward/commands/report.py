"""`leeward report RUN…`: everything that runs say, as one page with its tables and figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro
from rich.console import Console

from leeward.commands.parsing import flags_of, parse
from leeward.errors import ConfigError


@dataclass(frozen=True)
class ReportOptions:
    """Flags of `report`."""

    out: str = "report"
    """A folder for index.html, tables and figures."""
    protocol: Literal["last", "last-10", "best"] = "last"
    """Which evaluations give a run's number: the last, the mean of the last ten, or the best."""


def main(arguments: list[str]) -> int:
    """Writes the report and prints where it lies."""
    mark = tyro.conf.arg(help="run directories, or folders that hold some", metavar="RUN [RUN …]")
    parsed = parse(
        [
            ("runs", Annotated[tyro.conf.Positional[tuple[str, ...]], mark], ()),
            *flags_of(ReportOptions),
        ],
        arguments,
        prog="leeward report",
        description="Writes one page that says what was trained on what and how good it is.",
    )
    if not parsed.runs:
        raise ConfigError("name at least one run: leeward report RUN [RUN …] --out DIR")
    from leeward.report import report  # takes a second to import

    page = report(parsed.runs, parsed.out, protocol=parsed.protocol)
    Console().print(f"report: {page}", soft_wrap=True, highlight=False, markup=False)
    return 0
