"""The training loop: phases, chunks, evaluations, early stopping, checkpoints, interruptions."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from leeward import devices, engine
from leeward.appraisal import Appraiser, appraise_all
from leeward.attendance import OnMetrics, attendance
from leeward.clock import Clock
from leeward.data.dataset import split_by_episode
from leeward.data.sampling import DeviceData, fit_scaling, select_transitions
from leeward.errors import TrainingError
from leeward.job import Job, Position
from leeward.options import seconds
from leeward.progress import View
from leeward.recorder import Recorder
from leeward.saving import Arrays, Keeper
from leeward.streaming import Stream
from leeward.types import Phase

CHUNK_SECONDS = 1.0
"""A chunk of one run is about this long: short enough for a live view and a prompt Ctrl-C."""
FIRST_CHUNK = 16
"""Updates of a phase's first chunk, when nothing is known of its speed."""
MOST_FAILURES = 3
"""Ways in which runs diverged that an error tells; more would hide what to do."""


def run(job: Job, directory: Path, on_metrics: OnMetrics | None = None) -> None:
    """Trains the job from its last checkpoint, or from the start, to its end or its time limit.

    Raises:
        KeyboardInterrupt: SIGINT or SIGTERM; the run was saved.
        TrainingError: weights became infinite or NaN; the last good checkpoint is kept.
    """
    with attendance(job, directory, on_metrics) as (interrupted, view, recorder, appraiser):
        Training(job, directory, view, recorder, appraiser, interrupted).go()


class Pending(NamedTuple):
    """A chunk in flight: its outputs are fetched while the next one runs."""

    phase: int
    step: int
    """Updates made in the phase when it is done."""
    length: int
    average: dict[str, jax.Array]
    finite: jax.Array
    write: bool
    """Whether a line of metrics ends here."""


