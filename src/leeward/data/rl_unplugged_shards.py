"""Names and places of RL Unplugged's Atari shards: `rl-unplugged:Breakout/run_1-00001-of-00100`."""

from __future__ import annotations

import functools
import json
import os
import re
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from leeward.data.download import Progress, fetch, mirrors
from leeward.errors import DataError, did_you_mean

PREFIX = "rl-unplugged:"
SHARDS, RUNS = 100, 5
"""Shards of a run, runs of a game."""
_FILE = re.compile(r"^run_(?P<run>\d+)-(?P<shard>\d{5})-of-(?P<shards>\d{5})$")
_RUN = re.compile(r"^run_(?P<run>\d+)$")
_CACHE, _DATASETS = "~/.rl_unplugged/cache", "~/.rl_unplugged/datasets"
"""Where the published scripts keep shards and converted files."""


class Shard(NamedTuple):
    """One file of transitions."""

    game: str | None
    """As ale-py spells it; None for a file whose place does not tell."""
    file: str
    """run_R-SSSSS-of-00100, or another file's name."""
    path: Path
    """The file, or where it is put when it is fetched."""
    url: str | None
    """None for a file of the user's own."""

    @property
    def name(self) -> str:
        """For messages."""
        return str(self.path) if self.url is None else f"{PREFIX}{self.game}/{self.file}"

    @property
    def actions(self) -> int | None:
        """How many actions the game has, or None."""
        return None if self.game is None else games()[self.game]


@functools.cache
def games() -> dict[str, int]:
    """Every game and how many actions it has."""
    known = _read()
    return {**known["tuning"], **known["testing"]}


def is_shard(source: str) -> bool:
    """Whether a source is a shard's name, or a local file with the name of a shard."""
    return source.startswith(PREFIX) or bool(_FILE.match(Path(source).name))


def find_shards(source: str, cache_dir: str | None = None) -> list[Shard]:
    """The shards that a name means, one or all of a run; or the local file.

    Args:
        source: rl-unplugged:GAME/FILE, rl-unplugged:GAME/run_R for all its shards, or a path.
        cache_dir: where shards are kept; default `RLU_CACHE_DIR`, else ~/.rl_unplugged/cache.

    Raises:
        DataError: an unknown game, run or shard, or no such file.
    """
    if not source.startswith(PREFIX):
        path = Path(source).expanduser()
        if not path.is_file():
            raise DataError(f"no such file: {path}")
        game = path.parent.name if path.parent.name in games() else None
        return [Shard(game, path.name, path, None)]
    game, _, file = source.removeprefix(PREFIX).partition("/")
    if game not in games():
        raise DataError(
            f"{source}: unknown game '{game}'.{did_you_mean(game, games())} RL Unplugged has "
            f"{len(games())}: {', '.join(sorted(games()))}"
        )
    folder = folder_of("RLU_CACHE_DIR", cache_dir, _CACHE) / game
    return [
        Shard(game, name, folder / name, f"{_read()['url']}/{game}/{name}")
        for name in _files(source, file)
    ]


def fetch_shard(
    shard: Shard, *, offline: bool = False, on_progress: Progress | None = None
) -> Path:
    """The shard's file, fetched into the cache if it is not there.

    Raises:
        DataError: it cannot be fetched, or `offline` and it is not there.
    """
    if shard.url is None:
        return shard.path
    return fetch(
        shard.name, mirrors(shard.url), shard.path, offline=offline, on_progress=on_progress
    )


def default_target(shard: Shard, dataset_dir: str | None = None) -> Path:
    """GAME/FILE.hdf5 in `dataset_dir`, `RLU_DATASET_DIR`, or ~/.rl_unplugged/datasets."""
    folder = folder_of("RLU_DATASET_DIR", dataset_dir, _DATASETS)
    return (folder / shard.game if shard.game else folder) / f"{shard.file}.hdf5"


def folder_of(variable: str, given: str | None, default: str) -> Path:
    """The folder that was given, else the environment variable's, else the default."""
    return Path(given or os.environ.get(variable) or default).expanduser()


def _files(source: str, file: str) -> list[str]:
    """The names of files that the part after the game means."""
    whole, one = _RUN.match(file), _FILE.match(file)
    match = whole or one
    if match is None:
        raise DataError(
            f"{source}: '{file}' is no shard: write run_R-SSSSS-of-{SHARDS:05d}, such as "
            f"{PREFIX}Breakout/run_1-00001-of-{SHARDS:05d}, or run_R for all of a run"
        )
    if not 1 <= int(match["run"]) <= RUNS:
        raise DataError(f"{source}: there is no run {match['run']}: runs are 1 to {RUNS}")
    if one is None:
        return [f"{file}-{shard:05d}-of-{SHARDS:05d}" for shard in range(SHARDS)]
    if int(one["shards"]) != SHARDS or int(one["shard"]) >= SHARDS:
        raise DataError(
            f"{source}: there is no shard {one['shard']} of {one['shards']}: shards are 00000 to "
            f"{SHARDS - 1:05d} of {SHARDS:05d}"
        )
    return [file]


@functools.cache
def _read() -> dict[str, Any]:
    file = resources.files("leeward.data").joinpath("registry", "rl_unplugged.json")
    return json.loads(file.read_text("utf-8"))
