"""`report`: everything that run directories say, as one page that needs nothing else.

It lies beside CSV files of its tables and SVG, PNG and CSV files of its figures.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from leeward import closeups
from leeward.errors import CheckpointError
from leeward.played import read_played
from leeward.published.scores import Rule
from leeward.report import attachments, evidence, origins
from leeward.report.aggregates import aggregate
from leeward.report.blocks import Section
from leeward.report.diagnostics import diagnostic_figures, measurement_table, read_metrics
from leeward.report.figures import Gallery, style
from leeward.report.files import file_name, write_bytes
from leeward.report.held_out import held_out_section
from leeward.report.page import render
from leeward.report.played import played_section
from leeward.report.selection import selection_section
from leeward.report.tables import Table
from leeward.report.values import check_arrays, value_section
from leeward.results import Results, collect, find_runs
from leeward.run import Run, has_numbers

PAGE = "index.html"


def report(
    runs: Sequence[str | Path] | str | Path, out: str | Path = "report", *, protocol: Rule = "last"
) -> Path:
    """Writes a report of runs and returns the page's path.

    Args:
        runs: run directories, or folders that hold some.
        out: a folder; files of the same names are replaced, others are left.
        protocol: which evaluations of a run give its number: "last", "last-10" (the mean of the
            last ten) or "best".

    Raises:
        LeewardError: no run there, a damaged one, numbers that cannot stand side by side, or a
            folder that cannot be written.

    Example:
        >>> leeward.report(["runs/hopper/td3-bc", "runs/hopper/bc"], "report")  # doctest: +SKIP
    """
    paths = [runs] if isinstance(runs, str | Path) else list(runs)
    results = collect(find_runs(paths))
    _check(results)
    # All that can be damaged is read before anything is written.
    metrics = {run.directory: read_metrics(run) for run in results.runs}
    places = [Path(path) for path in paths]
    places += [place for run in results.runs for place in (run.directory.parent, run.directory)]
    shown = {run.directory: _closeup(run) for run in results.runs}
    kept_episodes = {run.directory: read_played(run.directory) for run in results.runs}
    estimates, others = attachments.off_policy(places), attachments.other_files(results.runs)
    folder = Path(out)
    gallery = Gallery(folder / "figures")
    styles = {method: style(index) for index, method in enumerate(results.methods)}
    tables: dict[str, Table] = {}
    found = aggregate(results, protocol)
    drawings = diagnostic_figures(results, metrics, gallery, styles)
    measured = measurement_table(results, metrics)
    sections = [
        evidence.scores_section(results, protocol, tables),
        evidence.aggregate_section(found, results, gallery, styles, tables),
        played_section(results, kept_episodes, tables),
        held_out_section(results, metrics, tables),
        value_section(results, metrics, shown, gallery, tables),
        evidence.learning_section(results, gallery, styles),
        selection_section(results, gallery, styles, tables),
        origins.estimates_section(estimates, tables),
        origins.diagnostics_section(drawings, measured, others, tables),
        origins.data_section(results, tables),
        origins.runs_section(results, tables),
        _videos(results, folder),
        origins.repeat_section(results),
    ]
    for name, table in tables.items():
        write_bytes(folder / "tables" / f"{name}.csv", table.to_csv().encode())
    kept = [section for section in sections if section is not None]
    page = render(_title(results), evidence.verdict(found, results, protocol), results.notes, kept)
    write_bytes(folder / PAGE, page.encode())
    return folder / PAGE


def _check(results: Results) -> None:
    """Raises CheckpointError where there is nothing to report."""
    for run in results.runs:
        if not has_numbers(run.directory):
            raise CheckpointError(
                f"{run.directory} holds no metrics and no evaluations yet, so there is nothing to "
                "report: leave it out, or wait"
            )


def _closeup(run: Run) -> dict[str, np.ndarray] | None:
    """What a run shows of its value network.

    Raises:
        CheckpointError: the file is damaged.
    """
    arrays = closeups.read(run.directory, "value")
    if arrays is not None:
        check_arrays(run.directory / closeups.FOLDER, arrays)
    return arrays


def _title(results: Results) -> str:
    methods, tasks = results.methods, [task.name for task in results.tasks]
    who = ", ".join(methods) if len(methods) <= 3 else f"{len(methods)} methods"
    where = ", ".join(tasks) if len(tasks) <= 2 else f"{len(tasks)} tasks"
    return f"{who} on {where}"


def _videos(results: Results, folder: Path) -> Section | None:
    """Large videos are copied beside the page."""
    found = attachments.videos(results.runs)
    links = {}
    for number, video in enumerate(found):
        if video.address is None:
            target = folder / "videos" / f"{number}-{file_name(video.path.stem)}.mp4"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(video.path, target)
            links[video.path] = f"videos/{target.name}"
    return origins.video_section(found, links)
