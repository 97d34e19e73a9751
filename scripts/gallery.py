"""Draws the figures of docs/gallery.md from benchmarks/results: python scripts/gallery.py.

Every file says which numbers it was drawn from, so that a test finds one that is out of date.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import measured
import numpy as np
from matplotlib.figure import Figure

from leeward.report.curves import DATA, curve_csv, draw_curves
from leeward.report.figures import INK, Gallery, add_legend, add_title, panel, style
from leeward.report.tables import Table, table
from leeward.statistics import mean_curve

FOLDER = Path(__file__).parents[1] / "docs" / "gallery"


class Picture(NamedTuple):
    """One figure and what is said of it."""

    name: str
    title: str
    rows: dict[str, str]
    """Rows of benchmarks/results → their names in the legend."""
    caption: str


CURVES = (
    Picture(
        "quick-start",
        "Double pendulum (the quick start)",
        {"double-pendulum-bc": "BC", "double-pendulum-fisher-brc": "Fisher-BRC"},
        "All that SAC saw before it was any good, 3 seeds each: the data that ship with Leeward, "
        "and the quick start's settings.",
    ),
    Picture(
        "hopper",
        "Hopper, medium-expert",
        {"hopper-bc": "BC", "hopper-td3-bc": "TD3+BC", "hopper-fisher-brc": "Fisher-BRC"},
        "200,000 transitions made as D4RL makes medium-expert, a tenth of its size; 3 seeds of BC "
        "and TD3+BC, one of Fisher-BRC. Nothing has settled.",
    ),
    Picture(
        "pendulum",
        "Pendulum, all that SAC saw",
        {
            "pendulum-bc": "BC",
            "pendulum-fisher-brc": "Fisher-BRC",
            "pendulum-fisher-brc-scaled": "Fisher-BRC, rewards × 0.1",
        },
        "3 seeds each. The same algorithm with rewards of another size: look at it before you "
        "train Fisher-BRC.",
    ),
)
CARTPOLE = Picture(
    "cartpole",
    "CartPole, discrete actions",
    {
        "cartpole-bc": "BC",
        "cartpole-bcq": "BCQ",
        "cartpole-cql": "CQL",
        "cartpole-crr": "CRR",
        "cartpole-iql": "IQL",
    },
    "Data of a QR-DQN policy half of whose actions are random. A dot is a seed, the mean return "
    "of 20 episodes after the last update.",
)


def pictures() -> tuple[Picture, ...]:
    """Those whose rows are recorded."""
    known = {row.name for row in measured.rows()}
    return (*CURVES, CARTPOLE) if known.issuperset(CARTPOLE.rows) else CURVES


def main() -> None:
    """Draws all figures anew."""
    FOLDER.mkdir(exist_ok=True)
    for picture in pictures():
        path = FOLDER / f"{picture.name}.svg"
        path.write_text(draw(picture), encoding="utf-8")
        print(f"{path.relative_to(FOLDER.parents[1])}: {path.stat().st_size / 1000:.0f} kB")


def draw(picture: Picture) -> str:
    """The figure as SVG, with the fingerprint of its numbers in a comment."""
    numbers, make = _dots(picture) if picture is CARTPOLE else _curves(picture)
    with tempfile.TemporaryDirectory() as folder:
        Gallery(Path(folder)).add(picture.name, picture.title, "", numbers, make)
        svg = Path(folder, f"{picture.name}.svg").read_text(encoding="utf-8")
    head, body = svg.split("<svg", 1)
    return f"{head}<!-- drawn from {fingerprint(picture)} -->\n<svg{body}"


def fingerprint(picture: Picture) -> str:
    """Of the numbers that are drawn and of the words beside them."""
    found: list[object] = [picture.title, picture.rows]
    for name in picture.rows:
        row = measured.row_named(name)
        found += [row.values, row.beside]
        if picture is not CARTPOLE:
            curves = measured.curves(name)
            found += [curves.updates.tolist(), curves.values.tolist()]
    return measured.fingerprint(found)


def markdown() -> str:
    """The figures as the page shows them, each with its numbers as alternative text."""
    return "\n".join(
        f"## {p.title}\n\n![{alternative(p)}](gallery/{p.name}.svg)\n\n{p.caption}\n"
        for p in pictures()
    )


def alternative(picture: Picture) -> str:
    """What the figure shows, for those who hear it read."""
    found = [measured.row_named(name) for name in picture.rows]
    ends = [
        f"{label} ends at {row.text} after {row.updates:,} updates"
        for label, row in zip(picture.rows.values(), found, strict=True)
    ]
    kind = "Returns" if picture is CARTPOLE else "Learning curves (score)"
    beside = "" if found[0].beside is None else f"; the data's mean is {_beside(found)}"
    return f"{kind} on {picture.title}: {'; '.join(ends)}{beside}."


def _beside(rows: list[measured.Row]) -> str:
    return measured.number(float(rows[0].beside or 0.0))


def _curves(picture: Picture) -> tuple[Table, Callable[[], Figure]]:
    """Means over seeds with 95 % intervals where there are three, and the data's mean."""
    found = {}
    for name, label in picture.rows.items():
        one = measured.curves(name)
        found[label] = one.updates, mean_curve(one.values)
    styles = {label: style(i) for i, label in enumerate(found)}
    beside = measured.row_named(next(iter(picture.rows))).beside

    def line(figure: Figure) -> None:
        if beside is not None:
            figure.axes[0].axhline(beside, color=DATA.color, linestyle=DATA.dash, linewidth=1.2)

    extra = [] if beside is None else [("the data", DATA)]
    return curve_csv(found, "updates"), lambda: draw_curves(
        found, picture.title, "updates", "score", styles, extra, line
    )


def _dots(picture: Picture) -> tuple[Table, Callable[[], Figure]]:
    """One dot a seed, and a line for the data's mean."""
    rows = {label: measured.row_named(name) for name, label in picture.rows.items()}
    numbers = [(label, value) for label, row in rows.items() for value in row.values]

    def make() -> Figure:
        figure, axes = panel(left=0.62, legend=["the data's mean"])
        for i, row in enumerate(rows.values()):
            axes.plot(np.full(len(row.values), i), row.values, "o", color=style(i).color)
        beside = next(iter(rows.values())).beside
        if beside is not None:
            axes.axhline(beside, color=INK, linestyle=DATA.dash, linewidth=1.2)
        axes.set_xticks(range(len(rows)), list(rows))
        axes.set_xlim(-0.5, len(rows) - 0.5)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("return")
        add_title(figure, picture.title)
        add_legend(figure, ["the data's mean"], [DATA])
        return figure

    return table(("method", "return"), numbers), make


if __name__ == "__main__":
    main()
