"""Writes the tables of the documentation that come from the code: settings and flags.

A table stands between `<!-- settings: NAME -->` (an algorithm's Config), or `<!-- flags: NAME -->`
(an options class), and `<!-- end -->`. A test fails while one is out of date.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from leeward.algorithms import get_algorithm
from leeward.commands.evaluate import EvaluateOptions
from leeward.commands.inspect import InspectOptions
from leeward.commands.parsing import DataOptions
from leeward.commands.train import ResumeOptions, TrainOptions
from leeward.commands.watch import WatchOptions
from leeward.options import RunOptions, field_help

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"<!-- (settings|flags): ([\w-]+) -->\n.*?<!-- end -->", re.DOTALL)
OPTIONS = {
    "run": RunOptions,
    "train": TrainOptions,
    "resume": ResumeOptions,
    "data": DataOptions,
    "evaluate": EvaluateOptions,
    "watch": WatchOptions,
    "inspect": InspectOptions,
}


def updated(page: str) -> str:
    """A page's text with every table made anew."""
    return BLOCK.sub(_block, page)


def _block(match: re.Match[str]) -> str:
    kind, name = match.groups()
    cls = get_algorithm(name).config_type if kind == "settings" else OPTIONS[name]
    return f"<!-- {kind}: {name} -->\n{table(cls)}<!-- end -->"


def table(cls: type) -> str:
    """One row a field: flag, default and meaning."""
    sentences = field_help(cls)
    rows = [
        f"| `--{field.name.replace('_', '-')}` | {_default(field)} | {sentences[field.name]} |"
        for field in dataclasses.fields(cls)
    ]
    return "\n".join(["| Flag | Default | Meaning |", "|---|---|---|", *rows]) + "\n"


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
