"""Published scores: one row for an algorithm and a data set, with how it was measured.

The facts lie in `scores.json`, a table for each table of a paper or repository.
"""

from __future__ import annotations

import fnmatch
import functools
import json
import math
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any, Literal, NamedTuple

from leeward.data import registry
from leeward.errors import ConfigError, did_you_mean

Rule = Literal["last", "last-10", "best"]
"""Which evaluations of a run give its number: the last, the mean of the last ten, the best."""
RULES: dict[Rule, str] = {
    "last": "the last evaluation",
    "last-10": "the mean of the last ten evaluations",
    "best": "the best evaluation",
}


class Made(NamedTuple):
    """Data that nobody publishes: whoever wants a row's number makes them anew."""

    env: str
    """The game that a QR-DQN agent played, with ε 0.2."""
    transitions: int
    mean_return: float | None
    """Of the authors' data; None where it is not published."""


class Row(NamedTuple):
    """One published number."""

    name: str
    """Such as iql/hopper-medium-v2, or iql/hopper-medium-v2@corl for the number of others."""
    algorithm: str
    dataset: str
    mean: float
    std: float | None
    """Standard deviation over seeds, None where it is not published."""
    seeds: int | None
    """How many seeds, None where it is not said."""
    quantity: Literal["score", "return"]
    """Normalized score (0 random, 100 expert), or raw return."""
    rule: Rule
    episodes: int
    """Episodes of an evaluation."""
    eval_every: int
    """Updates between evaluations."""
    protocol: str
    source: str
    preset: str | None
    """Whose settings; None where they were not published."""
    config: Mapping[str, Any]
    """Settings in which this row differs from its preset."""
    fault: str | None
    """Why the number is wrong, where it is known to be."""
    caution: str | None
    """What else to know when comparing with it."""
    made: Made | None
    """How the data came about, where they are not published."""

    @property
    def needs(self) -> str | None:
        """What data a row needs and how they are made; None where they are published."""
        if self.made is None:
            return None
        env, count, _ = self.made
        file = f"{self.dataset}.hdf5"
        return (
            f"{count:,} transitions of {env} by a QR-DQN agent with ε 0.2, which nobody publishes; "
            f"to make them: leeward collect {env} --policy qrdqn --epsilon 0.2 --transitions "
            f"{count} --out {file} (or the first of a larger file: leeward convert FILE {file} "
            f"--transitions {count}), then --data {file}"
        )

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the published mean: ± 1.96 std / √seeds; ± std for unknown seeds.

        Without a standard deviation it is the number alone.
        """
        half = 0.0 if self.std is None else self.std
        if self.seeds is not None:
            half *= 1.96 / math.sqrt(self.seeds)
        return self.mean - half, self.mean + half


@functools.cache
def rows() -> dict[str, Row]:
    """All rows by name, table by table."""
    text = resources.files("leeward.published").joinpath("scores.json").read_text("utf-8")
    found: dict[str, Row] = {}
    for table in json.loads(text)["tables"]:
        for dataset, cells in table["scores"].items():
            for column, (mean, std) in cells.items():
                row = _row(table, table["columns"][column], dataset, mean, std)
                if row.name in found:
                    raise ValueError(f"scores.json has {row.name} twice")
                found[row.name] = row
    return found


def find(name: str) -> Row:
    """The row of that name; `-` and `_` do not matter.

    Raises:
        ConfigError: there is none, or only ones of several sources.
    """
    known = rows()
    wanted = registry.normalize(name)
    if wanted in known:
        return known[wanted]
    others = [other for other in known if other.partition("@")[0] == wanted]
    if others:
        raise ConfigError(f"{wanted} has no number of its own paper: choose {' or '.join(others)}")
    raise ConfigError(
        f"no published row '{name}'.{did_you_mean(wanted, known)} leeward reproduce --list shows "
        "them all"
    )


def _row(
    table: Mapping[str, Any],
    column: Mapping[str, Any],
    dataset: str,
    mean: float,
    std: float | None,
) -> Row:
    part = f"@{column['part']}" if "part" in column else ""
    if "group" in table:
        name = f"{table['group']}/{column['name']}-{re.sub(r'-v[0-9]+$', '', dataset)}{part}"
    else:
        name = f"{column['name']}/{dataset}{part}"
    episodes = next(n for p, n in table["episodes"].items() if fnmatch.fnmatchcase(dataset, p))
    return Row(
        name=name,
        algorithm=column["algorithm"],
        dataset=dataset,
        mean=mean,
        std=std,
        seeds=table["seeds"],
        quantity=table["quantity"],
        rule=table["rule"],
        episodes=episodes,
        eval_every=table["eval_every"],
        protocol=table["protocol"],
        source=table["source"],
        preset=column["preset"],
        config=column.get("config", {}),
        fault=column.get("fault"),
        caution=column.get("caution"),
        made=_made(table.get("made", {}).get(dataset)),
    )


def _made(facts: Mapping[str, Any] | None) -> Made | None:
    return None if facts is None else Made(facts["env"], facts["transitions"], facts["return"])