class Training:
    """One call of `run`: all runs' arrays and everything around them."""

    def __init__(
        self,
        job: Job,
        directory: Path,
        view: View,
        recorder: Recorder,
        appraiser: Appraiser | None,
        interrupted: threading.Event,
    ) -> None:
        self.job, self.directory, self.view, self.interrupted = job, directory, view, interrupted
        limit = job.options.max_time
        self.deadline = math.inf if limit is None else time.monotonic() + seconds(limit)
        scaling = fit_scaling(job.dataset, job.config.normalize_observations)
        self.placement = devices.place(job)
        self.programs = self.placement.programs
        config = engine.stack_configs(job.config, job.settings)
        key = engine.run_keys(list(job.seeds))
        self.config, self.key = self.placement.spread((config, key))
        self.stream = None
        if job.options.data_location == "disk":
            self.stream = Stream(job, scaling, key)
            self.programs = self.stream.programs(self.programs)
            self.data = self.stream.columns
        else:
            self.data = self.placement.data(job.dataset, scaling)
        self.clock = Clock()
        self.pending: Pending | None = None
        self.recorder, self.appraiser = recorder, appraiser
        self.keeper = Keeper(job, directory, config, scaling, self.placement)
        newest = self.keeper.newest()
        if newest is None:
            self.position = Position()
            inputs = job.dataset.spec, self.config, self.key
            self.arrays = Arrays(self.programs.init_states(job.algorithm.init, *inputs))
        else:
            self.position = self.keeper.position(newest)
            self.arrays = self.keeper.restore(
                newest,
                self.position,
                key,
                lambda phase: self._split(self._held_out_fraction(phase))[0],
            )
            view.event(f"resumed from {newest}")
        self.recorder.begin(self.position)
        if self.placement.mesh is not None:
            view.event(str(self.placement))

    def go(self) -> None:
        """All phases that are left, then the final policy."""
        position, last = self.position, self.job.last_phase
        if position.complete and (position.step >= self.job.steps or position.stopped):
            more = "train on with --resume and more --steps"
            if position.stopped:
                more = "early stopping has ended it"
            self.view.event(f"{self.directory} is finished after {position.step} updates: {more}")
            return
        position.complete = False
        for index in range(position.phase, last + 1):
            if not self._phase(index):
                return
            if index < last:
                position.phase, position.step, position.stopped = index + 1, 0, []
                self._save()
        self._finish()

    def _phase(self, index: int) -> bool:
        """All updates of one phase that are left; False if time ran out."""
        job, position, phase = self.job, self.position, self.job.algorithm.phases[index]
        fraction = self._held_out_fraction(phase)
        data, held_out = self._split(fraction)
        if position.step == 0 and phase.enter is not None:
            self.arrays.state = self.programs.enter_phase(
                phase, index, self.config, self.arrays.state, data, self.key
            )
        if fraction and self._validation(phase)[1] and self.arrays.best is None:
            first = engine.first_best(self.arrays.state, self.placement.rows)
            self.arrays.best = self.placement.spread(first)
        end = job.phase_steps(index)
        if self.stream is not None:
            self.stream.begin(index, fraction, position.step, end)
        self.view.start(phase.name, position.step, end)
        limit = FIRST_CHUNK
        while position.step < end and len(position.stopped) < job.runs:
            length = min(self._next_stop(phase, index, end) - position.step, limit)
            if self.stream is not None:
                length = min(length, self.stream.ready(position.step))
            self._chunk(phase, index, data, length, end)
            if held_out is not None and (
                position.step == end or position.step % self._validation(phase)[0] == 0
            ):
                self._validate(phase, index, held_out)
            if self._evaluates(index) and self._due(job.options.eval_every, end):
                self._evaluate()
            if self._due(job.options.checkpoint_every, end):
                self._save()
            if self._told_to_stop():
                return False
            longer = min(1.0 + job.runs / 32, 2.5)  # on CPU a chunk moves every run's state once
            limit = self.clock.chunk_limit(CHUNK_SECONDS * longer, length)
        self._settle()
        if self.arrays.means is not None:  # ended early, between two lines
            average = {
                name: self.placement.numbers(value)
                for name, value in engine.averages(self.arrays.means).items()
            }
            self._write(index, position.step, average)
            self.arrays.means = None
        if self.arrays.best is not None:
            self.arrays.state, self.arrays.best = self.arrays.best.state, None
        if phase.measurement is not None:
            state = self.config, self.arrays.state
            numbers = self.programs.measure(phase.measurement, *state, data, held_out)
            found = {name: self.placement.numbers(value) for name, value in numbers.items()}
            for line in self.recorder.measurement(index, position.step, found, position.failed):
                self.view.event(line)
            self.keeper.close_up(phase, self.arrays.state, data if held_out is None else held_out)
        return True

    def _chunk(self, phase: Phase, index: int, data: DeviceData, length: int, end: int) -> None:
        """Starts one chunk, then takes care of the results of the one before it."""
        position, arrays = self.position, self.arrays
        if arrays.means is None:
            arrays.means = self.programs.zero_means(
                phase, index, self.config, arrays.state, data, self.key
            )
        first = jnp.int32(position.step), jnp.int32(length)
        arrays.state, arrays.means, average, finite = self.programs.run_chunk(
            phase, index, self.config, arrays.state, data, self.key, arrays.means, *first
        )
        self._settle()
        position.step += length
        position.updates += length
        write = position.step % self.job.options.log_every == 0 or position.step == end
        self.pending = Pending(index, position.step, length, average, finite, write)
        if write:
            arrays.means = None

    def _settle(self) -> None:
        """Waits for the chunk in flight, if any, and writes its line."""
        pending, self.pending = self.pending, None
        if pending is None:
            self.clock.start()
            return
        finite = self.placement.numbers(pending.finite)
        self.clock.chunk(pending.length)
        self.view.advance(pending.step, self.clock.rate * self.job.runs)
        average = {name: self.placement.numbers(v) for name, v in pending.average.items()}
        self._check_finite(pending, finite, average)
        if pending.write:
            self._write(pending.phase, pending.step, average)

    def _write(self, phase: int, step: int, average: Mapping[str, np.ndarray]) -> None:
        rate = self.clock.window_rate() * self.job.runs
        self.recorder.metrics(phase, step, average, rate, self.position.failed)

    def _check_finite(
        self, pending: Pending, finite: np.ndarray, average: Mapping[str, np.ndarray]
    ) -> None:
        """Takes note of runs that diverged; ends training when none is left."""
        when = (
            f"between updates {pending.step - pending.length} and {pending.step} of phase "
            f"{self.job.algorithm.phases[pending.phase].name}"
        )
        note_failures(self.job, self.position, finite, average, when, self.view)
        if len(self.position.failed) == self.job.runs:
            raise divergence(self.job, self.directory, self.position, self.keeper.last_good())

    # --- Boundaries ---

    def _next_stop(self, phase: Phase, index: int, end: int) -> int:
        """The next update at which something other than updating is due."""
        options, step = self.job.options, self.position.step
        periods = [options.log_every, options.checkpoint_every]
        if self._held_out_fraction(phase):
            periods.append(self._validation(phase)[0])
        if self._evaluates(index):
            periods.append(options.eval_every)
        return min(end, *((step // period + 1) * period for period in periods))

    def _due(self, period: int, end: int) -> bool:
        """Whether a multiple of `period` is reached; what is due at the end is done there."""
        return self.position.step < end and self.position.step % period == 0

    def _evaluates(self, index: int) -> bool:
        return index == self.job.last_phase and self.appraiser is not None

    def _told_to_stop(self) -> bool:
        """Saves and raises when interrupted; saves and returns True when time is over."""
        interrupted = self.interrupted.is_set()
        if not interrupted and time.monotonic() < self.deadline:
            return False
        self._save()
        self.view.event(
            f"{'interrupted' if interrupted else 'out of time'}: saved after "
            f"{self.position.step} updates of phase "
            f"{self.job.algorithm.phases[self.position.phase].name}; continue with "
            f"leeward train --resume {self.directory}"
        )
        if interrupted:
            raise KeyboardInterrupt
        return True

    # --- Early stopping ---

    def _held_out_fraction(self, phase: Phase) -> float:
        if phase.early_stopping is None:
            return 0.0
        return float(phase.early_stopping.fraction(self.job.config))

    def _validation(self, phase: Phase) -> tuple[int, int]:
        """(updates between measurements, patience)."""
        assert phase.early_stopping is not None
        config = self.job.config
        return phase.early_stopping.every(config), phase.early_stopping.patience(config)

    def _split(self, fraction: float) -> tuple[DeviceData, DeviceData | None]:
        """(training, held-out) data on the device; rows are shared."""
        if self.stream is not None:
            return self.stream.split(fraction)
        if not fraction:
            return self.data, None
        training, held_out = split_by_episode(self.job.dataset, fraction, seed=0)
        parts = (select_transitions(self.data, part) for part in (training, held_out))
        data, rest = map(self.placement.share, parts)
        return data, rest

    def _validate(self, phase: Phase, index: int, held_out: DeviceData) -> None:
        """Measures the held-out loss of every run and keeps the best states."""
        assert phase.early_stopping is not None
        self._settle()
        patience = self._validation(phase)[1]
        given = self.config, self.arrays.state, held_out
        loss = self.programs.held_out_loss(phase.early_stopping, *given)
        self.recorder.validation(index, self.position.step, self.placement.numbers(loss))
        self.clock.start()
        if self.arrays.best is None:  # only measured
            return
        given = self.arrays.best, self.arrays.state, loss
        self.arrays.best = best = self.programs.keep_best(*given, jnp.int32(patience))
        ended = np.flatnonzero(self.placement.numbers(best.since) >= patience)
        self.position.stopped = [int(run) for run in ended]

    # --- Evaluation and saving ---

    def _evaluate(self) -> None:
        """Finds out what every run's policy is worth and keeps the best policies."""
        assert self.appraiser is not None
        self._settle()
        appraise_all(
            self.job,
            self.keeper,
            self.appraiser,
            self.arrays,
            self.position,
            self.recorder,
            self.view,
        )
        self.clock.start()

    def _finish(self) -> None:
        """The last evaluation, the final policy and the last checkpoint."""
        if self.appraiser is not None:
            self._evaluate()
        policy = self.keeper.policies(self.arrays.state)
        steps = [self.position.step] * self.job.runs
        self.keeper.save_policy(self.directory / "final", policy, steps)
        self.position.complete = True
        self._save()
        if self.position.failed:
            raise divergence(self.job, self.directory, self.position, self.keeper.last_good())

    def _save(self) -> None:
        self._settle()
        self.recorder.mark(self.position)
        self.keeper.save(self.arrays, self.position)
        self.clock.start()


def note_failures(
    job: Job,
    position: Position,
    finite: np.ndarray,
    average: Mapping[str, np.ndarray],
    when: str,
    view: View,
) -> None:
    """Takes note of the runs whose weights are no numbers any more, and says so.

    Args:
        job: what is trained.
        position: gets the runs that failed now.
        finite: [N] whether all weights are finite.
        average: means of metrics [N], to name those that show it.
        when: between which updates.
        view: where it is said.
    """
    for run in map(int, np.flatnonzero(~finite)):
        if run in position.failed:
            continue
        broken = [name for name, value in average.items() if not np.isfinite(value[run])]
        also = f"and so did {', '.join(broken)}" if broken else "with all metrics still finite"
        how = f"weights became NaN or infinite {when}, {also}"
        position.fail(run, how)
        view.event(f"{job.run_name(run)}: {how}")


def divergence(
    job: Job, directory: Path, position: Position, last_good: Path | None
) -> TrainingError:
    """The error that says which runs diverged, when and how, why perhaps, and what is left.

    Args:
        job: what was trained.
        directory: its run directory.
        position: which runs failed.
        last_good: the newest checkpoint from before any did.
    """
    alike: dict[str, list[str]] = {}
    for run in position.failed:
        how = position.failures.get(str(run), "log.txt says how")  # of an older version's run
        alike.setdefault(how, []).append(job.run_name(run))
    told = [f"{', '.join(names)}: {how}" for how, names in list(alike.items())[:MOST_FAILURES]]
    if len(alike) > MOST_FAILURES:
        told.append(f"{len(alike) - MOST_FAILURES} other cases are in log.txt")
    causes = ["a learning rate too high", "rewards of great size"]
    if hasattr(job.config, "margin"):
        causes.append("actions on the bounds under a tanh density (a wider --margin)")
    kept = "no checkpoint was made before"
    if last_good is not None:
        kept = f"{last_good}, made before, is kept"
    return TrainingError(
        f"{directory}: training diverged ({'; '.join(told)}; {kept}): likely causes are "
        f"{', '.join(causes[:-1])} or {causes[-1]}"
    )
