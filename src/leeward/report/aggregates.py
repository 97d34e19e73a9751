"""Numbers over all tasks: tables and figures of IQM, profiles and probabilities of improvement."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from leeward import statistics
from leeward.published.scores import Rule
from leeward.report.figures import (
    CHARACTER,
    INK,
    MUTED,
    Drawing,
    Gallery,
    Style,
    add_legend,
    add_title,
    band,
    panel,
    plot,
    safe,
    shortened,
)
from leeward.report.tables import Table, table
from leeward.results import Results
from leeward.statistics import Estimate, Scores
from leeward.trained import Task

PAIR_RESAMPLES = 2_000
"""Of each pair of methods: 45 pairs of 10 methods are soon many (rliable: 2,000)."""
THRESHOLDS = 101
STATISTICS: dict[str, tuple[str, Callable[[Scores], np.ndarray]]] = {
    "iqm": ("Interquartile mean", statistics.iqm),
    "median": ("Median of tasks", statistics.median),
    "mean": ("Mean", statistics.mean),
    "gap": ("Optimality gap (less is better)", statistics.optimality_gap),
}


@dataclasses.dataclass(frozen=True)
class Aggregates:
    """Every method's scores on the tasks that all of them have."""

    rule: Rule
    tasks: tuple[Task, ...]
    scores: Mapping[str, Scores]
    """Method → one array a task; the method with the highest IQM first."""
    estimates: Mapping[str, Mapping[str, Estimate]]
    """Method → name of STATISTICS → number; without the gap where tasks have no score."""
    pairs: Mapping[tuple[str, str], Estimate]
    """(X, Y) → the probability that a run of X beats one of Y."""

    @property
    def quantity(self) -> str:
        """What is counted: "score" or "return"."""
        return self.tasks[0].quantity


def aggregate(results: Results, rule: Rule) -> Aggregates | None:
    """Aggregates over the tasks that all methods have; None where there is none.

    Several tasks are taken together only where they have normalized scores.
    """
    scores = results.scores(rule)
    tasks = [task for task in results.tasks if all(task.name in own for own in scores.values())]
    if len(tasks) > 1:
        tasks = [task for task in tasks if task.quantity == "score"]
    if not scores or not tasks:
        return None
    arrays = {method: [own[task.name] for task in tasks] for method, own in scores.items()}
    order = sorted(arrays, key=lambda method: -float(statistics.iqm(arrays[method])))
    kept = [name for name in STATISTICS if name != "gap" or tasks[0].quantity == "score"]
    return Aggregates(
        rule=rule,
        tasks=tuple(tasks),
        scores={method: arrays[method] for method in order},
        estimates={
            method: {
                name: statistics.estimate(STATISTICS[name][1], arrays[method]) for name in kept
            }
            for method in order
        },
        pairs=_pairs(order, arrays),
    )


def _pairs(order: Sequence[str], arrays: Mapping[str, Scores]) -> dict[tuple[str, str], Estimate]:
    found: dict[tuple[str, str], Estimate] = {}
    for i, one in enumerate(order):
        for other in order[i + 1 :]:
            chance = statistics.estimate(
                statistics.probability_of_improvement,
                arrays[one],
                arrays[other],
                resamples=PAIR_RESAMPLES,
            )
            found[one, other] = chance
            found[other, one] = reversed_chance(chance)
    return found


def reversed_chance(chance: Estimate) -> Estimate:
    """The probability that the other one wins."""
    ends = [None if end is None else np.asarray(1.0 - end) for end in (chance.high, chance.low)]
    return Estimate(np.asarray(1.0 - chance.value), *ends)


def aggregate_table(found: Aggregates) -> Table:
    """One row a method."""
    names = list(next(iter(found.estimates.values())))
    rows = [
        (method, sum(len(task) for task in found.scores[method]), *own.values())
        for method, own in found.estimates.items()
    ]
    titles = [STATISTICS[name][0] for name in names]
    return table(("Method", "Runs", *titles), rows, title=f"Over {_tasks(found)}")


def improvement_table(found: Aggregates) -> Table:
    """Row beats column: every pair."""
    methods = list(found.scores)
    rows = [
        (one, *(None if one == other else found.pairs[one, other] for other in methods))
        for one in methods
    ]
    return table(
        ("A run of …", *(f"beats {method}" for method in methods)),
        rows,
        title="Probability of improvement",
        digits=2,
    )


