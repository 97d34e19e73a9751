"""From dataclass fields to flags: every field one flag with its sentence as help."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_type_hints

import tyro

from leeward.errors import ConfigError, did_you_mean
from leeward.options import field_help


@dataclass(frozen=True)
class DataOptions:
    """How the data set is read."""

    d4rl_rows: Literal["qlearning", "all"] | None = None
    """Reading of D4RL files: the transitions of D4RL's qlearning_dataset (default for D4RL names),
    or all rows that have a next observation (default for other files)."""
    offline: bool = False
    """Never use the network: only files that are there already."""
    action_low: tuple[float, ...] = ()
    """Lower action bound, one or one a dimension, where neither environment nor data says."""
    action_high: tuple[float, ...] = ()
    """Upper action bound, one or one a dimension."""
    max_episode_steps: int | None = None
    """Step limit of the task, for data that does not record time limits."""
    frame_stack: int | None = None
    """Rows of one observation, where rows hold single frames and the data does not say how many."""
    observation: tuple[str, ...] = ()
    """Table columns of the observation; patterns such as 'obs_*' are allowed."""
    action: tuple[str, ...] = ()
    """Table columns of the action."""
    reward: str | None = None
    """Table column of the reward."""
    episode: str | None = None
    """Table column that tells episodes apart."""
    step: str | None = None
    """Table column that orders the rows of an episode."""
    terminal: str | None = None
    """Table column that is true where the task ended."""
    truncation: str | None = None
    """Table column that is true where only the recording ended."""


TABLE = ("observation", "action", "reward", "episode", "step", "terminal", "truncation")
"""The options that only tables need."""


def load_arguments(options: DataOptions) -> dict[str, Any]:
    """The options that were given, as arguments of `load_dataset` that JSON can hold."""
    default = dataclasses.asdict(DataOptions())
    given = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in dataclasses.asdict(options).items()
        if value != default[name]
    }
    columns = {
        "termination" if name == "terminal" else name: given.pop(name)
        for name in TABLE
        if name in given
    }
    return given | ({"columns": columns} if columns else {})


def parse(
    fields: Sequence[tuple[str, Any, Any]], arguments: Sequence[str], *, prog: str, description: str
) -> Any:
    """Parses `arguments` into an object with one attribute for each (name, annotation, default).

    `dataclasses.MISSING` as default makes a field required.

    Raises:
        ConfigError: a flag that does not exist.
        SystemExit: --help (0), or a value of the wrong type (2).
    """
    flags = [f"--{name.replace('_', '-')}" for name, _, _ in fields]
    accepted = {*flags, *(f"--no-{flag[2:]}" for flag in flags), "--help"}
    for argument in arguments:
        flag = argument.split("=")[0].replace("_", "-")
        if argument.startswith("--") and flag not in accepted:
            raise ConfigError(
                f"unknown flag {flag} for {prog}.{did_you_mean(flag, flags)} "
                f"All of them: {prog} --help"
            )
    made = dataclasses.make_dataclass(
        "Arguments",
        [
            (name, hint)
            if default is dataclasses.MISSING
            else (name, hint, dataclasses.field(default=default))
            for name, hint, default in fields
        ],
        frozen=True,
        kw_only=True,
    )
    return tyro.cli(made, args=list(arguments), prog=prog, description=description)


def positional(name: str, help_text: str) -> tuple[str, Any, Any]:
    """A required argument without a flag."""
    mark = tyro.conf.arg(help=help_text, metavar=name.upper())
    return name, Annotated[tyro.conf.Positional[str], mark], dataclasses.MISSING


def flags_of(
    cls: type,
    defaults: Mapping[str, Any] | None = None,
    *,
    several: bool = False,
    without: Collection[str] = (),
) -> list[tuple[str, Any, Any]]:
    """(name, annotation, default) for every field of a dataclass, its sentence as help.

    Args:
        cls: a dataclass.
        defaults: values that replace the fields' own.
        several: of an algorithm's settings: floats take one or more values, and booleans True or
            False, whatever their default.
        without: fields to leave out.
    """
    hints, sentences = get_type_hints(cls), field_help(cls)
    result = []
    for field in dataclasses.fields(cls):
        if field.name in without:
            continue
        hint, default = hints[field.name], (defaults or {}).get(field.name, field.default)
        if hint is float and several:
            hint = tuple[float, ...]
            default = default if isinstance(default, list | tuple) else (default,)
        if isinstance(default, list | tuple):
            default = tuple(default)
        marks: list[Any] = [tyro.conf.arg(help=sentences.get(field.name, ""))]
        if hint is bool and (several or default is not False):
            marks.append(tyro.conf.FlagConversionOff)
        result.append((field.name, Annotated[(hint, *marks)], default))
    return result


def pick(cls: type, parsed: Any) -> Any:
    """The dataclass `cls` from the attributes of the same names."""
    return cls(**{field.name: getattr(parsed, field.name) for field in dataclasses.fields(cls)})
