"""`Board`: how far every job of a sweep is, on the screen and in state.json."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from leeward.errors import CheckpointError
from leeward.run import write_json
from leeward.sweep import tables
from leeward.sweep.jobs import SweepJob
from leeward.sweep.work import Outcome, Standing, attempts, ended

STATE = "state.json"
TAILS = {"metrics.jsonl": 1 << 14, "evaluations.jsonl": 1 << 18}
"""Bytes at the end of each file in which its last lines are looked for."""


class Board:
    """The states of all jobs. What run directories say comes first; it writes state.json."""

    def __init__(self, directory: Path, jobs: Sequence[SweepJob], quiet: bool) -> None:
        self._directory, self._jobs, self._quiet = directory, jobs, quiet
        self._console = Console(stderr=True)
        self._kept = _read_state(directory / STATE)
        self.standings = {job.name: Standing() for job in jobs}
        for job in jobs:
            self._settle(job)

    def open_jobs(self) -> list[SweepJob]:
        """Jobs that have not come to their end."""
        return [job for job in self._jobs if self.standings[job.name].state == "waiting"]

    def begin(self, job: SweepJob) -> None:
        """A job runs from now on."""
        standing = self.standings[job.name]
        standing.state, standing.message = "running", ""
        self._write()

    def notice(self, jobs: Sequence[SweepJob]) -> None:
        """Finds out which of the jobs that were handed out have begun."""
        for job in jobs:
            standing = self.standings[job.name]
            if standing.state == "waiting" and (
                len(attempts(self._directory, job)) > standing.attempts
            ):
                self.begin(job)

    def end(self, job: SweepJob, outcome: Outcome) -> None:
        """A job came to an end, or its time did."""
        standing = self.standings[job.name]
        standing.state, standing.message = outcome
        self.refresh([job])
        self._write()
        self._say(tables.line(job, standing))

    def refresh(self, jobs: Sequence[SweepJob] | None = None) -> None:
        """Reads anew how far the running jobs are, or those given."""
        for job in jobs or [j for j in self._jobs if self.standings[j.name].state == "running"]:
            standing, place = self.standings[job.name], self._directory / job.name
            standing.attempts = len(attempts(self._directory, job))
            rows, evaluations = (last_lines(place / name) for name in TAILS)
            if rows:
                standing.updates = job.done(str(rows[-1]["phase"]), int(rows[-1]["step"]))
            standing.value, standing.quantity = _score(evaluations)

    def lose(self) -> None:
        """The jobs that ran are lost with the cluster that ran them."""
        for standing in self.standings.values():
            if standing.state == "running":
                standing.state, standing.message = "lost", "its cluster was lost"
        self._write()

    def interrupt(self, told: bool) -> None:
        """What ran waits again; where it is `told`, so is how to continue."""
        for standing in self.standings.values():
            if standing.state == "running":
                standing.state = "waiting"
        self._write()
        if told:
            self._say(f"interrupted: continue with leeward sweep --resume {self._directory}")

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Shows the live table while it is open, on a terminal."""
        if self._quiet or not self._console.is_terminal:
            yield
            return
        with Live(
            get_renderable=self._table, console=self._console, refresh_per_second=1, transient=True
        ):
            yield

    def _table(self) -> Table:
        self.refresh()
        return tables.live(self._jobs, self.standings)

    def _settle(self, job: SweepJob) -> None:
        """What is known of a job before anything starts."""
        standing, kept = self.standings[job.name], self._kept.get(job.name, {})
        self.refresh([job])
        try:
            outcome = ended(self._directory / job.name)
        except CheckpointError:  # trying it again says what is damaged
            outcome = None
        if outcome is not None:
            standing.state = outcome.state
            standing.message = str(kept.get("message") or outcome.message)

    def _say(self, text: str) -> None:
        if not self._quiet:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _write(self) -> None:
        jobs = {name: dataclasses.asdict(standing) for name, standing in self.standings.items()}
        write_json(self._directory / STATE, {"time": time.time(), "jobs": jobs})


def last_lines(path: Path) -> list[dict[str, Any]]:
    """The last complete lines of a run's file that may be growing; none where there is no file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            tail = TAILS[path.name]
            file.seek(max(0, size - tail))
            text = file.read()
    except FileNotFoundError:
        return []
    lines = text.split(b"\n")[:-1]
    rows = []
    for line in lines if size <= tail else lines[1:]:
        with contextlib.suppress(ValueError):
            rows.append(json.loads(line))
    return rows


def _score(rows: Sequence[Mapping[str, Any]]) -> tuple[float | None, str]:
    """Mean over the runs of the last evaluation, and what it is."""
    last = [row for row in rows if row["step"] == rows[-1]["step"]]
    for name, quantity in (("score_mean", "score"), ("return_mean", "return")):
        values = [row[name] for row in last]
        if values and all(value is not None for value in values):
            return sum(values) / len(values), quantity
    return None, ""


def _read_state(path: Path) -> dict[str, Any]:
    """What an earlier process wrote; only messages are taken from it, so damage costs little."""
    try:
        held = json.loads(path.read_text())
        return dict(held["jobs"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}
