"""Episodes played after training, from other starts and under disturbances; BC beside the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from leeward import statistics
from leeward.report import blocks
from leeward.report.blocks import Section
from leeward.report.evidence import CLONING
from leeward.report.tables import Table, table
from leeward.results import Results
from leeward.statistics import seeds_estimate

INTRO = (
    "Kept by leeward evaluate --keep: episodes from starts of their own, with noise on the first "
    "state and on actions where it says so. A cell is the mean over seeds, brackets are 95 % "
    "bootstrap intervals over them."
)


class Condition(NamedTuple):
    """How episodes were played."""

    task: str
    environment: str
    start_noise: float
    action_noise: float
    checkpoint: str
    episodes: int


def played_section(
    results: Results,
    played: Mapping[Path, Sequence[Mapping[str, Any]]],
    tables: dict[str, Table],
) -> Section | None:
    """One row a method and condition; None where nothing was kept.

    Args:
        results: the runs.
        played: a run's directory → the evaluations that it keeps.
        tables: gets the table.
    """
    found = _by_condition(results, played)
    if not found:
        return None
    rows: list[tuple[Any, ...]] = []
    for condition in sorted(found):
        methods = found[condition]
        scored = all(row["score_mean"] is not None for own in methods.values() for row in own)
        values = {method: _numbers(own, scored) for method, own in methods.items()}
        cloned = _cloning(results, condition.task, methods)
        for method, own in values.items():
            chance = None
            if cloned is not None and method != cloned:
                improves = statistics.probability_of_improvement
                chance = statistics.estimate(improves, [own], [values[cloned]])
            rows.append(
                (
                    method,
                    condition.task,
                    f"{condition.start_noise:g}",
                    f"{condition.action_noise:g}",
                    condition.checkpoint,
                    condition.episodes,
                    len(own),
                    "score" if scored else "return",
                    seeds_estimate(own),
                    chance,
                )
            )
    columns = (
        "Method",
        "Task",
        "Start noise",
        "Action noise",
        "Policy",
        "Episodes",
        "Seeds",
        "Quantity",
        "Mean",
        "Beats cloning with probability",
    )
    tables["played"] = table(columns, rows, digits=2)
    return Section(
        "played",
        "Played after training",
        (blocks.text(INTRO), blocks.rows(tables["played"])),
    )


def _by_condition(
    results: Results, played: Mapping[Path, Sequence[Mapping[str, Any]]]
) -> dict[Condition, dict[str, list[Mapping[str, Any]]]]:
    """Condition → method → the rows of its seeds."""
    found: dict[Condition, dict[str, list[Mapping[str, Any]]]] = {}
    for (method, task), cell in results.cells.items():
        for one in cell:
            for evaluation in played[one.run.directory]:
                condition = Condition(
                    task,
                    evaluation["environment"],
                    evaluation["start_noise"],
                    evaluation["action_noise"],
                    str(evaluation["checkpoint"]),
                    evaluation["episodes"],
                )
                own = [row for row in evaluation["runs"] if row["run"] == one.row["run"]]
                found.setdefault(condition, {}).setdefault(method, []).extend(own)
    return found


def _numbers(rows: Sequence[Mapping[str, Any]], scored: bool) -> np.ndarray:
    """[N] every seed's mean score or return."""
    return np.array(
        [row["score_mean"] if scored else np.mean(row["returns"]) for row in rows], np.float64
    )


def _cloning(results: Results, task: str, methods: Mapping[str, Any]) -> str | None:
    """The method that is plain cloning: BC, else FMR without its divergence."""
    for method in methods:
        if results.cells[method, task][0].run.algorithm in CLONING:
            return method
    for method in methods:
        one = results.cells[method, task][0]
        weight = one.row.get("fmr_weight", one.run.config["config"].get("fmr_weight"))
        if one.run.algorithm == "fmr" and weight == 0.0:
            return method
    return None
