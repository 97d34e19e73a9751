"""What a page is made of: sections of text, tables, figures, commands and videos."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from leeward.report.figures import Drawing
from leeward.report.tables import Table


class Block(NamedTuple):
    """One piece of a section; `kind` says which field it uses."""

    kind: Literal["text", "notes", "table", "figures", "code", "video", "link"]
    text: str = ""
    items: tuple[str, ...] = ()
    table: Table | None = None
    figures: tuple[Drawing, ...] = ()
    folded: str = ""
    """The line that stands for it until it is opened; "" shows it at once."""


class Section(NamedTuple):
    """A heading and what stands below it."""

    name: str
    """For links."""
    title: str
    blocks: tuple[Block, ...]


def text(words: str) -> Block:
    """A paragraph."""
    return Block("text", text=words)


def notes(items: Sequence[str]) -> Block:
    """A list of sentences."""
    return Block("notes", items=tuple(items))


def rows(shown: Table, folded: str = "") -> Block:
    """A table."""
    return Block("table", table=shown, folded=folded)


def figures(drawings: Sequence[Drawing], folded: str = "") -> Block:
    """Figures side by side where there is room."""
    return Block("figures", figures=tuple(drawings), folded=folded)


def code(lines: Sequence[str], folded: str = "") -> Block:
    """Commands."""
    return Block("code", items=tuple(lines), folded=folded)
