"""`Job`: what is to be trained. `Position`: how far it has come."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from leeward.data.dataset import Dataset
from leeward.data.moments import low_and_high
from leeward.options import RunOptions
from leeward.types import Algorithm


@dataclass(frozen=True)
class Job:
    """N runs (seeds × settings) of one algorithm on one data set."""

    algorithm: Algorithm
    config: Any
    settings: tuple[Mapping[str, float], ...]
    """[N] the float fields in which each run differs from `config`."""
    seeds: tuple[int, ...]
    """[N] every run's seed."""
    steps: int
    """Updates of the last phase; schedules go by `config.steps`."""
    options: RunOptions
    dataset: Dataset
    environment: str | Callable[[], Any] | None
    logged: Dataset | None = None
    """All episodes with their own rewards, where policies are estimated from them."""

    @functools.cached_property
    def dataset_hash(self) -> str:
        """The data's content hash."""
        return self.dataset.content_hash()

    @functools.cached_property
    def ranges(self) -> dict[str, list[list[float]]]:
        """Of vectors that are learned from: every number's least and its largest value."""
        found = {}
        for name in ("observation", "action"):
            column = getattr(self.dataset, name)
            if column.ndim == 2 and column.dtype == np.float32:
                ends = low_and_high(column, self.dataset.start)
                found[name] = [[float(str(value)) for value in end] for end in ends]
        return found

    @property
    def runs(self) -> int:
        """N."""
        return len(self.seeds)

    @property
    def last_phase(self) -> int:
        """Index of the last phase."""
        return len(self.algorithm.phases) - 1

    def phase_steps(self, index: int) -> int:
        """Updates of the phase with this index."""
        if index == self.last_phase:
            return self.steps
        return self.algorithm.phases[index].steps(self.config)

    def logger_step(self, phase: int, step: int) -> int:
        """Steps counted from the start of the last phase; those before it are negative."""
        return step - sum(self.phase_steps(index) for index in range(phase, self.last_phase))

    def label(self, run: int) -> dict[str, Any]:
        """What tells one run from the others: index, seed, swept settings."""
        return {"run": run, "seed": self.seeds[run], **self.settings[run]}

    def run_name(self, run: int) -> str:
        """A name for one run: its seed and swept settings."""
        settings = "".join(f"-{n}-{v:g}" for n, v in self.settings[run].items())
        return f"seed-{self.seeds[run]}{settings}"


@dataclass
class Position:
    """Where training stands: the part of a checkpoint that is not arrays."""

    phase: int = 0
    step: int = 0
    """Updates made in this phase."""
    updates: int = 0
    """Updates made in all phases."""
    metrics_size: int = 0
    """Bytes of metrics.jsonl; what a killed run wrote after its checkpoint is cut off."""
    evaluations_size: int = 0
    """Bytes of evaluations.jsonl."""
    stopped: list[int] = field(default_factory=list)
    """Runs that early stopping has ended in this phase."""
    failed: list[int] = field(default_factory=list)
    """Runs whose weights became NaN or infinite."""
    failures: dict[str, str] = field(default_factory=dict)
    """When and how each of them did, in words, by the run's index as text (as JSON has it)."""
    best_return: list[float] = field(default_factory=list)
    """[N] mean return at the best evaluation so far; empty before the first."""
    best_step: list[int] = field(default_factory=list)
    """[N] updates of the last phase at that evaluation."""
    has_means: bool = False
    """Whether the checkpoint holds sums of metrics not yet written."""
    has_best: bool = False
    """Whether it holds the best states of early stopping."""
    complete: bool = False
    """Whether training came to its end."""

    def fail(self, run: int, how: str) -> None:
        """Takes note that a run's weights are no numbers any more."""
        self.failed.append(run)
        self.failures[str(run)] = how
