"""What a training run saves and gets back: its checkpoints, with a usable policy in each."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from leeward import checkpoint, closeups, engine
from leeward.data.hints import NAMES
from leeward.data.sampling import DeviceData, Scaling
from leeward.devices import Placement
from leeward.errors import ConfigError
from leeward.job import Job, Position
from leeward.policy import PolicyStack, TrainedRun, save_policy
from leeward.types import Phase

KEPT = ("reference", "reference_scores", "reward_transform", *NAMES)
"""Metadata of the data that are saved with every policy: what scores are normalized by, what was
done to rewards, what columns are called."""


@dataclass
class Arrays:
    """The arrays of a training run, stacked over N runs."""

    state: Any
    means: engine.Means | None = None
    """Sums of metrics not yet written."""
    best: engine.Best | None = None
    """Early stopping's best states."""
    best_policy: Any = None
    """The best policies by evaluation; None before the first one."""

    def present(self) -> dict[str, Any]:
        """The parts that there are, by name."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {name: part for name, part in fields.items() if part is not None}


class Keeper:
    """Saves and restores one job in one run directory."""

    def __init__(
        self,
        job: Job,
        directory: Path,
        config: Any,
        scaling: Scaling,
        placement: Placement | None = None,
    ) -> None:
        self._job, self._config, self._scaling = job, config, scaling
        self._placement = placement or Placement(job.runs)
        self._directory, self._checkpoints = directory, directory / "checkpoints"
        self.best = directory / "best"
        """Folder of the best policies."""

    def close_up(self, phase: Phase, state: Any, data: DeviceData) -> None:
        """Writes what a phase shows of single transitions at its end, if it shows anything."""
        closeup = None if phase.measurement is None else phase.measurement.closeup
        if closeup is not None:
            shown = engine.close_up(closeup, self._config, self._placement.gather(state), data)
            closeups.write(self._directory, phase.name, shown)

    def newest(self) -> Path | None:
        """The newest complete checkpoint."""
        found = checkpoint.complete(self._checkpoints)
        return found[-1] if found else None

    def last_good(self) -> Path | None:
        """The newest complete checkpoint from before any run diverged; it is never removed."""
        for folder in reversed(checkpoint.complete(self._checkpoints)):
            if not checkpoint.manifest(folder)["failed"]:
                return folder
        return None

    def save(
        self,
        arrays: Arrays,
        position: Position,
        more: Mapping[str, Any] = MappingProxyType({}),
        facts: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """A checkpoint of everything that is needed to go on as if nothing had happened.

        Args:
            arrays: the arrays of training.
            position: where it stands.
            more: further arrays, by name.
            facts: further JSON values.
        """
        position.has_means, position.has_best = arrays.means is not None, arrays.best is not None
        phase = self._job.algorithm.phases[position.phase].name
        last = position.phase == self._job.last_phase
        present = {name: self._placement.gather(part) for name, part in arrays.present().items()}
        checkpoint.save(
            self._checkpoints,
            str(position.step) if last else f"{phase}-{position.step}",
            {**present, **more},
            {**dataclasses.asdict(position), **facts},
            lambda folder: self.save_policy(
                folder / "policy",
                self._job.algorithm.policy(present["state"]),
                [position.step] * self._job.runs,
            ),
        )
        spared = self.last_good() if position.failed else None  # else it is the one just made
        checkpoint.keep_last(self._checkpoints, self._job.options.keep_checkpoints, spared)

    def position(self, folder: Path) -> Position:
        """Where the run stood at a checkpoint."""
        return Position(**checkpoint.manifest(folder))

    def restore(
        self,
        folder: Path,
        position: Position,
        key: jax.Array,
        phase_data: Callable[[Phase], DeviceData],
    ) -> Arrays:
        """The arrays of a checkpoint made at `position`."""
        algorithm, config, index = self._job.algorithm, self._config, position.phase
        like = Arrays(
            jax.eval_shape(
                lambda: engine.init_states(algorithm.init, self._job.dataset.spec, config, key)
            )
        )
        for earlier, phase in enumerate(algorithm.phases[: index + (position.step > 0)]):
            if phase.enter is not None:
                enter = functools.partial(engine.enter_phase, phase, earlier)
                like.state = jax.eval_shape(enter, config, like.state, phase_data(phase), key)
        phase = algorithm.phases[index]
        if position.has_means:
            zero = functools.partial(engine.zero_means, phase, index)
            like.means = jax.eval_shape(zero, config, like.state, phase_data(phase), key)
        if position.has_best:
            first = functools.partial(engine.first_best, runs=self._job.runs)
            like.best = jax.eval_shape(first, like.state)
        if position.best_return:
            like.best_policy = algorithm.policy(like.state)
        found = Arrays(**checkpoint.restore(folder, like.present()))
        for name in ("state", "means", "best"):  # the best policies are of no program
            setattr(found, name, self._placement.spread(getattr(found, name)))
        return found

    def policies(self, state: Any) -> Any:
        """The policies of all runs [N, …] on one device, from states as they are trained."""
        policies = self._placement.gather(self._job.algorithm.policy(state))
        return jax.tree.map(jnp.asarray, policies)

    def stack(self, policies: Any, steps: list[int], returns: list[float] | None) -> PolicyStack:
        """The policies of all runs, ready to act.

        Args:
            policies: `algorithm.policy` of the stacked state.
            steps: [N] updates of the last phase that each had.
            returns: [N] mean return of each at its evaluation, where there was one.
        """
        job = self._job
        environment = job.environment
        return PolicyStack(
            algorithm=job.algorithm,
            config=self._config,
            spec=job.dataset.spec,
            scaling=self._scaling,
            policies=policies,
            runs=tuple(
                TrainedRun(
                    seed=job.seeds[run],
                    settings=job.settings[run],
                    step=steps[run],
                    return_mean=None if returns is None else returns[run],
                )
                for run in range(job.runs)
            ),
            env=environment if isinstance(environment, str) else None,
            data={
                "name": str(job.dataset.metadata.get("name", "data")),
                "hash": job.dataset_hash,
                "ranges": job.ranges,
                **{n: job.dataset.metadata[n] for n in KEPT if n in job.dataset.metadata},
            },
        )

    def save_policy(
        self, folder: Path, policies: Any, steps: list[int], returns: list[float] | None = None
    ) -> None:
        """The policies of all runs as a folder that loads without the data."""
        save_policy(folder, self.stack(policies, steps, returns))


def check_goes_on(job: Job, directory: Path) -> None:
    """Raises ConfigError where more steps are asked of a run that early stopping has ended.

    Its weights are the best ones of each seed; the last ones, from which it would go on, are gone.
    """
    found = checkpoint.complete(directory / "checkpoints")
    position = checkpoint.manifest(found[-1]) if found else {}
    if position.get("complete") and position["stopped"] and job.steps > position["step"]:
        names = ", ".join(job.run_name(run) for run in position["stopped"])
        raise ConfigError(
            f"{directory}: early stopping has ended {names} and kept the best weights, so it "
            "cannot train on: start a new run with another patience"
        )


def better_runs(mean_return: np.ndarray, position: Position, step: int) -> np.ndarray:
    """[N] which runs have their best evaluation so far; `position` takes note of it."""
    runs = len(mean_return)
    before = np.array(position.best_return or [-np.inf] * runs)
    better = mean_return > before
    position.best_return = np.where(better, mean_return, before).tolist()
    steps = np.array(position.best_step or [0] * runs)
    position.best_step = np.where(better, step, steps).tolist()
    return better
