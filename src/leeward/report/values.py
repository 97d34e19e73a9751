"""Is V to be trusted? States colored by V, V along walks, and the numbers beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from leeward.errors import CheckpointError
from leeward.report import blocks
from leeward.report.blocks import Block, Section
from leeward.report.diagnostics import Metrics
from leeward.report.figures import (
    MUTED,
    SERIES,
    Drawing,
    Gallery,
    add_legend,
    add_title,
    panel,
    plot,
    safe,
    style,
)
from leeward.report.files import file_name
from leeward.report.tables import Table, table
from leeward.results import Results
from leeward.run import Run
from leeward.trained import task_name

Arrays = Mapping[str, np.ndarray]
"""A close-up of the value phase: see pretraining.closeup and pretraining.value.look."""
LEVELS = 4
"""Steps of color on each side of the median."""
GAP = 0.03
"""Between two walks, as a share of all their steps."""
MEASURES = {
    "td_error": "Mean |TD error|",
    "return_correlation": "Correlation with returns",
    "return_error": "Error against returns",
    "return_known": "Share of returns known",
    "v_mean": "Mean of V",
    "v_std": "Std of V",
    "discriminator_accuracy": "Discriminator's accuracy",
}
INTRO = (
    "The value network beside the Monte-Carlo returns of episodes that it did not learn from, "
    "where some were held out. Left: states on their two principal axes, blue where V is above its "
    "median and orange where it is below, the stronger the farther. Right: V and the returns, "
    "where they are known, along the worst, the middle and the best of these episodes. Both of the "
    "first seed; the numbers are means over seeds."
)


def check_arrays(path: Path, arrays: Arrays) -> None:
    """Raises CheckpointError where a close-up lacks an array, or lengths differ."""
    missing = [n for n in ("walk", "component", "explained", "value", "return") if n not in arrays]
    if missing:
        raise CheckpointError(f"{path}: the close-up of V has no '{missing[0]}' (damaged)")
    count = len(arrays["walk"])
    lengths = (len(arrays["component"]), arrays["value"].shape[-1], arrays["return"].shape[-1])
    if any(length != count for length in lengths):
        raise CheckpointError(f"{path}: the arrays of the close-up of V differ in length (damaged)")


def value_section(
    results: Results,
    metrics: Mapping[Path, Metrics],
    closeups: Mapping[Path, Arrays | None],
    gallery: Gallery,
    tables: dict[str, Table],
) -> Section | None:
    """Figures and numbers of every run that has a value phase with a close-up; else None."""
    runs = [run for run in results.runs if closeups[run.directory] is not None]
    if not runs:
        return None
    from leeward.pretraining.value import warnings  # takes a second to import

    rows, said, drawings = [], [], []
    for run in runs:
        arrays = closeups[run.directory]
        assert arrays is not None
        numbers = _numbers(metrics[run.directory])
        name = f"{run.algorithm.replace('_', '-')} on {task_name(run)}"
        rows.append((name, str(run.directory), *(numbers.get(n) for n in MEASURES)))
        if {"rewardless", "flat"} <= numbers.keys():
            against = warnings({f"value/{n}": v for n, v in numbers.items()})
            said += [f"{name}: {text}" for text in against or ["nothing speaks against V"]]
        drawings += _drawings(run, name, arrays, gallery)
    kept = [i for i in range(len(MEASURES)) if any(row[2 + i] is not None for row in rows)]
    titles = list(MEASURES.values())
    tables["values"] = table(
        ("Method", "Run", *(titles[i] for i in kept)),
        [(*row[:2], *(row[2 + i] for i in kept)) for row in rows],
        digits=3,
    )
    parts: list[Block] = [blocks.text(INTRO), blocks.rows(tables["values"])]
    if said:
        parts.append(blocks.notes(said))
    parts.append(blocks.figures(drawings, "All runs" if len(runs) > 3 else ""))
    return Section("values", "Is the value network to be trusted?", tuple(parts))


def _numbers(held: Metrics) -> dict[str, float]:
    """What the value phase measured at its end, means over the runs of one directory."""
    found: dict[str, list[float]] = {}
    for (phase, name, _), series in held.items():
        part, _, measure = name.partition("/")
        measured = part in ("held_out", "training") or measure in ("rewardless", "flat")
        if phase == "value" and measured:
            found.setdefault(measure, []).append(series.values[-1])
    return {name: float(np.nanmean(values)) for name, values in found.items() if _any(values)}


def _any(values: Sequence[float]) -> bool:
    return bool(np.isfinite(values).any())


def _drawings(run: Run, name: str, arrays: Arrays, gallery: Gallery) -> list[Drawing]:
    walk, value, returns = arrays["walk"], arrays["value"][0], arrays["return"][0]
    scattered = walk < 0
    place, states = arrays["component"][scattered], value[scattered]
    drawings = [
        gallery.add(
            file_name("value-states", run.algorithm, task_name(run)),
            f"{name}: V of states",
            "",
            table(
                ("axis_1", "axis_2", "value", "return"),
                [
                    (float(x), float(y), float(v), _known(r))
                    for (x, y), v, r in zip(place, states, returns[scattered], strict=True)
                ],
            ),
            lambda: draw_states(place, states, arrays["explained"], f"{name}: V of states"),
        )
    ]
    if (~scattered).any():
        along = walk[~scattered], value[~scattered], returns[~scattered]
        drawings.append(
            gallery.add(
                file_name("value-walks", run.algorithm, task_name(run)),
                f"{name}: V along episodes",
                "",
                table(
                    ("episode", "value", "return"),
                    [(int(w), float(v), _known(r)) for w, v, r in zip(*along, strict=True)],
                ),
                lambda: draw_walks(*along, f"{name}: V along episodes"),
            )
        )
    return drawings


def _known(value: np.floating) -> float | None:
    return float(value) if np.isfinite(value) else None


def draw_states(place: np.ndarray, value: np.ndarray, explained: np.ndarray, title: str) -> Figure:
    """States on two axes, colored by how far their V is above or below its median.

    Args:
        place: [P, 2].
        value: [P].
        explained: [2] shares of the variance.
        title: one line.
    """
    names = ["V above its median", "V below its median"]
    figure, axes = panel(height=3.4, legend=names)
    if np.ptp(value) == 0.0:
        axes.scatter(place[:, 0], place[:, 1], s=12, color=MUTED, linewidths=0)
    else:
        level = levels(value)
        for step in np.unique(level):
            chosen = level == step
            axes.scatter(
                place[chosen, 0],
                place[chosen, 1],
                s=12,
                color=SERIES[0] if step > 0 else SERIES[1],
                alpha=abs(int(step)) / LEVELS,
                linewidths=0,
            )
    add_title(figure, title)
    axes.set_xlabel(f"first axis, {100 * float(explained[0]):.0f} % of the variance")
    axes.set_ylabel(f"second axis, {100 * float(explained[1]):.0f} %")
    add_legend(figure, names, [style(0), style(1)])
    return figure


def levels(value: np.ndarray) -> np.ndarray:
    """[P] from −LEVELS to LEVELS without 0: in which eighth of the ranks each value lies."""
    rank = np.argsort(np.argsort(value, kind="stable"), kind="stable")
    level = rank * 2 * LEVELS // len(value) - LEVELS  # −LEVELS … LEVELS − 1
    return np.where(level >= 0, level + 1, level)


def draw_walks(walk: np.ndarray, value: np.ndarray, returns: np.ndarray, title: str) -> Figure:
    """V and the known returns along walks, one after the other.

    Args:
        walk: [P] which walk a step belongs to, in order.
        value: [P].
        returns: [P], NaN where it is not known.
        title: one line.
    """
    names = ["V", "return of the episode"]
    figure, axes = panel(height=3.4, legend=names)
    gap = max(1, round(GAP * len(walk)))
    for number in np.unique(walk):
        own = walk == number
        step = np.flatnonzero(own) + gap * int(number)
        plot(axes, step, value[own], style(0))
        known = np.isfinite(returns[own])
        if known.any():
            plot(axes, step[known], returns[own][known], style(1))
    add_title(figure, title)
    axes.set_xlabel(safe("steps of the worst, the middle and the best episode"))
    add_legend(figure, names, [style(0), style(1)])
    return figure
