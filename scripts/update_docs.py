"""Writes the parts of the documentation that come from the code and from benchmarks/results.

A part stands between `<!-- settings: NAME -->` (an algorithm's Config), `<!-- flags: NAME -->`
(an options class), `<!-- published: NAME -->` (published settings or scores), `<!-- results: NAME …
-->` (what was measured of algorithms), `<!-- recorded: NAME -->` (a file of results) or
`<!-- gallery: all -->`, and `<!-- end -->`. Single numbers stand in a sentence between
`<!-- measured: ROW -->`, `<!-- beside: ROW -->` (the data's mean), `<!-- speed: ROW -->` or
`<!-- published-score: ROW -->` and the same end.
A test fails while one is out of date.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import gallery
import measured

from leeward.algorithms import get_algorithm
from leeward.collect import CollectOptions, OnlineOptions, QRDQNOptions
from leeward.commands.collect import OutputOptions
from leeward.commands.compare import CompareOptions
from leeward.commands.convert import ConvertOptions
from leeward.commands.evaluate import EvaluateOptions
from leeward.commands.export import ExportOptions
from leeward.commands.finetune import ResumeFinetuneOptions
from leeward.commands.inspect import InspectOptions
from leeward.commands.ope import OpeCommandOptions
from leeward.commands.parsing import DataOptions
from leeward.commands.quickstart import QuickstartOptions
from leeward.commands.report import ReportOptions
from leeward.commands.reproduce import ReproduceOptions
from leeward.commands.sweep import PlaceOptions, ScheduleOptions, SweepOptions
from leeward.commands.train import ResumeOptions, TrainOptions
from leeward.commands.watch import WatchOptions
from leeward.data.reduce import Reduction
from leeward.finetune import FinetuneOptions
from leeward.ope.options import OpeOptions
from leeward.options import RunOptions, field_help
from leeward.published import scores
from leeward.published import settings as published

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(
    r"<!-- (settings|flags|published|results|recorded|gallery): ([\w -]+) -->\n.*?<!-- end -->",
    re.DOTALL,
)
NUMBER = re.compile(r"<!-- (measured|beside|speed|published-score): (\S+) -->[^<\n]*<!-- end -->")
OPTIONS = {
    "run": RunOptions,
    "train": TrainOptions,
    "resume": ResumeOptions,
    "sweep": SweepOptions,
    "sweep-place": PlaceOptions,
    "sweep-schedule": ScheduleOptions,
    "data": DataOptions,
    "finetune": FinetuneOptions,
    "finetune-resume": ResumeFinetuneOptions,
    "evaluate": EvaluateOptions,
    "export": ExportOptions,
    "watch": WatchOptions,
    "inspect": InspectOptions,
    "convert": ConvertOptions,
    "convert-reduce": Reduction,
    "reproduce": ReproduceOptions,
    "report": ReportOptions,
    "compare": CompareOptions,
    "ope": OpeCommandOptions,
    "ope-estimates": OpeOptions,
    "collect": CollectOptions,
    "collect-online": OnlineOptions,
    "collect-qrdqn": QRDQNOptions,
    "collect-output": OutputOptions,
    "quickstart": QuickstartOptions,
}


def updated(page: str) -> str:
    """A page's text with every table and number made anew."""
    return NUMBER.sub(_number, BLOCK.sub(_block, page))


def _block(match: re.Match[str]) -> str:
    kind, name = match.groups()
    return f"<!-- {kind}: {name} -->\n{BLOCKS[kind](name)}<!-- end -->"


def _number(match: re.Match[str]) -> str:
    kind, name = match.groups()
    return f"<!-- {kind}: {name} -->{NUMBERS[kind](name)}<!-- end -->"


