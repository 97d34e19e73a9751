"""What the policy chosen by trying is worth: a curve a task, a table of tasks and their mean."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from leeward.online_selection import (
    EPISODES,
    POLICIES,
    TRIES,
    Selection,
    mean_worth,
    online_selection,
)
from leeward.report import blocks
from leeward.report.blocks import Section
from leeward.report.curves import curve_csv, draw_curves
from leeward.report.figures import Drawing, Gallery, Style
from leeward.report.files import file_name
from leeward.report.origins import SHOWN_ROWS
from leeward.report.tables import Table, table
from leeward.results import Results
from leeward.statistics import Estimate
from leeward.trained import Task

CAPTION = (
    "Offline training leaves several policies, and one is used. A bandit (UCB) tries them, an "
    f"episode at a time, among up to {POLICIES} policies drawn anew in each of 1,000 trials. The "
    "line is the true mean of the policy that looks best so far; 95 % of the trials lie in the "
    "band. Left: what a method gives a user who cannot try; right: its best policy."
)
PROTOCOL = "Protocol: arXiv 2504.11453, with the episodes of every run's last evaluation."
COLUMNS = (
    *("Task", "Quantity", "Method"),
    *(f"{tries} episode{'' if tries == 1 else 's'}" for tries in TRIES),
)
Selections = Mapping[tuple[str, str], Selection]
"""(method, task's name) → the worth of its chosen policy; only where there are two or more."""


def selection_section(
    results: Results, gallery: Gallery, styles: Mapping[str, Style], tables: dict[str, Table]
) -> Section | None:
    """Curves of every task, and the worth after a few numbers of episodes; None without choice."""
    found = selections(results)
    if not found:
        return None
    own, means = _task_rows(results, found), _mean_rows(results, found)
    tables["online-selection"] = table(COLUMNS, [*own, *means])
    parts = [blocks.text(CAPTION), blocks.text(PROTOCOL)]
    if means:
        parts.append(blocks.rows(table(COLUMNS, means)))
    fold = f"Every task ({len(own)})" if len(own) > SHOWN_ROWS else ""
    parts.append(blocks.rows(table(COLUMNS, own), fold))
    parts.append(blocks.figures(_figures(results, found, gallery, styles)))
    return Section("selection", "Choosing a policy by trying", tuple(parts))


def selections(results: Results) -> Selections:
    """What choosing costs, of every cell with two policies or more whose episodes are known."""
    found = {}
    for task in results.tasks:
        for method in results.methods:
            scored = [task.scored(one.last_returns()) for one in results.evaluated(method, task)]
            policies = [values for values in scored if values is not None]
            if len(policies) > 1:
                found[method, task.name] = online_selection(policies)
    return found


def _task_rows(results: Results, found: Selections) -> list[tuple[object, ...]]:
    """One row a task and method."""
    return [
        (task.name, task.quantity, method, *_worth(found[method, task.name].mean))
        for task in results.tasks
        for method in results.methods
        if (method, task.name) in found
    ]


def _mean_rows(results: Results, found: Selections) -> list[tuple[object, ...]]:
    """Every method's mean over the tasks that all of them have; none where these are not two."""
    methods = [method for method in results.methods if any(one == method for one, _ in found)]
    shared = [
        task
        for task in results.tasks
        if all((method, task.name) in found for method in methods) and task.quantity == "score"
    ]
    if len(shared) < 2:
        return []
    return [
        (
            f"mean of {len(shared)} tasks",
            "score",
            method,
            *_worth(mean_worth([found[method, task.name] for task in shared])),
        )
        for method in methods
    ]


def _worth(mean: np.ndarray) -> list[float]:
    return [float(mean[tries - 1]) for tries in TRIES]


def _figures(
    results: Results, found: Selections, gallery: Gallery, styles: Mapping[str, Style]
) -> list[Drawing]:
    drawings = []
    for task in results.tasks:
        curves = {
            method: (
                np.arange(1, EPISODES + 1),
                Estimate(*found[method, task.name]),
            )
            for method in results.methods
            if (method, task.name) in found
        }
        if curves:
            drawings.append(_figure(task, curves, gallery, styles))
    return drawings


def _figure(
    task: Task,
    curves: Mapping[str, tuple[np.ndarray, Estimate]],
    gallery: Gallery,
    styles: Mapping[str, Style],
) -> Drawing:
    return gallery.add(
        file_name("online-selection", task.name),
        task.name,
        "",
        curve_csv(curves, "episodes"),
        lambda: draw_curves(curves, task.name, "episodes spent on choosing", task.quantity, styles),
    )
