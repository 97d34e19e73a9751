"""`Request`: what a sweep was asked to train, from flags, a TOML file or Python."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from leeward.errors import ConfigError

DIGITS = 4
"""Significant digits of random numbers: enough to tell them apart, few enough to read."""
LOGARITHMIC = "log:"
"""What a range begins with whose logarithm is drawn evenly."""


@dataclass(frozen=True)
class Request:
    """Algorithms × data sets × seeds × settings.

    Names of settings are fields of an algorithm's `Config` or of `RunOptions`; NAME means that of
    every algorithm, ALGORITHM.NAME that of one.
    """

    algorithms: Sequence[str]
    datasets: Sequence[str]
    seeds: Sequence[int] = (0,)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings with one value."""
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Settings with several values, all combinations of which are trained."""
    random: Mapping[str, str | Sequence[Any]] = field(default_factory=dict)
    """Settings that are drawn: "LOW..HIGH", "log:LOW..HIGH", or a list of values."""
    draws: int = 0
    """How many combinations of them."""
    draw_seed: int = 0
    preset: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `RunOptions`."""
    data_options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `load_dataset` that JSON can hold."""
    runs_per_job: int = 0
    """Most runs that share a program; 0: all that can."""
    origin: str = ""
    """The file that the settings come from, for messages."""


class Distribution(NamedTuple):
    """Where the values of a setting are drawn from."""

    low: float = 0.0
    high: float = 0.0
    logarithmic: bool = False
    values: tuple[Any, ...] = ()
    """Choices, in place of a range."""

    def draw(self, generator: np.random.Generator, whole: bool) -> Any:
        """One value; `whole` numbers lie between both ends, which are included."""
        if self.values:
            return self.values[int(generator.integers(len(self.values)))]
        low, high = (self.low - 0.5, self.high + 0.5) if whole else (self.low, self.high)
        if self.logarithmic:
            number = math.exp(generator.uniform(math.log(low), math.log(high)))
        else:
            number = float(generator.uniform(low, high))
        if whole:
            return int(min(max(round(number), self.low), self.high))
        return float(f"{min(max(number, low), high):.{DIGITS}g}")


def distribution(name: str, asked: Any, whole: bool) -> Distribution:
    """The distribution that a text or a list of values means.

    Args:
        name: the setting's.
        asked: "LOW..HIGH", "log:LOW..HIGH" or a list.
        whole: whether the setting takes whole numbers.

    Raises:
        ConfigError: neither, or a range without numbers.
    """
    if isinstance(asked, list | tuple):
        if not asked:
            raise ConfigError(f"random setting '{name}' needs at least one value")
        return Distribution(values=tuple(asked))
    text = asked.strip() if isinstance(asked, str) else ""
    logarithmic = text.startswith(LOGARITHMIC)
    ends = text.removeprefix(LOGARITHMIC).partition("..")
    low, high = _number(ends[0]), _number(ends[2])
    if low is None or high is None:
        raise ConfigError(
            f"random setting '{name}' must be LOW..HIGH, log:LOW..HIGH or a list of values, got "
            f"{asked!r}"
        )
    if not low < high or (logarithmic and low <= 0.0):
        least = " and LOW above 0" if logarithmic else ""
        raise ConfigError(f"random setting '{name}' needs LOW below HIGH{least}, got {asked!r}")
    if whole and not (low.is_integer() and high.is_integer()):
        raise ConfigError(f"random setting '{name}' takes whole numbers, got {asked!r}")
    return Distribution(low, high, logarithmic)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def assignments(texts: Sequence[str], flag: str) -> dict[str, list[Any]]:
    """The values of `NAME=VALUE,VALUE` texts.

    A value is a number, true or false, a list such as [256,256], or a word.

    Raises:
        ConfigError: a text of another form, or a name that is given twice.
    """
    found: dict[str, list[Any]] = {}
    for name, text in named(texts, flag).items():
        values = [_value(item) for item in _items(text)]
        if not text.strip() or any(isinstance(v, str) and not v for v in values):
            raise ConfigError(f"{flag} {name}={text}: a value is missing")
        found[name] = values
    return found


def distributions(texts: Sequence[str]) -> dict[str, Any]:
    """What `NAME=LOW..HIGH`, `NAME=log:LOW..HIGH` and `NAME=VALUE,VALUE` texts draw from."""
    ranges = {n: text for n, text in named(texts, "--random").items() if ".." in text}
    lists = [text for text in texts if ".." not in text]
    return {**ranges, **assignments(lists, "--random")}


def named(texts: Sequence[str], flag: str) -> dict[str, str]:
    """name → text behind the equals sign."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = setting_name(name)
        if not equals or not name:
            raise ConfigError(f"{flag} takes NAME=VALUE, such as alpha=1,2.5, got '{text}'")
        if name in found:
            raise ConfigError(f"{flag} names '{name}' twice: give all its values at once")
        found[name] = value
    return found


def setting_name(text: str) -> str:
    """A setting's name, or ALGORITHM.NAME, as Python writes it."""
    return text.strip().replace("-", "_")


def _items(text: str) -> list[str]:
    """The parts between commas that stand outside brackets and quotes."""
    items, depth, quote, start = [], 0, "", 0
    for place, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign in "[(":
            depth += 1
        elif sign in "])":
            depth -= 1
        elif sign == "," and depth == 0:
            items.append(text[start:place])
            start = place + 1
    return [*items, text[start:]]


def _value(text: str) -> Any:
    text = text.strip()
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    if isinstance(value, tuple):
        return list(value)
    return value if isinstance(value, int | float | str | list) else text
