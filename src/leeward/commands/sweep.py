"""`leeward sweep [FILE] [flags]` and `leeward sweep --resume DIR`."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console

from leeward.commands.parsing import DataOptions, flags_of, load_arguments, parse, pick
from leeward.errors import ConfigError
from leeward.options import RunOptions

if TYPE_CHECKING:
    from leeward.sweep import Schedule, Sweep
    from leeward.sweep.request import Request

NOT_OF_A_RUN = ("run_dir", "max_time", "quiet")
"""Options of a run that a sweep has itself."""


@dataclass(frozen=True)
class SweepOptions:
    """Flags of `sweep` that say what is trained; a file's keys have the same names."""

    algorithms: tuple[str, ...] = ()
    """Algorithms, each trained on every data set."""
    datasets: tuple[str, ...] = ()
    """Data sets: names, paths or addresses."""
    steps: int | None = None
    """Updates of the last phase; short for --settings steps=N."""
    settings: tuple[str, ...] = ()
    """Settings of one value, NAME=VALUE or ALGORITHM.NAME=VALUE (one of that algorithm alone)."""
    grid: tuple[str, ...] = ()
    """Settings of several values, NAME=VALUE,VALUE: all combinations are trained."""
    random: tuple[str, ...] = ()
    """Settings that are drawn, NAME=LOW..HIGH, NAME=log:LOW..HIGH or NAME=VALUE,VALUE."""
    draws: int = 0
    """How many combinations of --random settings are drawn."""
    draw_seed: int = 0
    """Another one draws other values."""
    preset: str | None = None
    """A named set of settings, such as paper, where every algorithm has it for every data set;
    settings given beside it win."""
    runs_per_job: int = 0
    """Most runs (seeds × float settings) that share a program; 0: all that can."""


@dataclass(frozen=True)
class PlaceOptions:
    """Flags of `sweep` about its directory."""

    sweep_dir: str | None = None
    """Where the sweep is kept; default runs/sweep-TIME. The same command with the same directory
    continues it."""
    print_plan: bool = False
    """Check everything, print all jobs as JSON and train nothing."""


@dataclass(frozen=True)
class ScheduleOptions:
    """Flags of `sweep` and `sweep --resume` that say where jobs run."""

    resume: str | None = None
    """The sweep directory to continue; it goes with the flags of this table alone."""
    ray: str | None = None
    """Run jobs side by side on Ray: local (this machine), or a cluster's address; default in order
    in this process."""
    gpus_per_job: float | None = None
    """GPUs of a job on Ray; a fraction lets several jobs share one. Default 1 where the cluster has
    any, else 0."""
    cpus_per_job: float = 1.0
    """Cores that a job counts for on Ray."""
    retries: int = 3
    """How often a job on Ray is continued after its worker was lost."""
    max_time: str | None = None
    """Stop and save after this long (90s, 30m, 2h); continue with --resume."""
    quiet: bool = False
    """No live table."""


def main(arguments: list[str]) -> int:
    """Runs a sweep or continues one."""
    if any(argument.split("=")[0] == "--resume" for argument in arguments):
        parsed = parse(
            flags_of(ScheduleOptions),
            arguments,
            prog="leeward sweep --resume DIR",
            description="Continues a sweep that was stopped, killed or has failed jobs.",
        )
        from leeward.sweep import resume_sweep

        return _finish(resume_sweep(Path(parsed.resume), _schedule(parsed)), parsed.quiet)
    return _begin(arguments)


def _begin(arguments: list[str]) -> int:
    """A new sweep, or the same one again."""
    parsed = _parsed(arguments, {})
    asked: dict[str, Any] = {}
    if parsed.file:
        from leeward.sweep.file import read_file

        tables = {"options": RunOptions, "data": DataOptions}
        asked = read_file(Path(parsed.file), tables, (*NOT_OF_A_RUN, "seeds"))
        parsed = _parsed(arguments, _defaults(asked))
    from leeward.sweep import planned, run_request
    from leeward.sweep.loading import Loader

    flags = {argument.split("=")[0].lstrip("-").replace("-", "_") for argument in arguments}
    schedule, request = _schedule(parsed), _request(parsed, asked, flags)
    if parsed.print_plan:
        jobs = [dataclasses.asdict(job) for job in planned(request, schedule, Loader())]
        print(json.dumps({"jobs": jobs}, indent=1))  # noqa: T201
        return 0
    return _finish(run_request(request, parsed.sweep_dir, schedule), parsed.quiet)


