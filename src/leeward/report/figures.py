"""Figures that are read on paper, on a phone and in the dark: one look, SVG, PNG and CSV of each.

Figures are drawn with colors that stand for roles (ink, grid, series). In files they are what they
are; in the page each becomes a CSS variable, which the reader's light or dark preference sets.
Series differ in dash as well as in color, and the colors keep apart for color-blind readers.
"""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator

from leeward.report.files import write_bytes
from leeward.report.tables import Table

PAPER, INK, MUTED, GRID = "#fefefe", "#1d232b", "#586170", "#d6dbe1"
SERIES = ("#0067a8", "#c94f00", "#00835f", "#b07aa1", "#332288", "#7a1f1f")
"""Blue, vermilion, green, mauve, indigo, maroon: found by search among the colors of Okabe & Ito
and of Tol for those that keep farthest apart, also without red or green cones, with a contrast of
at least 3.3 on white; `page.css` has those for dark paper."""
DASHES: tuple[object, ...] = ("solid", (0, (4.5, 1.6)), (0, (1.4, 1.4)), (0, (6, 1.5, 1.4, 1.5)))
ROLES = {PAPER: "paper", INK: "ink", MUTED: "muted", GRID: "grid"} | {
    color: f"series-{i}" for i, color in enumerate(SERIES)
}
WIDTH = 4.8
"""Inches; 346 units in the page, about a phone's width, so that text there keeps its size."""
LOOK: dict[Any, Any] = {
    "font.size": 10.0,
    "font.family": "DejaVu Sans",
    "axes.labelsize": 9.5,
    "xtick.labelsize": 9.0,
    "ytick.labelsize": 9.0,
    "legend.fontsize": 9.0,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "axes.facecolor": PAPER,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "lines.linewidth": 1.6,
    "patch.linewidth": 0.0,
    "svg.fonttype": "none",  # text stays text: small, selectable, in the reader's font
    "svg.hashsalt": "leeward",  # the same figure gives the same bytes
    "path.simplify_threshold": 0.3,
    "axes.formatter.useoffset": False,
    "axes.formatter.limits": (-3, 5),
}
CHARACTER = 0.083
"""Inches that a character of a label takes at most, for margins."""


_PATH, _NUMBER = re.compile(r' d="[^"]*"'), re.compile(r"-?\d+\.\d{3,}")
"""Hundredths of a unit are enough for paths: more only make them longer."""


class Drawing(NamedTuple):
    """A figure as the page shows it; its files are written already."""

    name: str
    """Of its files, without an ending."""
    title: str
    caption: str
    """What is drawn, and what bands and dots mean; "" where the section says it."""
    svg: str
    """For the page: an `<svg>` element whose colors are CSS variables."""


class Style(NamedTuple):
    """How a series looks, everywhere in a report."""

    color: str
    dash: object


