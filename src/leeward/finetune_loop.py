"""The loop of fine-tuning: all runs act and learn together, each in an environment of its own.

Every random number comes from (seed, step) or (seed, episode), and at every checkpoint all runs
begin new episodes, so a fine-tuning that was killed and continued equals one that was not.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from leeward import checkpoint, engine
from leeward import replay_mixed as replay
from leeward.appraisal import Appraiser, appraise_all
from leeward.attendance import OnMetrics, attendance
from leeward.clock import Clock
from leeward.data.sampling import to_device
from leeward.finetune_job import Progress, Start
from leeward.finetune_world import World
from leeward.job import Job, Position
from leeward.loop import divergence, note_failures
from leeward.options import seconds
from leeward.progress import View
from leeward.recorder import Recorder
from leeward.saving import Arrays, Keeper
from leeward.types import Box

PHASE_TAG = 3_000_000
"""Stands for a phase's index in the keys of online updates; phases have smaller ones."""
ACTION_TAG = 4_000_000
"""Folded into a run's key for the actions that it tries."""
NO_DECAY = 2**31 - 1
"""Horizon of rate schedules: so far that rates stay as they were at the start. IQL's authors
fine-tune with a constant rate too (their configs/antmaze_finetune_config.py)."""
VIEW_EVERY = 100
"""Steps between updates of the progress view."""


def run(job: Job, directory: Path, start: Start, on_metrics: OnMetrics | None = None) -> None:
    """Fine-tunes from the last checkpoint, or from `start`, to the end or the time limit.

    Raises:
        KeyboardInterrupt: SIGINT or SIGTERM; the run was saved.
        TrainingError: weights became infinite or NaN; the last good checkpoint is kept.
        SimulationError: the environment failed; so is it then.
    """
    assert job.environment is not None
    assert isinstance(job.dataset.spec.action, Box)
    with (
        attendance(job, directory, on_metrics) as (interrupted, view, recorder, appraiser),
        contextlib.closing(
            World(job.environment, job.seeds, job.dataset.spec.action, start.scaling)
        ) as world,
    ):
        Finetuning(job, directory, start, view, recorder, appraiser, world, interrupted).go()