def _parsed(arguments: list[str], defaults: Mapping[str, Any]) -> Any:
    mark = tyro.conf.arg(help="a TOML file; flags given beside it win", metavar="[FILE]")
    return parse(
        [
            ("file", Annotated[tyro.conf.Positional[str], mark], ""),
            *flags_of(SweepOptions, defaults),
            *flags_of(PlaceOptions),
            *flags_of(ScheduleOptions),
            *flags_of(RunOptions, defaults, without=NOT_OF_A_RUN),
            *flags_of(DataOptions, defaults),
        ],
        arguments,
        prog="leeward sweep",
        description="Trains algorithms × data sets × seeds × settings, in order or on Ray.",
    )


def _defaults(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What a file says, as the defaults of flags; settings are put together later."""
    tables = ("settings", "grid", "random", "options", "data")
    return {
        **{name: value for name, value in asked.items() if name not in tables},
        **asked["options"],
        **asked["data"],
    }


def _request(parsed: Any, asked: Mapping[str, Any], given: Collection[str]) -> Request:
    """What is asked by the file and the flags; a setting of a flag replaces the file's.

    Args:
        parsed: flags, with what the file says as their defaults.
        asked: the file.
        given: names of the flags that were typed: a preset's options give way to these alone.
    """
    from leeward.sweep.request import Request, assignments, distributions

    single = assignments(parsed.settings, "--settings")
    several = next((name for name, values in single.items() if len(values) > 1), None)
    if several is not None:
        raise ConfigError(f"--settings {several} has several values: --grid trains them all")
    flags: dict[str, dict[str, Any]] = {
        "settings": {name: values[0] for name, values in single.items()},
        "grid": dict(assignments(parsed.grid, "--grid")),
        "random": distributions(parsed.random),
    }
    if parsed.steps is not None:
        flags["settings"]["steps"] = parsed.steps
    named = {name for table in flags.values() for name in table}
    tables = {
        key: {n: v for n, v in asked.get(key, {}).items() if n not in named} | own
        for key, own in flags.items()
    }
    typed = {*given, *(flag.removeprefix("no_") for flag in given), *asked.get("options", {})}
    options = {
        f.name: getattr(parsed, f.name)
        for f in dataclasses.fields(RunOptions)
        if f.name in typed and f.name not in (*NOT_OF_A_RUN, "seeds")
    }
    return Request(
        algorithms=parsed.algorithms,
        datasets=parsed.datasets,
        seeds=parsed.seeds,
        **tables,
        draws=parsed.draws,
        draw_seed=parsed.draw_seed,
        preset=parsed.preset,
        options=options,
        data_options=load_arguments(pick(DataOptions, parsed)),
        runs_per_job=parsed.runs_per_job,
        origin=parsed.file,
    )


def _schedule(parsed: Any) -> Schedule:
    from leeward.sweep import Cluster, Schedule

    default = ScheduleOptions()
    given = {
        name: getattr(parsed, name)
        for name in ("gpus_per_job", "cpus_per_job", "retries")
        if getattr(parsed, name) != getattr(default, name)
    }
    if parsed.ray is None and given:
        flag = next(iter(given)).replace("_", "-")
        raise ConfigError(f"--{flag} needs --ray: without it jobs run in order in this process")
    cluster = None
    if parsed.ray is not None:
        cluster = Cluster(parsed.ray, **given)
        import jax

        jax.config.update("jax_platforms", "cpu")  # this process only plans: devices are the jobs'
    return Schedule(cluster, parsed.max_time, parsed.quiet)


def _finish(done: Sweep, quiet: bool) -> int:
    """Says what came of a sweep: 1 where a job failed."""
    if not quiet:
        _show(done)
    for name, message in done.failed.items():
        print(f"leeward: failed: {name}: {message}", file=sys.stderr)  # noqa: T201
    return 1 if done.failed else 0


def _show(done: Sweep) -> None:
    """The table at the end, and what to type next."""
    from leeward.sweep.jobs import read_plan
    from leeward.sweep.tables import final

    console = Console(width=None if Console().is_terminal else 160)
    console.print(final(done.directory, read_plan(done.directory)))
    lines = []
    if done.waiting or done.failed:
        left = len(done.waiting) + len(done.failed)
        jobs = f"{left} of {left + len(done.runs)} jobs"
        lines.append(f"not done: {jobs}; leeward sweep --resume {done.directory} tries again")
    if done.runs:
        lines.append(f"next: leeward report {done.directory} --out report")
    for text in lines:
        console.print(text, soft_wrap=True, highlight=False, markup=False)
