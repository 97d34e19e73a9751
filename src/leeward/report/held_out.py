"""How well policies foretell episodes that they were not trained on, and which of them best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from leeward.held_out import MEASURES as COMPARED
from leeward.report import blocks
from leeward.report.blocks import Block, Section
from leeward.report.diagnostics import Metrics
from leeward.report.tables import Table, table
from leeward.results import Results
from leeward.statistics import seeds_estimate
from leeward.trained import Task, Trained

MEASURES = {
    "held_out/log_likelihood": "Log-likelihood",
    "held_out/squared_error": "Squared error",
    "held_out/accuracy": "Accuracy",
    "held_out/divergence": "Divergence from the behavior model",
}
"""Metric → heading."""
EARLIER = ("value", "behavior")
"""Phases before the policy's own."""
INTRO = (
    "Of episodes held out of training, measured at its end; a cell is the mean over seeds, its "
    "bracket a 95 % bootstrap interval over them. The log-likelihood tells how well a policy "
    "foretells their actions, and the divergence how far it strays from the behavior model; "
    "neither tells how well it acts."
)


def held_out_section(
    results: Results, metrics: Mapping[Path, Metrics], tables: dict[str, Table]
) -> Section | None:
    """One row a method and task; None where nothing was measured."""
    found: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    for place, cell in results.cells.items():
        values = {name: _values(cell, metrics, name) for name in MEASURES}
        own = {name: array for name, array in values.items() if len(array)}
        if own:
            found[place] = own
    if not found:
        return None
    names = [name for name in MEASURES if any(name in own for own in found.values())]
    rows = [
        (
            *place,
            max(len(array) for array in own.values()),
            *(seeds_estimate(own[name]) if name in own else None for name in names),
        )
        for place, own in found.items()
    ]
    columns = ("Method", "Task", "Seeds", *(MEASURES[name] for name in names))
    tables["held-out"] = table(columns, rows, digits=4)
    said = [sentence for task in results.tasks for sentence in _sentences(results, task, found)]
    parts: list[Block] = [blocks.text(INTRO), blocks.rows(tables["held-out"])]
    if said:
        parts.append(blocks.notes(said))
    return Section("held-out", "On held-out episodes", tuple(parts))


def _values(cell: Sequence[Trained], metrics: Mapping[Path, Metrics], name: str) -> np.ndarray:
    """[N] the policy's own measure of every run of a cell that has one."""
    values = [
        series.values[-1]
        for one in cell
        for (phase, metric, index), series in metrics[one.run.directory].items()
        if metric == name and index == one.row["run"] and phase not in EARLIER
    ]
    return np.array(values, np.float64)


def _sentences(
    results: Results, task: Task, found: Mapping[tuple[str, str], Mapping[str, np.ndarray]]
) -> list[str]:
    """Which method a task's held-out episodes favor, and whether they are the same ones.

    Compared is the first of COMPARED that all methods have: a deterministic policy has no
    likelihood, but an error as the others do.
    """
    here = {method: own for (method, place), own in found.items() if place == task.name}
    shared = [n for n in COMPARED if all(f"held_out/{n}" in own for own in here.values())]
    if len(here) < 2 or not shared:
        return []
    fractions = {
        float(one.run.config["config"]["validation_fraction"])
        for method in here
        for one in results.cells[method, task.name]
    }
    if len(fractions) > 1:
        shares = " and ".join(f"{fraction:g}" for fraction in sorted(fractions))
        return [
            f"On {task.name} these methods held out different episodes (--validation-fraction "
            f"{shares}), so their numbers do not compare."
        ]
    measure = shared[0]
    means = {method: float(own[f"held_out/{measure}"].mean()) for method, own in here.items()}
    first, second = sorted(means, key=lambda method: -COMPARED[measure] * means[method])[:2]
    return [
        f"On {task.name} held-out episodes favor {first}: "
        f"{MEASURES[f'held_out/{measure}'].lower()} {means[first]:.4g} against "
        f"{means[second]:.4g} of {second}."
    ]