class Finetuning:
    """One call of `run`: all runs' arrays and everything around them."""

    def __init__(
        self,
        job: Job,
        directory: Path,
        start: Start,
        view: View,
        recorder: Recorder,
        appraiser: Appraiser | None,
        world: World,
        interrupted: threading.Event,
    ) -> None:
        self.job, self.directory, self.start, self.view = job, directory, start, view
        self.recorder, self.appraiser, self.world = recorder, appraiser, world
        self.interrupted, self.clock = interrupted, Clock()
        limit = job.options.max_time
        self.deadline = math.inf if limit is None else time.monotonic() + seconds(limit)
        online = job.algorithm.online
        assert online is not None
        self.online, self.phase = online, job.algorithm.phases[-1]
        self.whole = online.whole_episodes(job.config)
        stacked = engine.stack_configs(job.config, job.settings)
        self.config = dataclasses.replace(stacked, steps=NO_DECAY)
        self.alpha = None if start.alpha_end is None else np.asarray(stacked.alpha)
        self.mean = np.asarray(start.scaling.observation_mean)
        self.std = np.asarray(start.scaling.observation_std)
        self.offline = to_device(job.dataset, start.scaling)
        self.key = engine.run_keys(list(job.seeds))
        self.action_key = jax.vmap(lambda key: jax.random.fold_in(key, ACTION_TAG))(self.key)
        self.keeper = Keeper(job, directory, stacked, start.scaling)
        newest = self.keeper.newest()
        self.position, self.progress = Position(), Progress.of(job.runs, job.steps)
        self.replay = replay.make_online(job.dataset.spec, job.runs, job.steps)
        if newest is None:
            self.arrays = Arrays(self._entered(start.state))
        else:
            self.arrays = self._restore(newest)
            view.event(f"resumed from {newest}")
        self.age = np.zeros(job.runs, np.int32)
        self.total = np.zeros(job.runs)
        recorder.begin(self.position)

    def go(self) -> None:
        """All steps that are left, then the final policy."""
        position, end = self.position, self.job.steps
        if position.complete and position.step >= end:
            self.view.event(
                f"{self.directory} is finished after {position.step} steps: "
                "go on with --resume and more --steps"
            )
            return
        position.complete = False
        if self.keeper.newest() is None:
            if self.start.note is not None:
                self.view.event(self.start.note)
            self._evaluate()  # where it starts from
            self._save()
        self.view.start("online", position.step, end)
        self._begin(range(self.job.runs))
        self.clock.start()
        while position.step < end:
            self._round()
            options, step = self.job.options, position.step
            if step % options.log_every == 0 or step == end:
                self._log()
            if step < end and options.eval_every and step % options.eval_every == 0:
                self._evaluate()
            if step < end and self._told_to_stop():
                return
            if step < end and step % options.checkpoint_every == 0:
                self._save()
                self._begin(range(self.job.runs))
        self._finish()

    # --- Acting ---

    @property
    def alive(self) -> np.ndarray:
        """[N]: runs that have not diverged."""
        return ~np.isin(np.arange(self.job.runs), self.position.failed)

    def _begin(self, runs: Iterable[int]) -> None:
        """New episodes of these runs."""
        for run in runs:
            if run not in self.position.failed:
                self.world.begin(run, self.progress.episode[run])
                self.progress.episode[run] += 1
                self.age[run], self.total[run] = 0, 0.0

    def _end(self, runs: Iterable[int]) -> None:
        """The episodes of these runs are over, at their end or because they are cut."""
        progress = self.progress
        ended = [run for run in runs if self.age[run]]
        for run in ended:
            progress.row[run] += 1  # the row of the last observation
            progress.available[run] = progress.seen[run]
            self.age[run] = 0
        if self.whole and ended:
            self.arrays.state = self._entered(self.arrays.state)

    def _round(self) -> None:
        """One step of all runs, and the updates that follow it."""
        position, progress = self.position, self.progress
        observation = (self.world.observation - self.mean) / self.std
        unit = self._actions(observation)
        alive = self.alive
        answers = self.world.step(unit, alive)
        seen = replay.Seen(
            observation=observation,  # type: ignore[arg-type]
            action=answers.action,  # type: ignore[arg-type]
            reward=self.start.rewards.apply(answers.reward),  # type: ignore[arg-type]
            next_observation=(answers.observation - self.mean) / self.std,  # type: ignore[arg-type]
            termination=answers.termination,  # type: ignore[arg-type]
            number=np.array(progress.seen, np.int32),  # type: ignore[arg-type]
            row=np.array(progress.row, np.int32),  # type: ignore[arg-type]
            age=self.age.copy(),  # type: ignore[arg-type]
            alive=alive,  # type: ignore[arg-type]
        )
        self.replay = replay.remember(self.replay, seen, getattr(self.config, "n_step", 1))
        self.age[alive] += 1
        self.total += answers.reward
        for run in map(int, np.flatnonzero(alive)):
            progress.seen[run] += 1
            progress.row[run] += 1
            if not self.whole:
                progress.available[run] = progress.seen[run]
        position.step += 1
        position.updates = position.step
        over = [int(run) for run in np.flatnonzero(answers.termination | answers.truncation)]
        for run in over:
            progress.returns[run].append(float(self.total[run]))
            progress.lengths[run].append(int(self.age[run]))
        self._end(over)
        self._begin(over)
        self._learn()
        if position.step % VIEW_EVERY == 0:
            rate = self.clock.rate / self.start.updates_per_step
            self.view.advance(position.step, rate, "steps")

    def _actions(self, observation: np.ndarray) -> np.ndarray:
        """[N, A] in network units; runs whose policies give no numbers are given up."""
        policies = self.job.algorithm.policy(self.arrays.state)
        unit = np.asarray(
            replay.explore_all(
                self.online.explore,
                policies,
                observation,
                self.action_key,
                jnp.int32(self.position.step),
            )
        )
        for run in map(int, np.flatnonzero(self.alive & ~np.isfinite(unit).all(axis=1))):
            how = f"its action became NaN or infinite at step {self.position.step + 1}"
            self.position.fail(run, how)
            self.view.event(f"{self.job.run_name(run)}: {how}")
        self._check_any_left()
        return np.where(np.isfinite(unit), unit, 0.0).astype(np.float32)

    # --- Learning ---

    def _own(self) -> replay.Own:
        numbers = np.arange(self.job.runs), np.array(self.progress.available)
        return replay.Own(*(each.astype(np.int32) for each in numbers), self.key)  # type: ignore[arg-type]

    def _learn(self) -> None:
        """The updates that are due, once every run has something to draw from."""
        progress, start = self.progress, self.start
        due = start.updates_per_step * self.position.step - progress.learned
        if min(np.array(progress.available)[self.alive]) == 0:
            return
        way, own = (self.phase, PHASE_TAG, start.mixture), self._own()
        data = self.offline, self.replay
        config, state = self._config(), self.arrays.state
        if self.arrays.means is None:
            self.arrays.means = replay.no_means(*way, config, state, *data, own)
        first = jnp.int32(start.step + progress.learned)
        self.arrays.state, self.arrays.means, finite = replay.update_mixed(
            *way, config, state, *data, own, self.arrays.means, first, jnp.int32(due)
        )
        progress.learned += due
        self._check_finite(np.asarray(finite))
        self.clock.chunk(due)

    def _check_finite(self, finite: np.ndarray) -> None:
        """Takes note of runs that diverged; ends fine-tuning when none is left."""
        if not (self.alive & ~finite).any():
            return
        when = f"in the updates after step {self.position.step}"
        note_failures(self.job, self.position, finite, self._averages(), when, self.view)
        self._check_any_left()

    def _check_any_left(self) -> None:
        """Raises TrainingError where all runs have diverged."""
        if len(self.position.failed) == self.job.runs:
            raise self._divergence()

    def _config(self) -> Any:
        """The config of this step: α goes geometrically from where it was to its end."""
        begun, end = self.alpha, self.start.alpha_end
        if begun is None or end is None:
            return self.config
        share = min(1.0, self.position.step / self.start.horizon)
        alpha = (begun * (end / begun) ** share).astype(np.float32)
        return dataclasses.replace(self.config, alpha=jnp.asarray(alpha))

    def _entered(self, state: Any) -> Any:
        """The state with what the phase computes of whole episodes, those seen online included."""
        if not self.whole:
            return state
        return replay.enter_again(
            self.phase, PHASE_TAG, self.config, state, self.offline, self.replay, self._own()
        )

    # --- Writing ---

    def _log(self) -> None:
        """One line a run: means since the last one."""
        position, progress, average = self.position, self.progress, self._averages()
        self.arrays.means = None
        average["online/return"] = _means(progress.returns)
        average["online/length"] = _means(progress.lengths)
        rate = self.clock.window_rate() * self.job.runs
        self.recorder.metrics(0, position.step, average, rate, position.failed)
        for lists in (progress.returns, progress.lengths):
            for one in lists:
                one.clear()

    def _averages(self) -> dict[str, np.ndarray]:
        """The means of all metrics [N] since the last line; empty where nothing was learned."""
        if self.arrays.means is None:
            return {}
        means = engine.averages(self.arrays.means)
        return {name: np.asarray(value) for name, value in means.items()}

    def _evaluate(self) -> None:
        """Finds out what every run's policy is worth and keeps the best policies."""
        if self.appraiser is None:
            return
        parts = self.arrays, self.position, self.recorder, self.view
        appraise_all(self.job, self.keeper, self.appraiser, *parts, "steps")
        self.clock.start()

    def _finish(self) -> None:
        """The last evaluation, the final policy and the last checkpoint."""
        self._evaluate()
        policy = self.job.algorithm.policy(self.arrays.state)
        steps = [self.position.step] * self.job.runs
        self.keeper.save_policy(self.directory / "final", policy, steps)
        self.position.complete = True
        self._save()
        if self.position.failed:
            raise self._divergence()

    def _divergence(self) -> Exception:
        return divergence(self.job, self.directory, self.position, self.keeper.last_good())

    def _told_to_stop(self) -> bool:
        """Saves and raises when interrupted; saves and returns True when time is over."""
        interrupted = self.interrupted.is_set()
        if not interrupted and time.monotonic() < self.deadline:
            return False
        self._save()
        self.view.event(
            f"{'interrupted' if interrupted else 'out of time'}: saved after "
            f"{self.position.step} steps; continue with leeward finetune --resume "
            f"{self.directory}"
        )
        if interrupted:
            raise KeyboardInterrupt
        return True

    # --- Checkpoints ---

    def _save(self) -> None:
        """A checkpoint, at which all episodes are cut: an environment's state cannot be saved."""
        self._end(range(self.job.runs))
        self.recorder.mark(self.position)
        progress = self.progress
        kept = replay.kept(self.replay, self.job.runs, *_kept(progress))
        facts = {"online": dataclasses.asdict(progress)}
        self.keeper.save(self.arrays, self.position, {"replay": kept}, facts)
        self.clock.start()

    def _restore(self, newest: Path) -> Arrays:
        """The arrays of a checkpoint, and everything else as it was there."""
        facts = checkpoint.manifest(newest)
        self.progress = progress = Progress(**facts.pop("online"))
        self.position = Position(**facts)
        spec, runs, room = self.job.dataset.spec, self.job.runs, progress.room
        self.replay = replay.make_online(spec, runs, room)
        like = Arrays(jax.eval_shape(self._entered, self.start.state))
        if self.position.has_means:
            way, own = (self.phase, PHASE_TAG, self.start.mixture), self._own()
            like.means = jax.eval_shape(
                lambda state: replay.no_means(
                    *way, self.config, state, self.offline, self.replay, own
                ),
                like.state,
            )
        if self.position.best_return:
            like.best_policy = self.job.algorithm.policy(like.state)
        kept = replay.kept_shapes(spec, runs, *_kept(progress))
        arrays: dict[str, Any] = checkpoint.restore(newest, {**like.present(), "replay": kept})
        progress.room = self.job.steps
        self.replay = replay.restored(arrays.pop("replay"), spec, runs, progress.room)
        restored = Arrays(**arrays)
        if progress.room != room:
            restored.state = self._entered(restored.state)
        return restored


def _kept(progress: Progress) -> tuple[int, int]:
    """Rows and transitions of every run that a checkpoint holds: at least one, not to be empty."""
    return max(1, *progress.row), max(1, *progress.seen)


def _means(values: list[list[Any]]) -> np.ndarray:
    """[N]: the mean of each, NaN of none."""
    return np.array([np.mean(one) if one else np.nan for one in values])
