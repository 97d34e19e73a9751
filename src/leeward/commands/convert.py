"""`leeward convert SOURCE TARGET`: between formats, smaller, repaired; RL Unplugged to HDF5."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from leeward.commands.parsing import (
    DataOptions,
    flags_of,
    load_arguments,
    parse,
    pick,
)
from leeward.data import registry
from leeward.data.convert import SUFFIXES, write_file
from leeward.data.dataset import Dataset
from leeward.data.load import load_dataset
from leeward.data.reduce import Reduction, reduce_dataset
from leeward.data.repair import repair
from leeward.data.rl_unplugged import Converted, fault_summary
from leeward.data.rl_unplugged_frames import processors
from leeward.data.rl_unplugged_jobs import Job, ShardOptions, convert_shards
from leeward.data.rl_unplugged_shards import default_target, find_shards, is_shard
from leeward.data.table_columns import TableColumns
from leeward.environments import environment_spec
from leeward.errors import ConfigError, DataError, LeewardError
from leeward.progress import View


@dataclass(frozen=True)
class ConvertOptions:
    """Flags of `convert` that are about the files."""

    layout: Literal["rows", "d4rl"] | None = None
    """Of HDF5: rows keeps every observation once, d4rl both observations of every transition, with
    frames stacked. Default: rows for images, else D4RL's columns without copies."""
    fix: bool = False
    """Repair what the data doctor finds, where that is safe; every repair is named."""
    env: str | None = None
    """The environment the data comes from: its action box and step limit."""
    overwrite: bool = False
    """Replace files that are there."""
    processes: int | None = None
    """RL Unplugged: how many processes may work; default one a core."""
    dataset_dir: str | None = None
    """RL Unplugged: folder of converted files where no TARGET is given; default RLU_DATASET_DIR,
    else ~/.rl_unplugged/datasets."""
    cache_dir: str | None = None
    """RL Unplugged: folder of fetched shards; default RLU_CACHE_DIR, else ~/.rl_unplugged/cache."""
    quiet: bool = False
    """No progress view."""


def main(arguments: list[str]) -> int:
    """Converts, and prints what was written."""
    mark = tyro.conf.arg(
        metavar="SOURCE TARGET",
        help="what to read (a name, a path, an address, an id, or one or more shards of RL "
        "Unplugged), and the file or folder to write",
    )
    paths = Annotated[tyro.conf.Positional[tuple[str, ...]], mark]
    parsed = parse(
        [
            ("paths", paths, dataclasses.MISSING),
            *flags_of(ConvertOptions),
            *flags_of(Reduction),
            *flags_of(DataOptions),
        ],
        arguments,
        prog="leeward convert",
        description="Writes a data set in another format, a part of it, or repaired.",
    )
    options, reduction = pick(ConvertOptions, parsed), pick(Reduction, parsed)
    data = pick(DataOptions, parsed)
    if options.processes is not None and options.processes < 1:
        raise ConfigError(f"--processes must be at least 1, got {options.processes}")
    sources, target = _split(parsed.paths)
    if any(is_shard(source) for source in sources):
        return _convert_shards(sources, target, options, reduction, data)
    if target is None or len(sources) != 1:
        raise ConfigError("give one SOURCE and a TARGET: leeward convert SOURCE TARGET")
    _convert_one(sources[0], Path(target).expanduser(), options, reduction, data)
    return 0


def _split(paths: Sequence[str]) -> tuple[list[str], str | None]:
    """(sources, target); one name of RL Unplugged alone has a target of its own."""
    if len(paths) == 1:
        return list(paths), None
    return list(paths[:-1]), (paths[-1] if paths else None)


