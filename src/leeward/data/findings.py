"""What the checks look at, and what they say."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple

import numpy as np

from leeward.data.dataset import Dataset
from leeward.types import Box, Discrete

Severity = Literal["error", "warning", "info"]

_LISTED = 20  # rows named in a finding; ours: enough to look at, short enough to print
_WIDEST = 512  # numbers in one observation up to which it is checked as a vector; ours


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing found: what, how bad, where, and what to do."""

    code: str
    """A short name that stays the same, such as "non_finite_observation"."""
    severity: Severity
    """"error" stops training, "warning" is recorded in the run, "info" is good to know."""
    count: int
    """How many rows (or episodes) it concerns; 0 where it concerns the data as a whole."""
    rows: tuple[int, ...]
    """The first of these rows, counted from 0 over the steps of the data."""
    message: str
    """One sentence: what was found."""
    remedy: str
    """One sentence: what to do."""
    every_row: np.ndarray = dataclasses.field(
        default_factory=lambda: np.zeros(0, np.int64), repr=False, compare=False
    )
    """All rows that it concerns, for repairs."""

    def to_json(self) -> dict[str, Any]:
        """As JSON values, with the first rows only."""
        names = [field.name for field in dataclasses.fields(self) if field.name != "every_row"]
        return {name: getattr(self, name) for name in names} | {"rows": list(self.rows)}


def finding(
    code: str,
    severity: Severity,
    message: str,
    remedy: str,
    rows: np.ndarray | None = None,
) -> Finding:
    """A finding that concerns `rows`, of which the first are listed."""
    rows = np.zeros(0, np.int64) if rows is None else rows
    listed = tuple(int(row) for row in rows[:_LISTED])
    return Finding(code, severity, len(rows), listed, message, remedy, rows)


class Steps(NamedTuple):
    """The recorded steps of a data set, without the rows that only hold a last observation.

    S steps, D numbers an observation, K steps whose next observation is stored apart.
    """

    observation: np.ndarray | None
    """[S, D] float32, or None for images and other large observations."""
    action: np.ndarray
    reward: np.ndarray
    termination: np.ndarray
    truncation: np.ndarray
    episode: np.ndarray
    """[S]: which episode each step belongs to."""
    apart: np.ndarray
    """[K]: steps whose next observation is not the next step's observation."""
    apart_observation: np.ndarray | None
    """[K, D]: those next observations."""
    in_order: bool
    """False for shuffled transitions, whose neighbors have nothing to do with each other."""
    space: Box | Discrete

    @property
    def follows(self) -> np.ndarray:
        """[S − 1] bool: the next step belongs to the same episode."""
        return self.episode[1:] == self.episode[:-1]

    @property
    def last(self) -> np.ndarray:
        """[E]: the last step of every episode."""
        return np.append(np.flatnonzero(~self.follows), len(self.episode) - 1)

    @property
    def first(self) -> np.ndarray:
        """[E]: the first step of every episode."""
        return np.append(0, np.flatnonzero(~self.follows) + 1)


def steps_of(dataset: Dataset) -> Steps:
    """The recorded steps of `dataset`."""
    recorded = dataset.recorded
    rows = np.flatnonzero(recorded)
    width = int(np.prod(dataset.observation.shape[1:]))
    vectors = None
    if dataset.observation.dtype == np.float32 and width <= _WIDEST:
        vectors = dataset.observation.reshape(len(recorded), width)
    apart, apart_observation = _stored_apart(dataset, vectors)
    chosen = slice(None) if len(rows) == len(recorded) else rows
    lengths = dataset.episode_lengths()
    return Steps(
        None if vectors is None else vectors[chosen],
        dataset.action[chosen],
        dataset.reward[chosen],
        dataset.termination[chosen],
        dataset.truncation[chosen],
        dataset.episode_of_row[chosen],
        apart,
        apart_observation,
        bool(dataset.next_observation is None or (lengths > 1).any()),
        dataset.action_space,
    )


def _stored_apart(
    dataset: Dataset, vectors: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """(steps, their next observations) where these are not the next step's observation."""
    step_of_row = np.cumsum(dataset.recorded) - 1
    if dataset.next_observation is None:
        extra = np.flatnonzero(~dataset.recorded)
        return step_of_row[extra], None if vectors is None else vectors[extra]
    if vectors is None:
        return step_of_row[dataset.start], None
    return (
        step_of_row[dataset.start],
        dataset.next_observation.reshape(len(dataset.start), vectors.shape[1]),
    )
