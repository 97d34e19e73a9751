"""What a sweep shows: the live table, a line when a job ends, and the table at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from rich.markup import escape
from rich.table import Table

from leeward.run import Run
from leeward.sweep.jobs import SweepJob
from leeward.sweep.work import Standing

MOST_ROWS = 25
"""Of the live table, which must fit a screen."""
_ORDER = ("running", "lost", "failed", "waiting", "done")


def live(jobs: Sequence[SweepJob], standings: Mapping[str, Standing]) -> Table:
    """Jobs with state, progress and score; running ones first, as many as fit."""
    states = [standings[job.name].state for job in jobs]
    counts = ", ".join(f"{states.count(s)} {s}" for s in _ORDER if s in states)
    table = Table(title=f"{len(jobs)} jobs: {counts}")
    table.add_column("job")
    for name in ("runs", "state", "updates", "last", "attempts"):
        table.add_column(name, justify="right")
    ranked = sorted(jobs, key=lambda job: _ORDER.index(standings[job.name].state))
    for job in ranked[:MOST_ROWS]:
        standing = standings[job.name]
        table.add_row(
            escape(job.name),
            str(len(job.runs)),
            standing.state,
            f"{standing.updates:,} / {job.updates:,}",
            value(standing),
            str(standing.attempts or ""),
        )
    if len(ranked) > MOST_ROWS:
        table.caption = f"and {len(ranked) - MOST_ROWS} more"
    return table


def value(standing: Standing) -> str:
    """The last evaluation's mean and what it is; nothing where there was none."""
    return "" if standing.value is None else f"{standing.quantity} {standing.value:.1f}"


def line(job: SweepJob, standing: Standing) -> str:
    """What is said when a job ends."""
    words = [f"{job.name}: {standing.state} after {standing.updates:,} updates", value(standing)]
    if standing.message:
        words.append(standing.message)
    return "   ".join(word for word in words if word)


def final(directory: Path, jobs: Sequence[SweepJob]) -> Table:
    """One row for every job and combination of settings: its mean over seeds, last and best."""
    table = Table(title=f"{directory}: mean over seeds")
    for name in ("job", "settings"):
        table.add_column(name)
    for name in ("seeds", "last", "best"):
        table.add_column(name, justify="right")
    for job in jobs:
        if not (directory / job.name / "config.json").is_file():
            continue
        run = Run(directory / job.name)
        groups: dict[str, list[int]] = {}
        for row in run.table:
            told = " ".join(f"{n}={v:g}" for n, v in row.items() if n not in ("run", "seed"))
            groups.setdefault(told, []).append(int(row["run"]))
        for told, runs in groups.items():
            shown = [_mean(run, runs, protocol) for protocol in ("last", "best")]
            table.add_row(escape(job.name), told, str(len(runs)), *shown)
    return table


def _mean(run: Run, runs: Sequence[int], protocol: str) -> str:
    """Mean and standard deviation over some runs of what they were evaluated at."""
    rows = run.evaluations()
    scored = bool(rows) and all(row["score_mean"] is not None for row in rows)
    name = "score_mean" if scored else "return_mean"
    found = [[row[name] for row in rows if row["run"] == index] for index in runs]
    numbers = [max(own) if protocol == "best" else own[-1] for own in found if own]
    if not numbers:
        return "–"
    spread = f" ± {np.std(numbers):.1f}" if len(numbers) > 1 else ""
    return f"{'score' if scored else 'return'} {np.mean(numbers):.1f}{spread}"
