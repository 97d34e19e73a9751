"""What a run directory says of one task and of one seed: `Task` and `Trained`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from leeward.run import Run


class Task(NamedTuple):
    """A data set and the environment that its runs were evaluated in."""

    name: str
    """The data set's."""
    environment: str | None
    """None where no run was evaluated, or in an environment made in Python."""
    quantity: Literal["score", "return"]
    """Normalized score (0 random, 100 expert) where all its evaluations have one, else return."""
    scale: tuple[float, float] | None
    """(factor, shift): score = factor · return + shift; None where the evaluations do not tell."""

    def scored(self, returns: np.ndarray) -> np.ndarray | None:
        """Returns in the task's quantity, or None where the scale is not known."""
        if self.quantity == "return":
            return returns
        return None if self.scale is None else self.scale[0] * returns + self.scale[1]


class Trained(NamedTuple):
    """One seed of a method on a task. K evaluations, E episodes."""

    run: Run
    row: Mapping[str, Any]
    """Its line of the run's table: `run`, `seed` and swept settings."""
    evaluations: tuple[Mapping[str, Any], ...]
    """[K] its lines of evaluations.jsonl."""

    def steps(self) -> np.ndarray:
        """[K] updates at every evaluation."""
        return np.array([line["step"] for line in self.evaluations], np.int64)

    def values(self, quantity: str) -> np.ndarray:
        """[K] the mean return or score of every evaluation."""
        found = [line[f"{quantity}_mean"] for line in self.evaluations]
        return np.array([np.nan if value is None else value for value in found], np.float64)

    def last_returns(self) -> np.ndarray:
        """[E] the return of every episode of the last evaluation."""
        return np.array(self.evaluations[-1]["returns"], np.float64)


def task_name(run: Run) -> str:
    """The name of the data set that a run was trained on."""
    return str(run.config["data"]["name"])
