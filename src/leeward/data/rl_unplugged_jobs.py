"""Several shards of RL Unplugged at once, one process each; one alone gets all processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path

from leeward.data.download import Progress
from leeward.data.rl_unplugged import Advance, Converted, convert_shard
from leeward.data.rl_unplugged_frames import ignore_interrupts
from leeward.data.rl_unplugged_rows import Layout
from leeward.data.rl_unplugged_shards import Shard, fetch_shard
from leeward.errors import DataError, LeewardError

Job = tuple[Shard, Path]
"""A shard, and the file to make of it."""
Outcome = Converted | LeewardError


@dataclasses.dataclass(frozen=True)
class ShardOptions:
    """How shards are converted, as `convert_shard` documents."""

    layout: Layout = "rows"
    transitions: int | None = None
    overwrite: bool = False
    offline: bool = False
    """Never use the network."""


class _StoppedError(Exception):
    """The owner of this process was interrupted."""


_stop: Event | None = None  # set in processes that convert; their owner's sign to stop


def convert_shards(
    jobs: Sequence[Job],
    options: ShardOptions,
    *,
    processes: int = 1,
    on_fetch: Progress | None = None,
    on_progress: Advance | None = None,
) -> Iterator[tuple[Job, Outcome]]:
    """Every job with what came of it, as they end. An error of one does not stop the others.

    Interrupted, all leave what they have for the next try.

    Args:
        jobs: shards and files.
        options: the same for all.
        processes: how many may work.
        on_fetch: told of the bytes of a download; of a job alone only.
        on_progress: told of the records read; the same.
    """
    if len(jobs) == 1 or processes == 1:
        for job in jobs:
            yield job, _outcome(job, options, processes, on_fetch, on_progress)
        return
    context = get_context("spawn")
    stop = context.Event()
    pool = ProcessPoolExecutor(min(processes, len(jobs)), context, _prepare, (stop,))
    try:
        running = {pool.submit(_in_process, job, options): job for job in jobs}
        for done in as_completed(running):
            try:
                yield running[done], done.result()
            except BrokenProcessPool:
                yield running[done], _died(running[done])
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


def _outcome(
    job: Job,
    options: ShardOptions,
    processes: int,
    on_fetch: Progress | None,
    on_progress: Advance | None,
) -> Outcome:
    shard, target = job
    try:
        fetch_shard(shard, offline=options.offline, on_progress=on_fetch)
        return convert_shard(
            shard,
            target,
            layout=options.layout,
            transitions=options.transitions,
            overwrite=options.overwrite,
            processes=processes,
            on_progress=on_progress,
        )
    except LeewardError as error:
        return error
    except BrokenProcessPool:  # one that decoded
        return _died(job)


def _died(job: Job) -> DataError:
    return DataError(
        f"{job[0].name}: a process at work on it died, perhaps for want of memory: try again with "
        "fewer --processes; what is done is kept"
    )


def _prepare(stop: Event) -> None:
    """What a process does first."""
    global _stop
    _stop = stop
    ignore_interrupts()


def _in_process(job: Job, options: ShardOptions) -> Outcome:
    def go_on(*_: object) -> None:
        if _stop is not None and _stop.is_set():
            raise _StoppedError

    check: Callable[..., None] = go_on
    return _outcome(job, options, 1, check, check)
