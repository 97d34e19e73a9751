"""What is known of named data sets: URLs, reference scores, the environment each implies.

The facts lie in `registry/*.json`, with their sources and licenses. Names accept `-` and `_`.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from leeward.errors import did_you_mean

_ENVIRONMENT = re.compile(r"^(?:.*[/:])?(?P<task>[A-Za-z0-9]+?)(?:NoFrameskip)?-v(?P<version>\d+)$")


class Entry(NamedTuple):
    """One named data set."""

    name: str
    group: str
    """Family of tasks, such as "gym-mujoco"; "shipped" for data inside the package."""
    url: str | None
    """Where the file is published; None for shipped data."""
    env: str | None
    """The Gymnasium environment that it implies, or None if no current one matches."""
    no_env_reason: str | None
    """Why there is no environment."""
    env_note: str | None
    """What to know of an environment that is close to D4RL's and simulated otherwise."""
    max_episode_steps: int | None
    """The task's step limit, for files that do not record timeouts."""
    path: Path | None
    """The file of shipped data; None for others."""


class ReferenceScores(NamedTuple):
    """Returns that count as 0 and as 100."""

    minimum: float
    maximum: float
    source: str


def find(name: str) -> Entry | None:
    """The data set of that name, or None; `-` and `_` and capitals do not matter."""
    return _entries().get(normalize(name))


def names() -> tuple[str, ...]:
    """All names, shipped ones first."""
    return tuple(_entries())


def suggest(name: str) -> str:
    """' Did you mean …?' with the nearest names, or ''."""
    return did_you_mean(normalize(name), names())


def normalize(name: str) -> str:
    """A name as the registry spells it."""
    return name.strip().lower().replace("_", "-")


def step_limit(env: str | None) -> int | None:
    """The step limit of a Gymnasium environment that D4RL has data of, or None."""
    scores_of = _environment_entry(env) if env else None
    return None if scores_of is None else _entries()[scores_of].max_episode_steps


def reference_scores(name: str) -> ReferenceScores | None:
    """The reference scores of a data set, or of an environment id (MuJoCo, Adroit, Atari)."""
    shipped = _read("shipped.json")["datasets"].get(normalize(name))
    if shipped is not None:
        return ReferenceScores(*shipped["reference"], source="the data set")
    d4rl = _read("d4rl.json")
    known = d4rl["datasets"].get(normalize(name))
    if known is None:
        scores_of = _environment_entry(name)
        known = None if scores_of is None else d4rl["datasets"][scores_of]
    if known is not None:
        return ReferenceScores(*known["reference"], source="D4RL")
    match = _ENVIRONMENT.match(name)
    games = _read("atari.json")["games"]
    game = match["task"] if match else name
    if game in games:
        return ReferenceScores(*games[game], source="Atari, random and human")
    return None


def normalized_score(
    source: str | Mapping[str, Any], returns: Sequence[float] | np.ndarray | float
) -> np.ndarray | None:
    """100 · (return − minimum) / (maximum − minimum), or None where no reference is known.

    Args:
        source: a D4RL name, an environment id, or a data set's metadata. Of metadata, its own
            `reference_scores` come first, then the name in `reference`, then `env`.
        returns: one return or many; the result has the same shape.
    """
    scores = None
    if isinstance(source, str):
        scores = reference_scores(source)
    else:
        own = source.get("reference_scores")
        if own:
            scores = ReferenceScores(own["minimum"], own["maximum"], "the data set")
        for key in ("reference", "env"):
            if scores is None and source.get(key):
                scores = reference_scores(str(source[key]))
    if scores is None:
        return None
    span = scores.maximum - scores.minimum
    return np.asarray(100.0 * (np.asarray(returns, np.float64) - scores.minimum) / span)


def _environment_entry(env: str) -> str | None:
    """The data set whose reference scores and step limit belong to an environment id."""
    match = _ENVIRONMENT.match(env)
    known = _read("d4rl.json")["environments"].get(match["task"]) if match else None
    if known is None or match is None or int(match["version"]) not in known["versions"]:
        return None
    return known["scores_of"]


@functools.cache
def _read(file: str) -> dict[str, Any]:
    text = resources.files("leeward.data").joinpath("registry", file).read_text("utf-8")
    return json.loads(text)


@functools.cache
def _entries() -> dict[str, Entry]:
    d4rl = _read("d4rl.json")
    entries = {}
    shipped = Path(str(resources.files("leeward.data"))) / "shipped"
    for name, fact in _read("shipped.json")["datasets"].items():
        path = shipped / f"{name}.hdf5"
        limit = fact["max_episode_steps"]
        entries[name] = Entry(name, "shipped", None, fact["env"], None, None, limit, path)
    for name, fact in d4rl["datasets"].items():
        group, env = fact["group"], fact["env"]
        entries[name] = Entry(
            name,
            group,
            fact["url"],
            env,
            None if env else d4rl["no_environment"][group],
            d4rl["environment_notes"].get(group) if env else None,
            fact["max_episode_steps"],
            None,
        )
    return entries
