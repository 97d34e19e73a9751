"""Published settings: which an algorithm had on a data set, and where that is written.

The facts lie in `settings.json`. An entry belongs to one algorithm, one preset and the data sets
that its patterns fit; the first that fits counts.
"""

from __future__ import annotations

import fnmatch
import functools
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from leeward.data import registry
from leeward.data.dataset import Dataset
from leeward.errors import ConfigError

PAPER = "paper"
"""The preset of the paper that introduced an algorithm; where that has none for a data set, the
published configuration of CORL."""
FALLBACK = {PAPER: "corl"}
"""The preset that is asked where the first has nothing for a data set."""


class Settings(NamedTuple):
    """The settings of an algorithm on some data sets."""

    algorithm: str
    preset: str
    datasets: tuple[str, ...]
    """Patterns of data sets' names, such as hopper-*-v2."""
    source: str
    """Paper, repository, file and commit."""
    config: Mapping[str, Any] | None
    """Fields of the algorithm's `Config`; None where what is published does not say."""
    options: Mapping[str, Any]
    """Fields of `RunOptions`."""
    differs: tuple[str, ...]
    """What the source does that these settings cannot say."""
    why: str
    """Why `config` is None."""


@functools.cache
def entries() -> tuple[Settings, ...]:
    """All of them, in the file's order."""
    text = resources.files("leeward.published").joinpath("settings.json").read_text("utf-8")
    held = json.loads(text)
    return tuple(
        Settings(
            algorithm=entry["algorithm"],
            preset=entry["preset"],
            datasets=tuple(entry["datasets"]),
            source=held["sources"][entry["source"]],
            config=entry["config"],
            options=entry.get("options", {}),
            differs=tuple(entry.get("differs", ())),
            why=entry.get("why", ""),
        )
        for entry in held["settings"]
    )


def names(algorithm: str) -> tuple[str, ...]:
    """The published presets of an algorithm, "paper" first."""
    found = dict.fromkeys(entry.preset for entry in entries() if entry.algorithm == algorithm)
    if any(fallback in found for fallback in FALLBACK.values()):
        found = dict.fromkeys((PAPER, *found))
    return tuple(found)


def find(algorithm: str, preset: str, data: str) -> Settings:
    """The settings that a preset has for a data set.

    Args:
        algorithm: its name.
        preset: one of `names`.
        data: the data set's name.

    Raises:
        ConfigError: the preset has none for that data set; it names those that it has some for.
    """
    presets = [preset, *([FALLBACK[preset]] if preset in FALLBACK else [])]
    offered = [
        entry
        for wanted in presets
        for entry in entries()
        if (entry.algorithm, entry.preset) == (algorithm, wanted)
    ]
    shown = algorithm.replace("_", "-")
    for entry in offered:
        if any(fnmatch.fnmatchcase(data, pattern) for pattern in entry.datasets):
            if entry.config is None:
                raise ConfigError(f"{shown} has no preset '{preset}' for {data}: {entry.why}")
            return entry
    patterns = dict.fromkeys(pattern for entry in offered for pattern in entry.datasets)
    widest = [p for p in patterns if not any(_within(p, q) for q in patterns if q != p)]
    raise ConfigError(f"{shown} has no preset '{preset}' for {data}: it is for {', '.join(widest)}")


def _within(pattern: str, other: str) -> bool:
    return fnmatch.fnmatchcase(pattern, other)


def data_name(data: str | Path | Dataset) -> str:
    """The name by which a data set's settings are found: a file counts as what it is called."""
    if isinstance(data, Dataset):
        return registry.normalize(str(data.metadata.get("name", "data made in Python")))
    if isinstance(data, str) and registry.find(data) is not None:
        return registry.normalize(data)
    return registry.normalize(Path(data).name.removesuffix(".hdf5"))