def estimates_csv(rows: Sequence[tuple[str, Estimate]], column: str) -> Table:
    """One row an estimate, with its ends in columns of their own."""
    ends = [
        (name, *(None if end is None else float(end) for end in number)) for name, number in rows
    ]
    return table((column, "value", "low", "high"), ends)


def aggregate_figures(
    found: Aggregates, gallery: Gallery, styles: Mapping[str, Style]
) -> list[Drawing]:
    """A dot and an interval for every method, one figure a statistic."""
    drawings = []
    for name in next(iter(found.estimates.values())):
        title = STATISTICS[name][0]
        rows = [(method, own[name]) for method, own in found.estimates.items()]
        drawings.append(
            gallery.add(
                f"aggregate-{name}",
                title,
                "",
                estimates_csv(rows, "method"),
                lambda rows=rows, title=title: _dots(rows, title, found.quantity, styles),
            )
        )
    return drawings


def improvement_figure(
    found: Aggregates, gallery: Gallery, styles: Mapping[str, Style]
) -> list[Drawing]:
    """How probably the first method beats each other one; none where there is one method."""
    first, *others = list(found.scores)
    if not others:
        return []
    rows = [(other, found.pairs[first, other]) for other in others]
    title = f"P({shortened(first, 24)} beats …)"

    def draw() -> Figure:
        figure = _dots(rows, title, "probability", styles)
        axes = figure.axes[0]
        axes.set_xlim(-0.03, 1.03)
        axes.axvline(0.5, color=MUTED, linewidth=1.0, linestyle=(0, (3, 2)))
        return figure

    csv = estimates_csv(rows, "against")
    caption = "At the dashed line both are equally good."
    return [gallery.add("probability-of-improvement", title, caption, csv, draw)]


def _dots(
    rows: Sequence[tuple[str, Estimate]],
    title: str,
    unit: str,
    styles: Mapping[str, Style],
) -> Figure:
    labels = [shortened(name, 24) for name, _ in rows]
    left = 0.2 + CHARACTER * max(map(len, labels))
    figure, axes = panel(left=left, height=0.95 + 0.26 * len(rows))
    for place, (name, number) in enumerate(rows):
        color = styles[name].color
        if number.low is not None and number.high is not None:
            ends = float(number.low), float(number.high)
            axes.plot(ends, (place, place), color=color, linewidth=5.5, alpha=0.45)
        axes.plot(float(number.value), place, "o", color=color, markersize=5.5)
    axes.set_yticks(range(len(rows)), [safe(label) for label in labels])
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.grid(visible=False, axis="y")
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.margins(x=0.08)
    axes.locator_params(axis="x", nbins=5)
    add_title(figure, title)
    axes.set_xlabel(unit)
    return figure


def profile_figure(
    found: Aggregates, gallery: Gallery, styles: Mapping[str, Style]
) -> list[Drawing]:
    """The share of runs above every score."""
    pooled = np.concatenate([statistics.pool(own) for own in found.scores.values()])
    low, high = float(pooled.min()), float(pooled.max())
    if found.quantity == "score":
        low, high = min(low, 0.0), max(high, 100.0)
    thresholds = np.linspace(low, high, THRESHOLDS)
    profiles = {
        method: statistics.estimate(
            lambda scores: statistics.performance_profile(scores, thresholds),
            own,
            resamples=statistics.CURVE_RESAMPLES,
        )
        for method, own in found.scores.items()
    }
    rows = [
        (method, float(thresholds[k]), *_ends(number, k))
        for method, number in profiles.items()
        for k in range(THRESHOLDS)
    ]
    names = [shortened(name) for name in profiles]

    def draw() -> Figure:
        figure, axes = panel(legend=names)
        for method, number in profiles.items():
            band(axes, thresholds, number.low, number.high, styles[method])
            plot(axes, thresholds, number.value, styles[method])
        axes.set_ylim(-0.02, 1.02)
        axes.set_xlim(low, high)
        add_title(figure, "Performance profile")
        axes.set_xlabel(found.quantity)
        axes.set_ylabel("share of runs above")
        add_legend(figure, names, [styles[method] for method in profiles])
        return figure

    csv = table(("method", "threshold", "value", "low", "high"), rows)
    caption = "The share of runs whose number is above the one on the horizontal axis."
    return [gallery.add("performance-profile", "Performance profile", caption, csv, draw)]


def _ends(number: Estimate, k: int) -> tuple[float | None, ...]:
    return tuple(None if part is None else float(part[k]) for part in number)


def _tasks(found: Aggregates) -> str:
    return "1 task" if len(found.tasks) == 1 else f"{len(found.tasks)} tasks"
