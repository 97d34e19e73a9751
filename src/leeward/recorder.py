"""`Recorder`: writes what a run measures, to JSON lines, loggers, the live view and the caller."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from leeward.evaluate import Evaluation
from leeward.held_out import favored
from leeward.job import Job, Position
from leeward.logging import JsonLines, Logger, close_all, make_loggers
from leeward.progress import View
from leeward.run import keep_favored
from leeward.types import UNMEASURED


class Recorder:
    """The files of one run directory that grow while it trains."""

    def __init__(
        self,
        job: Job,
        directory: Path,
        view: View,
        on_metrics: Callable[[Mapping[str, Any]], None] | None,
    ) -> None:
        self._job, self._directory, self._view = job, directory, view
        self._on_metrics = on_metrics
        self._metrics = JsonLines(directory / "metrics.jsonl")
        self._evaluations = JsonLines(directory / "evaluations.jsonl")
        self._loggers: list[Logger] = []

    def begin(self, position: Position) -> None:
        """Cuts the files back to `position`, so that no line stands twice, and opens loggers."""
        job = self._job
        whole = [
            self._metrics.cut(position.metrics_size),
            self._evaluations.cut(position.evaluations_size),
        ]
        if not all(whole):
            self._view.event(
                "metrics.jsonl or evaluations.jsonl is shorter than at the checkpoint: lines from "
                "before it are missing"
            )
        self._loggers = make_loggers(
            job.options.logger,
            self._directory,
            [job.run_name(run) for run in range(job.runs)],
            {"algorithm": job.algorithm.name, "seeds": list(job.seeds)},
            job.logger_step(position.phase, position.step) + 1 if position.updates else None,
        )

    def mark(self, position: Position) -> None:
        """Puts the files on the disk itself, and their sizes into `position`."""
        position.metrics_size = self._metrics.settle()
        position.evaluations_size = self._evaluations.settle()

    def metrics(
        self,
        phase: int,
        step: int,
        average: Mapping[str, np.ndarray],
        rate: float,
        without: Collection[int],
    ) -> None:
        """One line a run of the means [N] over the updates since the last line.

        Args:
            phase: index of the phase.
            step: updates made in it.
            average: name → [N]; null on the line where it is UNMEASURED or not finite.
            rate: updates a second, all runs together.
            without: runs that get no line.
        """
        job = self._job
        for run in range(job.runs):
            if run in without:
                continue
            values = {name: _measured(float(value[run])) for name, value in average.items()}
            values["time/updates_per_second"] = rate
            self._write_row(run, phase, step, values)
            self._log(run, phase, step, "training", values)
            if run == 0:
                self._view.note(values)

    def validation(self, phase: int, step: int, loss: np.ndarray) -> None:
        """One line a run of its held-out loss [N]."""
        for run, value in enumerate(loss):
            values = {"validation/loss": float(value)}
            self._write_row(run, phase, step, values)
            self._log(run, phase, step, "validation", {"loss": float(value)})

    def measurement(
        self, phase: int, step: int, numbers: Mapping[str, np.ndarray], without: Collection[int]
    ) -> Iterator[str]:
        """One line a run of what the phase measured at its end [N].

        Yields:
            The phase's warnings, each with the run's name; last, which settings are favored, which
            the run directory keeps.
        """
        measurement = self._job.algorithm.phases[phase].measurement
        assert measurement is not None
        if not numbers:  # nothing was held out that could be measured
            return
        for run in range(self._job.runs):
            if run in without:
                continue
            values = {name: float(value[run]) for name, value in numbers.items()}
            self._write_row(run, phase, step, values)
            self._log(run, phase, step, "measurement", values)
            for warning in measurement.warnings(values):
                yield f"{self._job.run_name(run)}: {warning}"
        if phase == self._job.last_phase:
            choice = favored(self._job, numbers, without)
            keep_favored(self._directory, None if choice is None else choice.to_json())
            if choice is not None:
                yield choice.text

    def estimate(self, phase: int, step: int, value: np.ndarray, without: Collection[int]) -> None:
        """One line a run of its estimated value [N], left out where there is none."""
        for run, number in enumerate(value):
            if run in without or not math.isfinite(number):
                continue
            values = {"ope/value": float(number)}
            self._write_row(run, phase, step, values)
            self._log(run, phase, step, "ope", {"value": float(number)})

    def evaluation(
        self, phase: int, step: int, result: Evaluation, without: Collection[int]
    ) -> None:
        """One line a run of all its episodes; runs in `without` get none."""
        job = self._job
        for run in range(job.runs):
            if run in without:
                continue
            row = evaluation_row(result, run)
            label = {"phase": job.algorithm.phases[phase].name, "step": step, **job.label(run)}
            self._evaluations.write(label | row)
            # The reference code's names; its "returns" are normalized where that is possible.
            score = row["score_mean"]
            scalars = {
                "returns": row["return_mean"] if score is None else score,
                "return": row["return_mean"],
                "length": float(np.mean(row["lengths"])),
            }
            self._log(run, phase, step, "evaluation", scalars)

    def close(self) -> None:
        """Closes files and loggers, every one."""
        close_all(self._metrics, self._evaluations, *self._loggers)

    def _write_row(self, run: int, phase: int, step: int, values: Mapping[str, float]) -> None:
        name = self._job.algorithm.phases[phase].name
        row = {"phase": name, "step": step, **self._job.label(run), **values}
        self._metrics.write(row)
        if self._on_metrics is not None:
            self._on_metrics(row)

    def _log(
        self, run: int, phase: int, step: int, group: str, values: Mapping[str, float]
    ) -> None:
        names = self._job.algorithm.tensorboard
        scalars = {f"{group}/{names.get(n, n)}": v for n, v in values.items() if math.isfinite(v)}
        for logger in self._loggers:
            logger.scalars(run, self._job.logger_step(phase, step), scalars)


def _measured(mean: float) -> float:
    """The mean, NaN where nothing was measured."""
    return math.nan if mean == UNMEASURED else mean


def evaluation_row(result: Evaluation, run: int) -> dict[str, Any]:
    """Every episode of one run, and their means; `score_mean` is None without a reference."""
    scores = result.mean_score
    return {
        "returns": result.returns[run].tolist(),
        "lengths": result.lengths[run].tolist(),
        "return_mean": float(result.returns[run].mean()),
        "return_std": float(result.returns[run].std()),
        "score_mean": None if scores is None else float(scores[run]),
    }


def summary(result: Evaluation) -> str:
    """One line: the mean return of every run, and its score where there is one."""
    returns = " ".join(f"{value:.1f}" for value in result.mean_return)
    scores = result.mean_score
    if scores is None:
        return f"return {returns}"
    return f"return {returns}   score {' '.join(f'{value:.1f}' for value in scores)}"