def _convert_one(
    source: str, target: Path, options: ConvertOptions, reduction: Reduction, data: DataOptions
) -> None:
    if target.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"{target}: TARGET must end in {', '.join(SUFFIXES)}")
    if target.exists() and not options.overwrite:
        raise DataError(f"{target} exists: --overwrite replaces it")
    dataset = _load(source, options, data)
    console = Console()
    for note in dataset.metadata.get("notes", ()):
        console.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)
    if reduction.any:
        dataset = reduce_dataset(dataset, reduction)
    if options.fix:
        dataset = _repaired(dataset, options, data, console)
    write_file(target, dataset, options.layout)
    mean = dataset.return_mean
    console.print(
        f"{target}: {dataset.transitions:,} transitions in {dataset.episodes:,} episodes, mean "
        f"return {'not known' if mean is None else f'{mean:.1f}'}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def _load(source: str, options: ConvertOptions, data: DataOptions) -> Dataset:
    values: dict[str, Any] = load_arguments(data)
    if "columns" in values:
        values["columns"] = TableColumns(**values["columns"])
    if registry.find(source) is not None:
        values.setdefault("d4rl_rows", "all")  # nothing that the file knows is left out
    space = None if options.env is None else environment_spec(options.env).action
    return load_dataset(
        source, env=options.env, action_space=space, strict=not options.fix, **values
    )


def _repaired(
    dataset: Dataset, options: ConvertOptions, data: DataOptions, console: Console
) -> Dataset:
    """The data set after its repairs, each printed.

    Raises:
        DataError: an error remains that would stop training.
    """
    repaired = repair(
        dataset, max_episode_steps=data.max_episode_steps, clip=options.env is not None
    )
    lines = [f"repaired {one.code}: {one.message}" for one in repaired.repairs]
    lines += [f"left {one.code}: {one.message}. {one.remedy}" for one in repaired.left]
    for line in lines or ["nothing to repair"]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    errors = [one for one in repaired.left if one.severity == "error"]
    if errors:
        raise DataError(
            f"{dataset.metadata.get('name', 'the data set')} cannot be repaired safely: "
            f"{errors[0].message}: {errors[0].remedy}"
        )
    return repaired.dataset


def _convert_shards(
    sources: list[str],
    target: str | None,
    options: ConvertOptions,
    reduction: Reduction,
    data: DataOptions,
) -> int:
    _refuse_what_shards_lack(options, reduction, data)
    jobs = _shard_jobs(sources, target, options)
    shard_options = ShardOptions(
        layout=options.layout or "rows",
        transitions=reduction.transitions,
        overwrite=options.overwrite,
        offline=data.offline,
    )
    view = View(None, options.quiet)
    progress = _Progress(view)
    finished: list[Converted] = []
    errors: list[LeewardError] = []
    try:
        for (shard, _), outcome in convert_shards(
            jobs,
            shard_options,
            processes=options.processes or processors(),
            on_fetch=progress.fetched,
            on_progress=progress.read,
        ):
            if isinstance(outcome, LeewardError):
                errors.append(outcome)
                continue
            finished.append(outcome)
            summary = fault_summary(outcome)
            if summary is not None:
                errors.append(DataError(summary))
            state = "was there" if outcome.was_there else "done"
            view.event(f"{shard.name}: {state}, {len(finished)} of {len(jobs)}")
    finally:
        view.close()
    if finished:
        Console().print(_converted_table(finished))
    for error in errors[:-1]:
        print(f"leeward: error: {error}", file=sys.stderr)  # noqa: T201
    if errors:
        raise errors[-1]
    return 0


def _refuse_what_shards_lack(
    options: ConvertOptions, reduction: Reduction, data: DataOptions
) -> None:
    """Raises ConfigError at a flag that does nothing here."""
    given = load_arguments(data).keys() - {"offline"}
    given |= {"fix"} & ({"fix"} if options.fix else set())
    given |= {"env"} if options.env is not None else set()
    for field in dataclasses.fields(Reduction):
        if field.name != "transitions" and getattr(reduction, field.name) != field.default:
            given.add(field.name)
    if given:
        flag = sorted(given)[0].replace("_", "-")
        raise ConfigError(
            f"--{flag} does not apply to RL Unplugged's shards: convert the file that is made of "
            "them once more"
        )
    if reduction.transitions is not None and reduction.transitions < 1:
        raise ConfigError(f"--transitions must be at least 1, got {reduction.transitions}")


def _shard_jobs(sources: list[str], target: str | None, options: ConvertOptions) -> list[Job]:
    """Each shard and its file.

    Raises:
        ConfigError: several shards and one file, or two shards of one name.
    """
    shards = [shard for source in sources for shard in find_shards(source, options.cache_dir)]
    if target is None:
        return [(shard, default_target(shard, options.dataset_dir)) for shard in shards]
    place = Path(target).expanduser()
    if place.suffix.lower() in (".hdf5", ".h5"):
        if len(shards) > 1:
            raise ConfigError(
                f"{target} is one file, and there are {len(shards)} shards: name a folder"
            )
        return [(shards[0], place)]
    if place.suffix:
        raise ConfigError(f"{target}: TARGET must be a folder, or end in .hdf5 or .h5")
    several = len({shard.game for shard in shards}) > 1
    jobs = [
        (shard, place / (shard.game or "" if several else "") / f"{shard.file}.hdf5")
        for shard in shards
    ]
    if len({path for _, path in jobs}) < len(jobs):
        raise ConfigError("two of the shards have the same name: convert them one by one")
    return jobs


class _Progress:
    """Progress of one shard: bytes fetched, then records read."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._phase = ""
        self._begin = 0.0
        self._first = 0

    def fetched(self, have: int, total: int | None) -> None:
        """Bytes so far, and in all."""
        self._enter("fetching (MiB)", have, (total or 0) >> 20)
        self._view.advance(have >> 20, self._rate(have) / 2**20, "MiB")

    def read(self, records: int) -> None:
        """Records so far; a whole shard has about half a million."""
        self._enter("converting", records, 500_000)
        self._view.advance(records, self._rate(records), "records")

    def _enter(self, phase: str, first: int, total: int) -> None:
        if phase != self._phase:
            self._phase, self._begin, self._first = phase, time.monotonic(), first
            self._view.start(phase, 0, total)

    def _rate(self, done: int) -> float:
        return (done - self._first) / max(time.monotonic() - self._begin, 1e-3)


def _converted_table(finished: list[Converted]) -> Table:
    """One row a shard."""
    table = Table(title="converted")
    for name in ("file", "transitions", "chains", "left out"):
        table.add_column(name, justify="left" if name == "file" else "right", overflow="fold")
    for one in sorted(finished, key=lambda converted: str(converted.target)):
        table.add_row(
            str(one.target), f"{one.transitions:,}", f"{one.episodes:,}", f"{len(one.faults):,}"
        )
    return table
