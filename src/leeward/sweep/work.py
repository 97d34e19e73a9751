"""One job of a sweep, in whatever process: begun, or continued from its last checkpoint."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import filelock

from leeward import checkpoint, devices, policy_folder, run
from leeward.algorithms import get_algorithm
from leeward.backend import prepare_jax
from leeward.config import from_json
from leeward.description import describe
from leeward.errors import CheckpointError, DataError, LeewardError
from leeward.options import RunOptions
from leeward.run import SWEEP
from leeward.sweep.jobs import SweepJob
from leeward.sweep.loading import Loader
from leeward.train import (
    begin,
    check_actions,
    examine,
    find_environment,
    make_job,
    resume,
)

State = Literal["waiting", "running", "lost", "done", "failed"]
"""A job is lost with the cluster that ran it; it waits again where the sweep is continued."""
PATIENCE = 60.0
"""Seconds to wait for a lost process to let go of a run directory (ours)."""
ATTEMPTS = "attempts"


class Outcome(NamedTuple):
    """How a job ended; it waits where its time was over first."""

    state: State
    message: str = ""


@dataclass
class Standing:
    """How far one job is."""

    state: State = "waiting"
    message: str = ""
    attempts: int = 0
    updates: int = 0
    """Updates made in all phases, of each run."""
    value: float | None = None
    """Mean over the runs at the last evaluation."""
    quantity: str = ""
    """Score (0 random, 100 expert) where references are known, else return."""


def execute(
    directory: Path, job: SweepJob, loader: Loader, deadline: float | None = None
) -> Outcome:
    """Trains a job to its end, unless it has come to it already.

    Args:
        directory: the sweep's.
        job: one of its jobs.
        loader: reads the data.
        deadline: when to stop and save, in seconds since 1970.

    Raises:
        KeyboardInterrupt: interrupted; the run was saved.
    """
    place = directory / job.name
    try:
        if not (directory / SWEEP).is_file():
            raise CheckpointError(
                f"{directory} is not there on {socket.gethostname()}: a sweep's directory must lie "
                "on storage that all machines share"
            )
        _await_lock(place)
        found = ended(place)
        if found is not None:
            return found
        left = None if deadline is None else deadline - time.time()
        if left is not None and left <= 0.0:
            return Outcome("waiting")
        _note_attempt(directory, job)
        _train(place, job, loader, None if left is None else f"{left:.0f}s")
        return ended(place) or Outcome("waiting")
    except LeewardError as error:
        return Outcome("failed", str(error))
    except Exception as error:  # whatever it is, the other jobs go on
        first = (str(error).strip().splitlines() or [""])[0]
        kept = _keep_traceback(directory, job)
        return Outcome("failed", f"{place}: {type(error).__name__}: {first} ({kept} has more)")


def ended(place: Path) -> Outcome | None:
    """How the training in a run directory came to its end; None where it has not.

    Raises:
        CheckpointError: its newest checkpoint is damaged.
    """
    if not policy_folder.exists(place / "final"):
        return None
    checkpoints = checkpoint.complete(place / "checkpoints")
    if checkpoints:  # a user may have removed them
        position = checkpoint.manifest(checkpoints[-1])
        if not position["complete"]:  # killed while it ended
            return None
        if position.get("failed"):
            runs = ", ".join(map(str, position["failed"]))
            return Outcome(
                "failed",
                f"{place}: training diverged (runs {runs}; {place / 'log.txt'} has when and why)",
            )
    return Outcome("done")


def _train(place: Path, job: SweepJob, loader: Loader, max_time: str | None) -> None:
    options = dataclasses.replace(
        from_json(RunOptions, job.options), run_dir=str(place), max_time=max_time
    )
    prepare_jax(options)
    location = job.options.get("data_location", "memory")
    dataset = loader.load(
        job.source, options.env, job.data_options, location, strict=not options.ignore_errors
    )
    if dataset.content_hash() != job.data_hash:
        raise DataError(
            f"{job.source} has changed since the sweep was planned: put the old file back, or "
            "start a new sweep"
        )
    if (place / "config.json").exists():
        resume(place, data=dataset, max_time=max_time, quiet=True)
        return
    algorithm = get_algorithm(job.algorithm)
    check_actions(algorithm, dataset)
    report = examine(dataset, options.ignore_errors)
    environment = find_environment(dataset, options.env)
    config = from_json(algorithm.config_type, job.config)
    made = make_job(algorithm, config, None, options, dataset, environment, rows=job.rows())
    devices.place(made)  # refuses devices that are not there, before anything is written
    begin(made, place, describe(made, job.source, job.data_options, report))


def _await_lock(place: Path) -> None:
    """Waits until the process that was lost has let go; `resume` says so where it does not."""
    if not (place / run.LOCK).exists():
        return
    lock = filelock.FileLock(place / run.LOCK)
    with contextlib.suppress(filelock.Timeout):
        lock.acquire(timeout=PATIENCE)
        lock.release()


def attempts_file(directory: Path, job: SweepJob) -> Path:
    """Where every start of a job has its line."""
    return directory / ATTEMPTS / f"{job.name.replace('/', '+')}.jsonl"  # .txt: its tracebacks


def attempts(directory: Path, job: SweepJob) -> list[dict[str, Any]]:
    """Every start of a job: time, machine and process."""
    file = attempts_file(directory, job)
    if not file.is_file():
        return []
    return [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]


def _note_attempt(directory: Path, job: SweepJob) -> None:
    file = attempts_file(directory, job)
    file.parent.mkdir(exist_ok=True)
    line = {"time": time.time(), "machine": socket.gethostname(), "process": os.getpid()}
    with file.open("a") as opened:
        opened.write(json.dumps(line) + "\n")


def _keep_traceback(directory: Path, job: SweepJob) -> Path:
    """Adds the error that is being handled to a file of the job's own."""
    file = attempts_file(directory, job).with_suffix(".txt")
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as opened:
            opened.write(traceback.format_exc())
    return file
