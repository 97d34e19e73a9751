"""`sweep`: algorithms × data sets × seeds × settings, here in order or on a Ray cluster.

What can share a program is one job with one run directory; sweep.json holds all jobs, and what
the run directories say decides which of them are done.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leeward import run
from leeward.backend import prepare_jax
from leeward.config import from_json
from leeward.errors import CheckpointError
from leeward.options import RunOptions, seconds
from leeward.run import SWEEP, Run
from leeward.sweep.board import Board
from leeward.sweep.cluster import Cluster, Session, check_cluster, connected, run_on_cluster
from leeward.sweep.jobs import SweepJob, read_plan, same_plan, write_plan
from leeward.sweep.loading import Loader
from leeward.sweep.plan import make_plan
from leeward.sweep.request import Request, setting_name
from leeward.sweep.work import execute

FLAG = "--sweep-dir"


@dataclass(frozen=True)
class Sweep:
    """What a sweep left in its directory."""

    directory: Path
    runs: tuple[Run, ...]
    """The runs of all jobs that came to their end."""
    failed: Mapping[str, str]
    """Job → why it failed."""
    waiting: tuple[str, ...]
    """Jobs that are not finished, since the time was over."""


@dataclass(frozen=True)
class Schedule:
    """How the jobs of a sweep are run."""

    cluster: Cluster | None = None
    """None: in order, in this process."""
    max_time: str | None = None
    """Stop and save after this long."""
    quiet: bool = False


def sweep(
    algorithms: str | Sequence[str],
    datasets: str | Path | Sequence[str | Path],
    *,
    seeds: Sequence[int] = (0,),
    settings: Mapping[str, Any] | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    random: Mapping[str, str | Sequence[Any]] | None = None,
    draws: int = 0,
    draw_seed: int = 0,
    preset: str | None = None,
    runs_per_job: int = 0,
    sweep_dir: str | Path | None = None,
    cluster: Cluster | None = None,
    max_time: str | None = None,
    quiet: bool = False,
    data_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Sweep:
    """Trains every algorithm on every data set with every seed and combination of settings.

    Seeds and float settings that differ train side by side in one program; the rest are jobs of
    their own. Called again with the same arguments and `sweep_dir`, it continues where it was
    stopped. A setting is a field of the algorithm's `Config` or of `RunOptions`; "NAME" means that
    of every algorithm, "ALGORITHM.NAME" that of one.

    Args:
        algorithms: names.
        datasets: names, paths or addresses.
        seeds: one run a seed.
        settings: settings of one value.
        grid: settings of several values, all combinations of which are trained.
        random: settings that are drawn: "LOW..HIGH", "log:LOW..HIGH" or a list of values.
        draws: how many combinations of those.
        draw_seed: another one draws other values.
        preset: a named set of settings, as `train` has it.
        runs_per_job: most runs that share a program; 0: all that can.
        sweep_dir: where it is kept; default runs/sweep-TIME.
        cluster: a Ray cluster to run the jobs on; default in order in this process.
        max_time: stop and save after this long.
        quiet: no live table and no lines.
        data_options: arguments of `load_dataset` that JSON can hold, for all data sets.
        options: fields of `RunOptions`.

    Returns:
        What is in the directory; jobs that failed are named, the others went on.

    Raises:
        LeewardError: bad input; nothing was written.
        KeyboardInterrupt: interrupted; the sweep was saved and can be resumed.

    Example:
        >>> done = leeward.sweep(["bc", "iql"], "pendulum.hdf5", seeds=range(5))  # doctest: +SKIP
    """
    request = Request(
        algorithms=[algorithms] if isinstance(algorithms, str) else list(algorithms),
        datasets=[str(d) for d in ([datasets] if isinstance(datasets, str | Path) else datasets)],
        seeds=[int(seed) for seed in seeds],
        settings=_named(settings),
        grid=_named(grid),
        random=_named(random),
        draws=draws,
        draw_seed=draw_seed,
        preset=preset,
        options=options,
        data_options=data_options or {},
        runs_per_job=runs_per_job,
    )
    return run_request(request, sweep_dir, Schedule(cluster, max_time, quiet))


def _named(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    return {setting_name(name): value for name, value in (settings or {}).items()}


def run_request(request: Request, sweep_dir: str | Path | None, schedule: Schedule) -> Sweep:
    """Plans what was asked and runs it, or continues it where the directory holds the same.

    Raises:
        LeewardError: bad input, or a directory that holds something else; nothing was written.
    """
    check_schedule(schedule)
    directory = Path(sweep_dir) if sweep_dir is not None else _default_directory()
    loader = Loader()
    jobs = planned(request, schedule, loader)
    with _session(schedule) as session, run.locked(directory, FLAG):
        _claim(directory, jobs)
        return _run(directory, jobs, schedule, session, loader)


def planned(request: Request, schedule: Schedule, loader: Loader) -> list[SweepJob]:
    """All jobs, checked; those that run in this process on its devices too.

    Raises:
        LeewardError: bad input.
    """
    here = schedule.cluster is None
    if here:
        prepare_jax(RunOptions(device=request.options.get("device")))
    return make_plan(request, loader, here=here)


def resume_sweep(directory: Path, schedule: Schedule) -> Sweep:
    """Continues the sweep in a directory.

    Raises:
        LeewardError: there is none, or another process runs it.
    """
    check_schedule(schedule)
    read_plan(directory)  # before a lock is left in a folder that is no sweep
    with _session(schedule) as session, run.locked(directory, FLAG):
        jobs = read_plan(directory)
        if schedule.cluster is None and jobs:
            prepare_jax(from_json(RunOptions, jobs[0].options))
        return _run(directory, jobs, schedule, session, Loader())


def _session(schedule: Schedule) -> contextlib.AbstractContextManager[Session | None]:
    """The cluster, reached before anything is written."""
    return contextlib.nullcontext() if schedule.cluster is None else connected(schedule.cluster)


def check_schedule(schedule: Schedule) -> None:
    """Raises LeewardError for what no schedule can be."""
    if schedule.max_time is not None:
        seconds(schedule.max_time)
    if schedule.cluster is not None:
        check_cluster(schedule.cluster)


def _claim(directory: Path, jobs: Sequence[SweepJob]) -> None:
    """Writes the plan into an empty directory, or finds the same plan there.

    Raises:
        CheckpointError: the directory holds another sweep, or other files.
    """
    if (directory / SWEEP).is_file():
        if not same_plan(read_plan(directory), jobs):
            raise CheckpointError(
                f"{directory} holds another sweep: continue that with leeward sweep --resume "
                f"{directory}, or choose another {FLAG}"
            )
        return
    others = [
        p.name for p in directory.iterdir() if not p.name.startswith((run.LOCK, f".{SWEEP}-"))
    ]
    if others:
        raise CheckpointError(
            f"{directory} is not empty (it has {others[0]}): choose another {FLAG}"
        )
    write_plan(directory, jobs)


def _run(
    directory: Path,
    jobs: Sequence[SweepJob],
    schedule: Schedule,
    session: Session | None,
    loader: Loader,
) -> Sweep:
    """Runs all jobs that have not come to their end."""
    limit = schedule.max_time
    deadline = None if limit is None else time.time() + seconds(limit)
    board = Board(directory, jobs, schedule.quiet)
    try:
        with board.shown():
            if session is not None:
                run_on_cluster(directory, board, session, deadline)
            else:
                for job in board.open_jobs():
                    board.begin(job)
                    board.end(job, execute(directory, job, loader, deadline))
    except BaseException as error:
        board.interrupt(told=isinstance(error, KeyboardInterrupt))
        raise
    return Sweep(
        directory,
        tuple(Run(directory / n) for n, s in board.standings.items() if s.state == "done"),
        {n: s.message for n, s in board.standings.items() if s.state == "failed"},
        tuple(n for n, s in board.standings.items() if s.state == "waiting"),
    )


def _default_directory() -> Path:
    """runs/sweep-TIME, with a number behind it where that exists already."""
    base = Path("runs") / f"sweep-{dt.datetime.now().strftime('%Y%m%d-%H%M%S')}"
    directory, number = base, 2
    while directory.exists():
        directory, number = base.with_name(f"{base.name}-{number}"), number + 1
    return directory
