"""Figures over the course of training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from leeward import statistics
from leeward.report.aggregates import Aggregates
from leeward.report.figures import (
    INK,
    Drawing,
    Gallery,
    Style,
    add_legend,
    add_title,
    band,
    in_thousands,
    panel,
    plot,
    safe,
    shortened,
)
from leeward.report.files import file_name
from leeward.report.tables import Table, table
from leeward.results import Results
from leeward.statistics import Estimate
from leeward.trained import Task, Trained

POINTS = 100
"""Most points of a curve: more are not seen at this size."""
DATA = Style(INK, (0, (1, 2)))
Curves = Mapping[str, tuple[np.ndarray, Estimate]]
"""Method → ([K] horizontal, [K] numbers)."""


def learning_curves(
    results: Results, gallery: Gallery, styles: Mapping[str, Style]
) -> list[Drawing]:
    """The mean over seeds at every evaluation, one figure a task."""
    drawings = []
    for task in results.tasks:
        curves: dict[str, tuple[np.ndarray, Estimate]] = {}
        for method in results.methods:
            cell = results.evaluated(method, task)
            if cell:
                steps, values = on_one_grid(cell, task)
                curves[method] = steps, statistics.mean_curve(values)
        if curves:
            drawings.append(_curves(task, curves, data_value(results, task), gallery, styles))
    return drawings


def _curves(
    task: Task,
    curves: Curves,
    data: float | None,
    gallery: Gallery,
    styles: Mapping[str, Style],
) -> Drawing:
    def more(figure: Figure) -> None:
        if data is not None:
            figure.axes[0].axhline(data, color=DATA.color, linestyle=DATA.dash, linewidth=1.2)

    extra = [] if data is None else [("the data", DATA)]
    return gallery.add(
        file_name("learning", task.name),
        task.name,
        "",
        curve_csv(curves, "updates"),
        lambda: draw_curves(curves, task.name, "updates", task.quantity, styles, extra, more),
    )


def sample_efficiency(
    results: Results, found: Aggregates, gallery: Gallery, styles: Mapping[str, Style]
) -> list[Drawing]:
    """The interquartile mean over all runs of all tasks at every evaluation."""
    curves: dict[str, tuple[np.ndarray, Estimate]] = {}
    for method in found.scores:
        cells = [(results.evaluated(method, task), task) for task in found.tasks]
        steps = _grid([one for cell, _ in cells for one in cell])
        values = [_values_at(cell, task, steps) for cell, task in cells]
        curves[method] = steps, statistics.iqm_curve(values)
    title = "Sample efficiency"
    label = f"IQM of {found.quantity}"
    return [
        gallery.add(
            "sample-efficiency",
            title,
            "The interquartile mean over all runs of all tasks after so many updates.",
            curve_csv(curves, "updates"),
            lambda: draw_curves(curves, title, "updates", label, styles),
        )
    ]


def on_one_grid(cell: Sequence[Trained], task: Task) -> tuple[np.ndarray, np.ndarray]:
    """([K] updates, [N, K] values) of runs that may have been evaluated at different updates."""
    steps = _grid(cell)
    return steps, _values_at(cell, task, steps)


def _grid(trained: Sequence[Trained]) -> np.ndarray:
    """At most POINTS of the updates at which any was evaluated, from where all have been."""
    steps = np.unique(np.concatenate([one.steps() for one in trained]))
    steps = steps[steps >= max(int(one.steps()[0]) for one in trained)]
    return thinned(steps, POINTS)


def _values_at(cell: Sequence[Trained], task: Task, steps: np.ndarray) -> np.ndarray:
    """[N, K] every run's latest evaluation; one that diverged keeps its last number."""
    rows = []
    for one in cell:
        place = np.searchsorted(one.steps(), steps, side="right") - 1
        rows.append(one.values(task.quantity)[place])
    return np.stack(rows)


def thinned(values: np.ndarray, most: int) -> np.ndarray:
    """At most so many of the values, evenly apart, the last always among them."""
    if len(values) <= most:
        return values
    return values[np.unique(np.linspace(0, len(values) - 1, most).round().astype(np.int64))]


def data_value(results: Results, task: Task) -> float | None:
    """The mean return of the data in the task's quantity, where a run saw all episodes."""
    for run in results.runs:
        whole = run.config["options"].get("best_fraction", 1.0) == 1.0
        known = run.config["data"].get("return_mean")
        if run.config["data"]["name"] == task.name and whole and known is not None:
            scored = task.scored(np.array([known], np.float64))
            return None if scored is None else float(scored[0])
    return None


def draw_curves(
    curves: Curves,
    title: str,
    x_label: str,
    y_label: str,
    styles: Mapping[str, Style],
    extra: Sequence[tuple[str, Style]] = (),
    more: Callable[[Figure], None] | None = None,
) -> Figure:
    """Lines with bands, a legend below.

    Args:
        curves: what is drawn.
        title: one line.
        x_label: below.
        y_label: at the left.
        styles: of every method.
        extra: further lines of the legend.
        more: draws what they stand for.
    """
    names = [shortened(name) for name in [*curves, *(name for name, _ in extra)]]
    figure, axes = panel(legend=names)
    for method, (x, number) in curves.items():
        band(axes, x, number.low, number.high, styles[method])
        plot(axes, x, number.value, styles[method])
    if more is not None:
        more(figure)
    add_title(figure, title)
    axes.set_xlabel(safe(x_label))
    axes.set_ylabel(safe(y_label))
    axes.margins(x=0.02)
    in_thousands(axes)
    add_legend(figure, names, [*(styles[m] for m in curves), *(s for _, s in extra)])
    return figure


def curve_csv(curves: Curves, x_name: str) -> Table:
    """One row a method and point."""
    rows = []
    for method, (x, number) in curves.items():
        ends = [None if part is None else part.tolist() for part in number]
        for k, place in enumerate(x.tolist()):
            rows.append((method, place, *(None if part is None else part[k] for part in ends)))
    return table(("method", x_name, "value", "low", "high"), rows)
