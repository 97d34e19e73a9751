"""`leeward reproduce ROW`: a published number trained again; `--list` shows the rows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from leeward.commands.parsing import flags_of, parse
from leeward.errors import ConfigError
from leeward.published import scores
from leeward.published.scores import RULES, Row

if TYPE_CHECKING:
    from leeward.reproduce import Reproduction


@dataclass(frozen=True)
class ReproduceOptions:
    """Flags of `reproduce`."""

    list: bool = False
    """Show the rows whose names hold ROW (all without it), and train nothing."""
    steps: int | None = None
    """Updates of the last phase; default the published number. Fewer shorten earlier phases too."""
    seeds: tuple[int, ...] = ()
    """Default: as many as were published, at least three, counted from 0."""
    data: str | None = None
    """Other data than the row's: its number is then not comparable, and the verdict says so. Rows
    whose data nobody publishes need it, and say what they need."""
    env: str | None = None
    """Another environment than the one that the row's data implies."""
    run_dir: str | None = None
    """Where the run is kept; default runs/DATASET/ALGORITHM-TIME."""
    resume: str | None = None
    """A run of this row to continue, or to judge where it is finished."""
    max_time: str | None = None
    """Stop and save after this long (90s, 30m, 2h); continue with --resume."""
    offline: bool = False
    """Never use the network: only files that are there already."""
    device: Literal["cpu", "gpu", "tpu"] | None = None
    """Where to train; default the fastest there is."""
    quiet: bool = False
    """No progress view."""
    json: bool = False
    """Print the result as one line of JSON (reproduction.json in the run holds the same)."""


def main(arguments: list[str]) -> int:
    """Reproduces a row, or lists rows."""
    mark = tyro.conf.arg(help="a published row, such as iql/hopper-medium-v2", metavar="ROW")
    parsed = parse(
        [
            ("row", Annotated[tyro.conf.Positional[str], mark], ""),
            *flags_of(ReproduceOptions),
        ],
        arguments,
        prog="leeward reproduce",
        description="Trains a published row with its settings and compares the numbers.",
    )
    if parsed.list:
        _list(parsed.row)
        return 0
    if not parsed.row:
        raise ConfigError("name a row: leeward reproduce ROW (leeward reproduce --list shows them)")
    row = scores.find(parsed.row)  # before the engine is imported
    from leeward.reproduce import report, reproduce

    result = reproduce(
        row.name,
        steps=parsed.steps,
        seeds=parsed.seeds,
        data=parsed.data,
        env=parsed.env,
        run_dir=parsed.run_dir,
        resume=parsed.resume,
        max_time=parsed.max_time,
        offline=parsed.offline,
        device=parsed.device,
        quiet=parsed.quiet,
    )
    if parsed.json:
        print(json.dumps(report(result)))  # noqa: T201
    else:
        _show(result)
    return 0


def _list(part: str) -> None:
    """The rows whose name holds `part`."""
    wanted = part.lower().replace("_", "-")
    table = Table("row", "published", "of", "rule", "source", box=None)
    for row in scores.rows().values():
        if wanted in row.name:
            source = row.source.partition(";")[0]
            note = "" if row.preset is not None else " (settings not published)"
            note += "" if row.made is None else " (needs --data)"
            table.add_row(
                row.name, published_number(row), row.quantity, RULES[row.rule], source + note
            )
    Console(width=None if Console().is_terminal else 200).print(table)


def published_number(row: Row) -> str:
    """Mean and standard deviation."""
    return f"{row.mean:.1f}" + ("" if row.std is None else f" ± {row.std:.1f}")


def _show(result: Reproduction) -> None:
    """Both numbers, where they come from, and the verdict."""
    row, run = result.plan.row, result.run
    kind = "normalized score" if row.quantity == "score" else "raw return"
    values = " ".join(f"{value:.1f}" for value in result.values) or "none"
    lines: list[tuple[str, Any]] = [
        ("row", row.name),
        ("published", f"{published_number(row)} ({kind})"),
        ("protocol", row.protocol),
        ("source", row.source),
        ("settings", f"{row.preset}: {result.plan.source}"),
        *([] if row.needs is None else [("data", row.needs)]),
        ("ours", f"{_mean(result)} ({RULES[row.rule]} of every seed: {values})"),
        *(("note", note) for note in result.notes),
        ("verdict", result.verdict.text),
        ("run", run.directory),
    ]
    console = Console()
    for name, text in lines:
        console.print(f"{name:<10} {text}", soft_wrap=True, highlight=False, markup=False)


def _mean(result: Reproduction) -> str:
    if not result.values:
        return "–"
    mean = f"{sum(result.values) / len(result.values):.1f}"
    if result.interval is None:
        return f"{mean}, no interval"
    low, high = result.interval
    return f"{mean} [{low:.1f}, {high:.1f}], 95 % bootstrap interval over seeds"
