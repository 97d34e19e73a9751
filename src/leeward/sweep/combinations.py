"""All combinations of an algorithm's settings that a sweep asks for: a grid, draws, or both."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, get_type_hints

import numpy as np

from leeward.algorithms import get_algorithm
from leeward.errors import ConfigError, did_you_mean
from leeward.options import RunOptions
from leeward.sweep.request import Request, distribution
from leeward.types import Algorithm

MOST_TRIES = 100
"""Draws that may repeat earlier ones for each that is wanted, before the settings count as too few
(ours)."""


def of_algorithm(
    request: Request, named: Algorithm, algorithm: Algorithm, options: Collection[str]
) -> list[dict[str, Any]]:
    """Every combination, each with the same names, without what the preset says.

    Args:
        request: what was asked.
        named: the algorithm by the name that was given.
        algorithm: its form for the data's actions.
        options: options of a run that may be settings too.

    Raises:
        ConfigError: an unknown name, a name in two places, or draws that cannot be made.
    """
    tables = {"settings": request.settings, "grid": request.grid, "random": request.random}
    own = {
        key: _own(request, key, table, named, algorithm, options) for key, table in tables.items()
    }
    for (one, first), (two, second) in itertools.combinations(own.items(), 2):
        both = [name for name in first if name in second]
        if both:
            raise ConfigError(f"'{both[0]}' is in both {one} and {two}: name it once")
    grid: list[dict[str, Any]] = [
        dict(zip(own["grid"], values, strict=True))
        for values in itertools.product(*own["grid"].values())
    ]
    draws = _draws(request, own["random"], algorithm)
    return [{**own["settings"], **drawn, **chosen} for drawn in draws for chosen in grid]


def _own(
    request: Request,
    key: str,
    table: Mapping[str, Any],
    named: Algorithm,
    algorithm: Algorithm,
    options: Collection[str],
) -> dict[str, Any]:
    """What a table has for one algorithm; ALGORITHM.NAME comes before NAME."""
    known = [*(f.name for f in dataclasses.fields(algorithm.config_type)), *options]
    among = {get_algorithm(name).name for name in request.algorithms}
    general: dict[str, Any] = {}
    special: dict[str, Any] = {}
    for full, value in table.items():
        owner, dot, name = full.rpartition(".")
        if dot:
            chosen = get_algorithm(owner).name
            if chosen not in among | {algorithm.name}:
                raise ConfigError(f"{key} '{full}': {owner} is not among the algorithms")
            if chosen not in (named.name, algorithm.name):
                continue
        if name not in known:
            other = "" if dot or len(among) == 1 else " (ALGORITHM.NAME is a setting of one alone)"
            raise ConfigError(
                f"{key} '{full}': {algorithm.name.replace('_', '-')} has no setting '{name}'"
                f"{other}.{did_you_mean(name, known)}"
            )
        _check_values(key, full, value)
        (special if dot else general)[name] = value
    return {**general, **special}


def _check_values(key: str, name: str, value: Any) -> None:
    """Raises ConfigError for values that no setting has, and for lists that repeat one."""
    if key == "grid":
        if not value:
            raise ConfigError(f"grid '{name}' needs at least one value")
        twice = [item for place, item in enumerate(value) if item in value[:place]]
        if twice:
            raise ConfigError(f"grid '{name}' has the value {twice[0]!r} twice")
    items = value if isinstance(value, list | tuple) else [value]
    for item in items:
        parts = item if isinstance(item, list | tuple) else [item]
        if not all(isinstance(p, int | str) or _is_number(p) for p in parts):
            raise ConfigError(f"{key} '{name}': no setting has the value {item!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _draws(
    request: Request, table: Mapping[str, Any], algorithm: Algorithm
) -> list[dict[str, Any]]:
    """Different combinations; the first ones are the same however many are asked for."""
    if request.draws < 0 or (request.draws == 0) != (not request.random):
        raise ConfigError(
            "random settings and --draws, how many combinations of them, go together"
            if request.draws >= 0
            else f"--draws must be 0 or more, got {request.draws}"
        )
    if not table:
        return [{}]
    hints = {**get_type_hints(RunOptions), **get_type_hints(algorithm.config_type)}
    sources = {name: distribution(name, asked, hints[name] is int) for name, asked in table.items()}
    # A stream of its own for every name, so that one more setting changes no other's values.
    streams = {name: np.random.default_rng([request.draw_seed, *name.encode()]) for name in sources}
    found: dict[str, dict[str, Any]] = {}
    for _ in range(MOST_TRIES * request.draws):
        drawn = {
            name: source.draw(streams[name], hints[name] is int) for name, source in sources.items()
        }
        found.setdefault(json.dumps(drawn, sort_keys=True), drawn)
        if len(found) == request.draws:
            return list(found.values())
    raise ConfigError(
        f"--draws {request.draws}: only {len(found)} different combinations of "
        f"{_listed(list(table))} were found: --grid trains all of them"
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
