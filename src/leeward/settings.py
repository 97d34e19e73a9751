"""From names and values to an algorithm's `Config`: presets, several values, checks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from leeward.config import float_fields, from_json
from leeward.errors import ConfigError, did_you_mean
from leeward.types import Algorithm


def preset_settings(algorithm: Algorithm, preset: str | None) -> Mapping[str, Any]:
    """The settings of a named preset; none for None.

    Raises:
        ConfigError: the algorithm has no preset of that name.
    """
    if preset is None:
        return {}
    if preset not in algorithm.presets:
        known = ", ".join(algorithm.presets) or "none"
        raise ConfigError(
            f"{algorithm.name} has no preset '{preset}' (it has: {known})."
            + did_you_mean(preset, algorithm.presets)
        )
    return algorithm.presets[preset]


def make_config(
    algorithm: Algorithm,
    preset: str | None,
    settings: Mapping[str, Any],
    others: Sequence[str] = (),
) -> tuple[Any, dict[str, list[float]]]:
    """The config of an algorithm, and the float fields that were given several values.

    Args:
        algorithm: whose `Config`.
        preset: a named set of settings, which `settings` override.
        settings: field → value; a float field may have a list of values.
        others: names that are valid elsewhere, for the suggestion in errors.

    Raises:
        ConfigError: an unknown preset or field, or a value of the wrong type.
    """
    fields = {field.name for field in dataclasses.fields(algorithm.config_type)}
    for name in settings:
        if name not in fields:
            raise ConfigError(
                f"unknown setting '{name}' for {algorithm.name}."
                + did_you_mean(name, [*fields, *others])
            )
    values = {**preset_settings(algorithm, preset), **settings}
    swept: dict[str, list[float]] = {}
    for name in float_fields(algorithm.config_type):
        value = values.get(name)
        if isinstance(value, list | tuple):
            if not value:
                raise ConfigError(f"setting '{name}' needs at least one value")
            if len(value) > 1:
                swept[name] = [float(v) for v in value]
            values[name] = list(value)[0]
    config = from_json(algorithm.config_type, values)
    check_config(config)
    return config, swept


def check_config(config: Any) -> None:
    """Rejects lengths and sizes below their least.

    Raises:
        ConfigError: the field, its value and what is allowed.
    """
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        whole = isinstance(value, int) and not isinstance(value, bool)
        least = 0 if field.name.endswith("_steps") else 1
        if whole and value < least:
            raise ConfigError(f"setting '{field.name}' must be at least {least}, got {value}")
