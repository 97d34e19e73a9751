"""`@config`: frozen dataclasses whose float fields are pytree leaves and the rest static.

Float fields can therefore be traced: one compiled program serves any learning rate, and several
values of one train side by side under `jax.vmap`. Python branches may test static fields only.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar, dataclass_transform, get_type_hints

import jax

from leeward.errors import ConfigError, did_you_mean

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def config(cls: type[T]) -> type[T]:
    """Makes `cls` a frozen dataclass and a pytree: floats are leaves, all else is static."""
    cls = dataclasses.dataclass(frozen=True)(cls)
    floats = float_fields(cls)
    # Traced values and arrays of one value a run pass through the constructor as well.
    cls.__init__.__annotations__.update(dict.fromkeys(floats, Any))
    static = [f.name for f in dataclasses.fields(cls) if f.name not in floats]  # type: ignore[arg-type]
    return jax.tree_util.register_dataclass(cls, data_fields=list(floats), meta_fields=static)


def float_fields(config_type: type) -> tuple[str, ...]:
    """Names of the fields that may take several values in one program."""
    hints = get_type_hints(config_type)
    return tuple(f.name for f in dataclasses.fields(config_type) if hints[f.name] is float)


def to_json(value: Any) -> dict[str, Any]:
    """A config as plain JSON values; float fields may hold arrays of one value a run."""
    result = {}
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        result[field.name] = item.tolist() if hasattr(item, "tolist") else item
    return result


def from_json(config_type: type, values: Mapping[str, Any]) -> Any:
    """The config that `to_json` wrote.

    Raises:
        ConfigError: a name that `config_type` lacks, or a value of the wrong type.
    """
    hints = get_type_hints(config_type)
    for name in values:
        if name not in hints:
            raise ConfigError(
                f"unknown setting '{name}' for {config_type.__module__.rsplit('.', 1)[-1]}."
                + did_you_mean(name, hints)
            )
    return config_type(**{name: _coerce(name, v, hints[name]) for name, v in values.items()})


def _coerce(name: str, value: Any, hint: Any) -> Any:
    """`value` as the type that the field declares: lists become tuples, ints become floats."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inner = [kind for kind in typing.get_args(hint) if kind is not types.NoneType]
        if value is None or len(inner) > 1:
            return value
        return _coerce(name, value, inner[0])
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"setting '{name}' must be a list, got {value!r}")
        element = typing.get_args(hint)[0]
        kinds = (int, float) if element is float else element
        if not all(isinstance(v, kinds) and not isinstance(v, bool) for v in value):
            raise ConfigError(
                f"setting '{name}' must be a list of {element.__name__}, got {value!r}"
            )
        return tuple(element(v) for v in value)
    if hint is float:
        if isinstance(value, list | tuple):
            return [_coerce(name, v, hint) for v in value]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"setting '{name}' must be a number, got {value!r}")
        return float(value)
    if typing.get_origin(hint) is typing.Literal:
        allowed = typing.get_args(hint)
        if value not in allowed:
            raise ConfigError(
                f"setting '{name}' must be one of {', '.join(map(str, allowed))}, got {value!r}"
            )
        return value
    if isinstance(hint, type) and (
        not isinstance(value, hint) or (hint is int and isinstance(value, bool))
    ):
        raise ConfigError(f"setting '{name}' must be {hint.__name__}, got {value!r}")
    return value
