"""`Table`: what the page shows in rows, and the CSV file of the same."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from leeward.statistics import Estimate


class Shown(NamedTuple):
    """A cell as the page shows it."""

    text: str
    number: bool
    interval: str = ""
    """Below the number, smaller."""


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of cells; text, whole numbers, numbers or None."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    title: str = ""
    digits: int = 1
    """Places behind the point that the page shows."""

    def to_csv(self) -> str:
        """Comma-separated, a line a row, None empty; numbers have seven digits."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([[_plain(cell) for cell in row] for row in self.rows])
        return file.getvalue()

    def shown(self) -> list[list[Shown]]:
        """Every cell as the page shows it."""
        return [[self._shown(cell) for cell in row] for row in self.rows]

    def _shown(self, cell: Any) -> Shown:
        if cell is None or (isinstance(cell, float) and math.isnan(cell)):
            return Shown("–", number=True)
        if isinstance(cell, bool):
            return Shown("yes" if cell else "no", number=False)
        if isinstance(cell, Estimate):
            value, _, interval = interval_text(cell, self.digits).partition(" ")
            return Shown(value, number=True, interval=interval)
        if isinstance(cell, int):
            return Shown(f"{cell:,}", number=True)
        if isinstance(cell, float):
            return Shown(f"{cell:,.{self.digits}f}", number=True)
        return Shown(str(cell), number=False)


def interval_text(number: Estimate, digits: int) -> str:
    """79.3 [71.0, 85.2], or the number alone where it has no interval."""
    value = f"{float(number.value):.{digits}f}"
    if number.low is None or number.high is None:
        return value
    return f"{value} [{float(number.low):.{digits}f}, {float(number.high):.{digits}f}]"


def _plain(cell: Any) -> Any:
    if cell is None:
        return ""
    if isinstance(cell, Estimate):
        return f"{float(cell.value):.6g}"
    return f"{cell:.7g}" if isinstance(cell, float) else cell


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], **options: Any) -> Table:
    """A table from any sequences."""
    return Table(tuple(columns), tuple(tuple(row) for row in rows), **options)