def table(cls: type) -> str:
    """One row a field: flag, default and meaning."""
    sentences = field_help(cls)
    rows = [
        f"| `--{field.name.replace('_', '-')}` | {_default(field)} | {sentences[field.name]} |"
        for field in dataclasses.fields(cls)
    ]
    return "\n".join(["| Flag | Default | Meaning |", "|---|---|---|", *rows]) + "\n"


def published_settings() -> str:
    """One row an algorithm, preset and source: the data sets for which it has settings."""
    patterns: dict[tuple[str, str, str], list[str]] = {}
    for entry in published.entries():
        if entry.config is not None:
            key = (entry.algorithm.replace("_", "-"), entry.preset, entry.source)
            patterns.setdefault(key, []).extend(entry.datasets)
    rows = [
        f"| {algorithm} | {preset} | {', '.join(f'`{name}`' for name in names)} | {source} |"
        for (algorithm, preset, source), names in patterns.items()
    ]
    return (
        "\n".join(["| Algorithm | Preset | Data sets | Source |", "|---|---|---|---|", *rows])
        + "\n"
    )


def published_tables() -> str:
    """One row a source and protocol: how many numbers it has of which algorithms, and the first."""
    tables: dict[tuple[str, str], list[scores.Row]] = {}
    for row in scores.rows().values():
        tables.setdefault((row.source.partition(";")[0], row.protocol), []).append(row)
    lines = ["| Source | Protocol | Rows | Algorithms | Such as |", "|---|---|---|---|---|"]
    for (source, protocol), rows in tables.items():
        algorithms = ", ".join(dict.fromkeys(r.algorithm.replace("_", "-") for r in rows))
        lines.append(f"| {source} | {protocol} | {len(rows)} | {algorithms} | `{rows[0].name}` |")
    return "\n".join(lines) + "\n"


PUBLISHED = {"settings": published_settings, "tables": published_tables}


def results_table(names: str) -> str:
    """What was measured of the algorithms, named with spaces between them; one row a training."""
    wanted = [name.replace("-", "_") for name in names.split()]
    rows = [row for name in wanted for row in measured.rows() if row.algorithm == name]
    if not rows:
        return "No run trained on data alone is recorded in `benchmarks/results` yet.\n"
    several = len(wanted) > 1
    lines = [
        f"| {'Algorithm | ' * several}Data | Settings | Updates | After the last, each seed "
        "| The data's mean | Recorded in `benchmarks/results` |",
        f"|{'---|' * (6 + several)}",
    ]
    for row in rows:
        beside = "–" if row.beside is None else measured.number(row.beside)
        first = f"{row.algorithm.replace('_', '-')} | " * several
        settings = f"`{row.settings}`" if row.settings.startswith("--") else row.settings
        lines.append(
            f"| {first}{row.data} | {settings or 'defaults'} | {row.updates:,} "
            f"| {row.quantity} {row.text} | {beside} | `{row.file}` |"
        )
    return "\n".join(lines) + "\n"


BLOCKS = {
    "settings": lambda name: table(get_algorithm(name).config_type),
    "flags": lambda name: table(OPTIONS[name]),
    "published": lambda name: PUBLISHED[name](),
    "results": results_table,
    "recorded": measured.recorded,
    "gallery": lambda name: gallery.markdown(),
}
NUMBERS = {
    "measured": measured.text_of,
    "beside": measured.beside_of,
    "speed": lambda name: f"{measured.speed(name):.0f}",
    "published-score": lambda name: measured.number(scores.find(name).mean),
}


def _default(field: dataclasses.Field) -> str:
    value = field.default
    if value is dataclasses.MISSING:
        return "required"
    if value is None or value == ():
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " ".join(str(item) for item in value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def main() -> None:
    """Updates every page in place."""
    for path in sorted(DOCS.rglob("*.md")):
        before = path.read_text(encoding="utf-8")
        after = updated(before)
        if after != before:
            path.write_text(after, encoding="utf-8")
            print(f"updated {path.relative_to(DOCS.parent)}")


if __name__ == "__main__":
    main()
