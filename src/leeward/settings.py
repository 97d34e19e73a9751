"""From names and values to an algorithm's `Config`: presets, several values, checks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from leeward.config import float_fields, from_json
from leeward.data.dataset import Dataset
from leeward.errors import ConfigError, SpecError, did_you_mean
from leeward.published import settings as published
from leeward.types import Algorithm


class Preset(NamedTuple):
    """What a preset sets."""

    config: Mapping[str, Any]
    """Fields of the algorithm's `Config`."""
    options: Mapping[str, Any]
    """Fields of `RunOptions`."""


def depends_on_data(algorithm: Algorithm, preset: str | None) -> bool:
    """Whether a preset's settings depend on the data set, as those of papers do."""
    return preset not in algorithm.presets and preset in published.names(algorithm.name)


def preset_settings(
    algorithm: Algorithm, preset: str | None, data: str | Path | Dataset | None = None
) -> Preset:
    """The settings of a named preset; none for None.

    Args:
        algorithm: whose preset.
        preset: one of the algorithm's own presets, or of the published ones.
        data: what is trained on, for published presets: a name, a path, an address or a `Dataset`.

    Raises:
        ConfigError: the algorithm has no preset of that name, or none for that data set.
    """
    if preset is None:
        return Preset({}, {})
    if preset in algorithm.presets:
        return Preset(algorithm.presets[preset], {})
    known = [*algorithm.presets, *published.names(algorithm.name)]
    if preset not in known:
        raise ConfigError(
            f"{algorithm.name} has no preset '{preset}' (it has: {', '.join(known) or 'none'})."
            + did_you_mean(preset, known)
        )
    if data is None:
        raise ConfigError(f"preset '{preset}' depends on the data set: name one")
    found = published.find(algorithm.name, preset, published.data_name(data))
    return Preset(found.config or {}, found.options)


def make_config(
    algorithm: Algorithm,
    preset: str | None,
    settings: Mapping[str, Any],
    others: Sequence[str] = (),
    data: str | Path | Dataset | None = None,
) -> tuple[Any, dict[str, list[float]]]:
    """The config of an algorithm, and the float fields that were given several values.

    Args:
        algorithm: whose `Config`.
        preset: a named set of settings, which `settings` override.
        settings: field → value; a float field may have a list of values.
        others: names that are valid elsewhere, for the suggestion in errors.
        data: what is trained on, for presets that depend on it.

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
    values = {**preset_settings(algorithm, preset, data).config, **settings}
    swept: dict[str, list[float]] = {}
    for name in float_fields(algorithm.config_type):
        value = values.get(name)
        if isinstance(value, list | tuple):
            if not value:
                raise ConfigError(f"setting '{name}' needs at least one value")
            if len(value) > 1:
                swept[name] = [float(v) for v in value]
            values[name] = next(iter(value))
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
        # A size whose default is 0 has a meaning for it, such as "twice the action size".
        least = 0 if field.name.endswith("_steps") or field.default == 0 else 1
        if whole and value < least:
            raise ConfigError(f"setting '{field.name}' must be at least {least}, got {value}")


def check_networks(algorithm: Algorithm, config: Any, dataset: Dataset) -> None:
    """Asks the networks whether they take the data's images, without making them.

    Raises:
        SpecError: they do not.
    """
    if len(dataset.spec.observation_shape) == 1:
        return
    try:
        jax.eval_shape(lambda: algorithm.init(config, dataset.spec, jax.random.key(0)))
    except SpecError as error:
        raise SpecError(f"{dataset.metadata.get('name', 'the data')}: {error}") from error