def style(index: int) -> Style:
    """The look of the series with this index; there are 24."""
    return Style(SERIES[index % len(SERIES)], DASHES[index // len(SERIES) % len(DASHES)])


def safe(text: str) -> str:
    """Text that Matplotlib shows as it is, without reading formulas into it."""
    return text.replace("$", r"\$")


def shortened(text: str, most: int = 34) -> str:
    """Text of at most so many characters, its middle left out where it is longer."""
    if len(text) <= most:
        return text
    half = (most - 1) // 2
    return f"{text[: most - 1 - half]}…{text[len(text) - half :]}"


@contextmanager
def look() -> Iterator[None]:
    """The look of all figures."""
    with mpl.rc_context(LOOK), warnings.catch_warnings():
        # Letters that Matplotlib's font lacks are boxes in PNG files only: SVG keeps the text.
        warnings.filterwarnings("ignore", r"Glyph \d+")
        yield


class Gallery:
    """Draws figures, writes their files into a folder and keeps them for the page."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.names: list[str] = []

    def add(
        self, name: str, title: str, caption: str, table: Table, draw: Callable[[], Figure]
    ) -> Drawing:
        """Draws one figure and writes NAME.svg, NAME.png and NAME.csv.

        Args:
            name: of the files; a name that was used gets a number.
            title: one line.
            caption: for the page.
            table: the numbers that are drawn.
            draw: makes the figure.
        """
        unique, number = name, 2
        while unique in self.names:
            unique, number = f"{name}-{number}", number + 1
        self.names.append(unique)
        with look():
            figure = draw()
            svg, png = _svg(figure), _png(figure)
        write_bytes(self._folder / f"{unique}.svg", svg.encode())
        write_bytes(self._folder / f"{unique}.png", png)
        write_bytes(self._folder / f"{unique}.csv", table.to_csv().encode())
        return Drawing(unique, title, caption, inline(svg, unique, title))


def _svg(figure: Figure) -> str:
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", file.getvalue(), flags=re.DOTALL)
    return _PATH.sub(lambda path: _NUMBER.sub(lambda n: f"{float(n[0]):.2f}", path[0]), text)


def _png(figure: Figure) -> bytes:
    file = io.BytesIO()
    FigureCanvasAgg(figure).print_png(file, metadata={"Software": None})
    return file.getvalue()


def inline(svg: str, name: str, title: str) -> str:
    """An SVG file's text as an element of a page, called `title` for those who hear it read.

    Ids begin with the figure's name, colors are CSS variables, and the size is left to the page.
    """
    body = svg[svg.index("<svg") :]
    opening, rest = body.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', opening)
    assert box is not None
    rest = re.sub(r'\bid="', f'id="{name}-', rest)
    rest = re.sub(r"url\(#", f"url(#{name}-", rest)
    rest = re.sub(r'href="#', f'href="#{name}-', rest)
    for color, role in ROLES.items():
        rest = rest.replace(color, f"var(--{role})")
    rest = re.sub(r"\n\s*", "\n", rest)
    label = html.escape(title, quote=True)
    space = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return f'<svg {space} {box[0]} role="img" aria-label="{label}">{rest}'


def panel(
    *,
    left: float = 0.72,
    height: float = 2.9,
    legend: Sequence[str] = (),
    bottom: float = 0.55,
    top: float = 0.36,
    right: float = 0.2,
) -> tuple[Figure, Axes]:
    """A figure with one axes and room for a legend below it, in fixed margins.

    Args:
        left: inches left of the axes.
        height: inches without the legend.
        legend: names of the series in it.
        bottom: inches for the labels below the axes.
        top: inches for the title.
        right: inches right of the axes.
    """
    room = 0.17 * -(-len(legend) // columns(legend)) + 0.08 if legend else 0.0
    whole = height + room
    figure = Figure(figsize=(WIDTH, whole), dpi=120)
    FigureCanvasAgg(figure)
    axes = figure.add_axes(
        (
            left / WIDTH,
            (bottom + room) / whole,
            (WIDTH - left - right) / WIDTH,
            (height - bottom - top) / whole,
        )
    )
    return figure, axes


def add_title(figure: Figure, title: str) -> None:
    """Above the figure, from its left edge on, so that long ones fit."""
    figure.suptitle(
        safe(shortened(title, 52)),
        x=0.02,
        y=0.985,
        ha="left",
        va="top",
        fontsize=10.5,
        fontweight="bold",
    )


def columns(legend: Sequence[str]) -> int:
    """Columns of a legend that fit the width."""
    longest = max(map(len, legend))
    return max(1, min(len(legend), int(WIDTH / (0.5 + 0.07 * longest))))


def add_legend(figure: Figure, names: Sequence[str], styles: Sequence[Style]) -> None:
    """A legend below everything."""
    lines = [
        Line2D([], [], color=s.color, linestyle=s.dash)  # pyright: ignore[reportArgumentType]
        for s in styles
    ]
    figure.legend(
        lines,
        [safe(name) for name in names],
        loc="lower left",
        bbox_to_anchor=(0.02, 0.0),
        ncols=columns(names),
        frameon=False,
        handlelength=2.2,
        columnspacing=1.0,
        labelspacing=0.25,
        borderpad=0.2,
    )


def in_thousands(axes: Axes) -> None:
    """Writes large numbers on the horizontal axis as 200k, 1M."""
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))


def plot(axes: Axes, x: np.ndarray, y: np.ndarray, look: Style) -> None:
    """One line; a single point becomes a dot."""
    marker = "o" if len(x) == 1 else ""
    axes.plot(
        x,
        y,
        color=look.color,
        linestyle=look.dash,  # pyright: ignore[reportArgumentType]
        marker=marker,
        markersize=4,
    )


def band(
    axes: Axes, x: np.ndarray, low: np.ndarray | None, high: np.ndarray | None, look: Style
) -> None:
    """A pale band between two lines, where there is one."""
    if low is None or high is None:
        return
    axes.fill_between(x, low, high, color=look.color, alpha=0.16, linewidth=0)
