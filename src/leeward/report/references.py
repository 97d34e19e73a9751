"""Published numbers beside ours: the row, its protocol, and whether the two can be compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from leeward.data import registry
from leeward.errors import ConfigError
from leeward.judgement import decide, seed_interval, values_by_rule
from leeward.published import scores
from leeward.published.scores import RULES, Row
from leeward.report.tables import Table, table
from leeward.results import Results
from leeward.run import Run
from leeward.statistics import Estimate
from leeward.trained import Task, Trained

COLUMNS = ("Method", "Task", "Ours", "Published", "± std", "Rule", "Verdict", "Source", "Row")


def reference_table(results: Results) -> Table | None:
    """One row for every published number of a method and data set that were run."""
    rows = [
        line
        for task in results.tasks
        for method in results.methods
        if (cell := results.evaluated(method, task))
        for line in _lines(method, task, cell)
    ]
    return table(COLUMNS, rows) if rows else None


def _lines(method: str, task: Task, cell: Sequence[Trained]) -> Iterator[tuple[object, ...]]:
    name = registry.normalize(task.name)
    for row in scores.rows().values():
        if row.dataset != name or row.algorithm != cell[0].run.algorithm:
            continue
        values = _values(row, task, cell)
        reasons = list(dict.fromkeys(r for run in _runs(cell) for r in _reasons(row, run, cell)))
        if not values:
            reasons.append(f"our runs have no {row.quantity}")
        interval = seed_interval(values) or (None, None)
        ours = None
        if values:
            ends = [None if end is None else np.asarray(end) for end in interval]
            ours = Estimate(np.asarray(np.mean(values)), *ends)
        yield (
            method,
            task.name,
            ours,
            row.mean,
            row.std,
            RULES[row.rule],
            decide(row, values, reasons).text,
            row.source.partition(";")[0],
            row.name,
        )


def _values(row: Row, task: Task, cell: Sequence[Trained]) -> list[float]:
    """Ours by the row's own rule, one a seed."""
    if row.quantity == "score" and task.quantity != "score":
        return []
    return [
        values_by_rule(one.evaluations, [one.row["run"]], f"{row.quantity}_mean", row.rule)[0]
        for one in cell
    ]


def _runs(cell: Sequence[Trained]) -> list[Run]:
    return list({one.run.directory: one.run for one in cell}.values())


def _reasons(row: Row, run: Run, cell: Sequence[Trained]) -> list[str]:
    """Why a run's number and the row's cannot be compared."""
    from leeward.reproduce import make_plan, mismatches  # imports the engine

    try:
        plan = make_plan(row)
    except ConfigError:
        return ["its settings were not published"]
    updates = max(int(one.steps()[-1]) for one in cell if one.run is run)
    try:
        return mismatches(plan, run, updates)
    except KeyError as error:
        return [f"the run was made by another version of leeward (it has no setting {error})"]
