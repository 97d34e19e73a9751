"""A sweep's TOML file."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from leeward.config import from_json
from leeward.errors import ConfigError, did_you_mean
from leeward.sweep.request import setting_name

LISTS = {"algorithms": str, "datasets": str, "seeds": int}
WORDS = {"preset": str, "draws": int, "draw_seed": int, "runs_per_job": int}
TABLES = ("settings", "grid", "random")
"""Tables of settings, with a table of its own for every algorithm."""


def read_file(
    path: Path, classes: Mapping[str, type], without: Collection[str] = ()
) -> dict[str, Any]:
    """What a file asks for: keys as in `Request`, and a table for each of `classes`.

    Args:
        path: the file.
        classes: table → dataclass whose fields it may have.
        without: fields that it may not have.

    Raises:
        ConfigError: no such file, not TOML, an unknown key, or a value of the wrong type; it
            names file and key.
    """
    held = _load(path)
    known = {*LISTS, *WORDS, *TABLES, *classes}
    _refuse_unknown(path, held, known, "")
    asked: dict[str, Any] = {}
    for key, kind in LISTS.items():
        if key in held:
            asked[key] = tuple(_list(path, key, held[key], kind))
    for key, kind in WORDS.items():
        if key in held:
            asked[key] = _typed(path, key, held[key], kind)
    for key in TABLES:
        asked[key] = _settings(path, key, _table(path, key, held))
    for key, cls in classes.items():
        table = _table(path, key, held)
        names = [f.name for f in dataclasses.fields(cls) if f.name not in without]
        _refuse_unknown(path, table, names, f"{key}.")
        try:
            read = from_json(cls, table)
        except ConfigError as error:
            raise ConfigError(f"{path}: [{key}] {error}") from error
        asked[key] = {name: getattr(read, name) for name in table}
    return asked


def _load(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid TOML ({error})") from error


def _refuse_unknown(
    path: Path, held: Mapping[str, Any], known: Collection[str], before: str
) -> None:
    for key in held:
        if key not in known:
            raise ConfigError(
                f"{path}: unknown key '{before}{key}'.{did_you_mean(key, known)} "
                f"Keys: {', '.join(sorted(known))}"
            )


def _list(path: Path, key: str, value: Any, kind: type) -> list[Any]:
    if not isinstance(value, list):
        raise ConfigError(f"{path}: '{key}' must be a list, got {value!r}")
    return [_typed(path, key, item, kind) for item in value]


def _typed(path: Path, key: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        what = "text" if kind is str else "whole numbers"
        raise ConfigError(f"{path}: '{key}' takes {what}, got {value!r}")
    return value


def _table(path: Path, key: str, held: Mapping[str, Any]) -> dict[str, Any]:
    table = held.get(key, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: '{key}' must be a table, [{key}], got {table!r}")
    return table


def _settings(path: Path, key: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a table; those of a table in it are of the algorithm that it is called."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        inner = value if isinstance(value, dict) else None
        for within, item in (inner or {"": value}).items():
            full = f"{setting_name(name)}.{setting_name(within)}" if within else setting_name(name)
            allowed = (list, str) if key == "random" else (list,)
            if key != "settings" and not isinstance(item, allowed):
                kind = "a range or a list" if key == "random" else "a list"
                raise ConfigError(f"{path}: '{key}.{full}' must be {kind} of values, got {item!r}")
            if isinstance(item, dict) or inner == {}:
                raise ConfigError(f"{path}: '{key}.{full}' holds no setting")
            found[full] = item
    return found
