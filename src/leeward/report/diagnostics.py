"""What actors and critics did while they trained: values, entropies, divergences, gradients."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from leeward.errors import CheckpointError
from leeward.report.curves import curve_csv, draw_curves, thinned
from leeward.report.figures import Drawing, Gallery, Style
from leeward.report.files import file_name
from leeward.report.tables import Table, table
from leeward.results import Results
from leeward.run import Run
from leeward.statistics import Estimate, seeds_estimate
from leeward.trained import Task, Trained

POINTS = 50
"""Points of a curve."""
MOST = 36
"""Figures up to which every metric has one (ours: some seconds); else FAMILIES have."""
FAMILIES = {
    "Value": ("critic/q", "critic/q1", "value/v"),
    "Critic's loss": ("critic/loss",),
    "Critic's gradient": ("critic/q1_gradient",),
    "Actor's loss": ("actor/loss",),
    "Entropy": ("actor/entropy",),
    "Temperature": ("actor/alpha", "behavior/alpha"),
    "Divergence from the data's policy": ("actor/divergence", "actor/kl", "actor/distance"),
    "Value estimated from the data": ("ope/value",),
}
"""Title → metrics, of which the first that a method has is drawn."""
_HEAD = re.compile(
    rb'\{"phase": "([^"]*)", "step": (\d+), "run": \d+, (?:[^/]*?"([a-z_]+/[^"]*)": )?'
)
"""(phase, step, first metric): lines of held-out losses and estimates are apart from others."""
_LABELS = ("phase", "step", "run", "seed")


class Series(NamedTuple):
    """A metric of one run. K lines."""

    steps: list[int]
    values: list[float]


Place = tuple[bytes, bytes | None, int]
"""Phase, first metric and step of a line."""
Metrics = dict[tuple[str, str, int], Series]
"""(phase, metric, index of the run) → its lines."""


def read_metrics(run: Run) -> Metrics:
    """A run's metrics at no more than POINTS of the updates of every phase.

    Raises:
        CheckpointError: metrics.jsonl is damaged.
    """
    path = run.directory / "metrics.jsonl"
    if not path.is_file():
        return {}
    lines = path.read_bytes().split(b"\n")[:-1]  # a last line may still be written
    heads = [_HEAD.match(line) for line in lines]
    if not all(heads):
        number = heads.index(None) + 1
        raise CheckpointError(f"{path}: line {number} is not one of metrics (damaged)")
    places = [(head[1], head[3], int(head[2])) for head in heads if head is not None]
    chosen = _chosen(places)
    found: Metrics = {}
    for place, line in zip(places, lines, strict=True):
        if place in chosen:
            try:
                row = json.loads(line)
            except ValueError as error:
                raise CheckpointError(f"{path}: damaged ({error})") from error
            for name, value in row.items():
                if value is None or isinstance(value, str) or name in _LABELS:
                    continue
                series = found.setdefault((row["phase"], name, row["run"]), Series([], []))
                series.steps.append(row["step"])
                series.values.append(value)
    return found


def _chosen(places: Sequence[Place]) -> set[Place]:
    """The places that are read: POINTS updates of every phase and kind of line."""
    steps: dict[tuple[bytes, bytes | None], set[int]] = {}
    for phase, kind, step in places:
        steps.setdefault((phase, kind), set()).add(step)
    return {
        (phase, kind, int(step))
        for (phase, kind), all_steps in steps.items()
        for step in thinned(np.array(sorted(all_steps)), POINTS)
    }


def diagnostic_figures(
    results: Results,
    metrics: Mapping[Path, Metrics],
    gallery: Gallery,
    styles: Mapping[str, Style],
) -> dict[str, list[Drawing]]:
    """Task's name → one figure a metric, a line a method.

    Args:
        results: the runs.
        metrics: a run's directory → its metrics.
        gallery: where figures are drawn.
        styles: of every method.
    """
    names = [name for name, length in _lengths(results, metrics).items() if length > 1]
    panels = {name: (name,) for name in names}
    if len(names) * len(results.tasks) > MOST:
        panels = FAMILIES
    found: dict[str, list[Drawing]] = {}
    for task in results.tasks:
        drawings = []
        for title, candidates in panels.items():
            curves = {}
            for method in results.methods:
                cell = results.cells.get((method, task.name), ())
                curve = _curve(cell, candidates, metrics)
                if curve is not None:
                    curves[method] = curve
            if curves:
                drawings.append(_draw(task, title, curves, gallery, styles))
        if drawings:
            found[task.name] = drawings
    return found


def measurement_table(results: Results, metrics: Mapping[Path, Metrics]) -> Table | None:
    """What was measured once, such as at the end of a phase: one row a method, task and number."""
    once = {name for name, length in _lengths(results, metrics).items() if length == 1}
    values: dict[tuple[str, str, str, str], list[float]] = {}
    for (method, task), cell in results.cells.items():
        for one in cell:
            for (phase, name, index), series in metrics[one.run.directory].items():
                if name in once and index == one.row["run"]:
                    values.setdefault((method, task, phase, name), []).append(series.values[0])
    rows = [
        (*place, len(found), seeds_estimate(np.array(found))) for place, found in values.items()
    ]
    columns = ("Method", "Task", "Phase", "Measure", "Seeds", "Mean over seeds")
    return table(columns, rows, digits=4) if rows else None


def _lengths(results: Results, metrics: Mapping[Path, Metrics]) -> dict[str, int]:
    """Metric → most lines that a run has of it; without rates and swept settings."""
    swept = {name for run in results.runs for row in run.table for name in row}
    lengths: dict[str, int] = {}
    for held in metrics.values():
        for (_, name, _), series in held.items():
            if not name.startswith("time/") and name not in swept:
                lengths[name] = max(lengths.get(name, 0), len(series.steps))
    return lengths


def _curve(
    cell: Sequence[Trained], candidates: Sequence[str], metrics: Mapping[Path, Metrics]
) -> tuple[np.ndarray, Estimate] | None:
    """(updates, the mean over a cell's runs with the lowest and the highest of them)."""
    for name in candidates:
        of_phase: dict[str, list[Series]] = {}
        for one in cell:
            for (phase, metric, index), series in metrics[one.run.directory].items():
                if metric == name and index == one.row["run"]:
                    of_phase.setdefault(phase, []).append(series)
        if of_phase:
            return _average(list(of_phase.values())[-1])  # the last phase that has it
    return None


def _average(series: Sequence[Series]) -> tuple[np.ndarray, Estimate]:
    steps = np.unique(np.concatenate([one.steps for one in series]))
    table = np.full((len(series), len(steps)), np.nan)
    for row, one in zip(table, series, strict=True):
        row[np.searchsorted(steps, one.steps)] = one.values
    low, high = np.nanmin(table, axis=0), np.nanmax(table, axis=0)
    single = len(series) == 1
    mean = np.nanmean(table, axis=0)
    return steps, Estimate(mean, None if single else low, None if single else high)


def _draw(
    task: Task,
    title: str,
    curves: Mapping[str, tuple[np.ndarray, Estimate]],
    gallery: Gallery,
    styles: Mapping[str, Style],
) -> Drawing:
    # Bands of many methods hide one another.
    shown = {
        method: (x, number if len(curves) <= 3 else Estimate(number.value, None, None))
        for method, (x, number) in curves.items()
    }
    return gallery.add(
        file_name("metric", title, task.name),
        title,
        "",
        curve_csv(curves, "updates"),
        lambda: draw_curves(shown, title, "updates", "", styles),
    )
