"""Tables of another program's flags beside ours, and whether the defaults they say are true."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Row(NamedTuple):
    """One flag of theirs."""

    theirs: str
    """Without its hyphens."""
    default_there: str
    ours: str
    default_here: str
    notes: str


def rows(page: str, title: str) -> list[Row]:
    """The rows of a section that begin with a flag."""
    section = page.split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `--")]
    cells = [[cell.strip() for cell in line.split("|")[1:6]] for line in lines]
    return [Row(first.strip("`").removeprefix("--"), *others) for first, *others in cells]


def flags_in(texts: Iterable[str]) -> set[str]:
    """The flags that stand in texts, without hyphens."""
    return {flag for text in texts for flag in re.findall(r"--([\w-]+)", text)}


def defaults_of(*types: type) -> dict[str, Any]:
    """Flag → default, of all fields of dataclasses."""
    fields = [field for cls in types for field in dataclasses.fields(cls)]
    return {field.name.replace("_", "-"): field.default for field in fields}


def holding_for(text: str, name: str) -> str:
    """What a cell says of one algorithm: '1e-4 (BC: 3e-4, BCQ: 6.25e-5)' is 3e-4 for BC."""
    main, _, others = text.partition(" (")
    exceptions = dict(part.split(": ") for part in others.rstrip(")").split(", ") if ": " in part)
    return exceptions.get(name, main)


def says(text: str, value: Any) -> bool:
    """Whether a cell gives a default; words stand for None, and for a 0 that has a meaning."""
    if value is None or value == ():
        return _number(text) is None and text not in ("yes", "no", "on", "off")
    if isinstance(value, bool):
        return text in (("yes", "on", "1") if value else ("no", "off", "0"))
    if isinstance(value, tuple):
        return [float(item) if isinstance(item, int) else item for item in value] == [
            item if _number(item) is None else _number(item) for item in text.split()
        ]
    if isinstance(value, int | float):
        return _number(text) == value or (value == 0 and _number(text) is None)
    return text == str(value)


def wrong_defaults(table: Iterable[Row], ours: Mapping[str, Any], name: str = "") -> list[str]:
    """Rows whose 'Default here' is not that of the one flag of ours that they name."""
    wrong = []
    for row in table:
        flag = re.fullmatch(r"`--([\w-]+)`", row.ours)
        if flag and not says(holding_for(row.default_here, name), ours[flag[1]]):
            wrong.append(f"--{row.theirs}: {row.default_here}, it is {ours[flag[1]]}")
    return wrong


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None
