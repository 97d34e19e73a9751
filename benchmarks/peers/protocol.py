"""What all runners share, so that only training differs: job, data, clock and episodes.

A runner is started as `python RUNNER.py JOB.json`, trains what the job says and writes its result
as JSON. This file needs NumPy, h5py and Gymnasium only, which every environment here has.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import h5py
import numpy as np

Act = Callable[[np.ndarray], np.ndarray]
"""From observations [K, obs] to actions [K, A]."""


class Job(NamedTuple):
    """What a runner is to do."""

    algorithm: str
    updates: int
    seeds: list[int]
    data: str
    env: str
    episodes: int
    settings: dict[str, Any]
    warm_up: int
    """Updates before the clock starts; lines of metrics are as far apart."""
    probe: bool
    """Only time the first update."""
    started: float
    """When the process was started, seconds since the epoch."""
    result: str
    """The file that the result goes to."""


def read_job() -> Job:
    """The job in the file that the command line names."""
    return Job(**json.loads(Path(sys.argv[1]).read_text()))


class Transitions(NamedTuple):
    """A D4RL file; T transitions, rewards scaled as the settings say."""

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminals: np.ndarray
    timeouts: np.ndarray
    next_observations: np.ndarray


def read_transitions(job: Job) -> Transitions:
    """All transitions of the job's data in float32, ends of episodes as bool."""
    with h5py.File(job.data, "r") as file:
        columns = {name: np.asarray(file[name]) for name in Transitions._fields}
    for name, column in columns.items():
        kind = bool if name in ("terminals", "timeouts") else np.float32
        columns[name] = column.astype(kind)
    found = Transitions(**columns)
    scale = reward_scale(job.settings, found.rewards, found.terminals | found.timeouts)
    return found._replace(rewards=found.rewards * np.float32(scale))


def reward_scale(settings: Mapping[str, Any], rewards: np.ndarray, ends: np.ndarray) -> float:
    """1,000 over the range of the episodes' returns where the settings say so (IQL), else 1.

    Args:
        settings: of the algorithm.
        rewards: [T].
        ends: [T] bool, whether an episode ends there; the last row must end one.
    """
    if "reward_transform" not in settings:
        return 1.0
    if settings["reward_transform"] != "return-range" or not ends[-1]:
        raise ValueError("rewards are scaled by the range of returns of whole episodes only")
    returns = np.add.reduceat(rewards.astype(np.float64), np.flatnonzero(np.roll(ends, 1)))
    return float(1_000 / (returns.max() - returns.min()))


class Stopwatch:
    """Seconds to the first update, and updates a second after the warm-up."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.first_update: float | None = None
        self._begin = self._end = self._now()

    def after(self, step: int) -> None:
        """Says that `step` updates are made."""
        if step == 1:
            self.first_update = time.time() - self._job.started
        if step == self._job.warm_up:
            self._begin = self._now()
        if step == self._job.updates:
            self._end = self._now()

    def _now(self) -> tuple[float, float, float | None]:
        """(wall, this process's CPU, all processes' CPU) seconds."""
        return time.perf_counter(), time.process_time(), busy_seconds()

    def result(self) -> dict[str, Any]:
        """The rate of all seeds together, and how many cores other processes took meanwhile."""
        if self._job.probe:
            return {"first_update_seconds": self.first_update}
        (begin, own_begin, all_begin), (end, own_end, all_end) = self._begin, self._end
        updates = len(self._job.seeds) * (self._job.updates - self._job.warm_up)
        others = None
        if all_begin is not None and all_end is not None:
            others = max(0.0, (all_end - all_begin - (own_end - own_begin)) / (end - begin))
        return {
            "updates_per_second": updates / (end - begin),
            "training_seconds": end - begin,
            "cores_of_others": others,
        }


def busy_seconds() -> float | None:
    """CPU seconds that the machine's cores were not idle since it started; None where not told."""
    try:
        first = Path("/proc/stat").read_text().split("\n", 1)[0]
    except OSError:
        return None
    user, nice, system, _, _, *rest = map(int, first.split()[1:9])
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def episode_returns(act: Act, job: Job, seed: int) -> list[float]:
    """Returns of the policy's episodes, which start as Leeward's evaluation starts them."""
    envs = [gymnasium.make(job.env) for _ in range(job.episodes)]
    observations = np.stack(
        [
            env.reset(seed=int(np.random.SeedSequence([0, seed, i]).generate_state(1)[0]))[0]
            for i, env in enumerate(envs)
        ]
    ).astype(np.float32)
    returns, going = [0.0] * len(envs), set(range(len(envs)))
    while going:
        actions = act(observations)
        for i in sorted(going):
            observations[i], reward, termination, truncation, _ = envs[i].step(actions[i])
            returns[i] += float(reward)
            if termination or truncation:
                going.discard(i)
    for env in envs:
        env.close()
    return returns


def write_result(
    job: Job, stopwatch: Stopwatch, returns: list[list[float]], packages: tuple[str, ...]
) -> None:
    """Writes the rates, the returns (a list a seed), the memory and the versions.

    Args:
        job: whose result it is.
        stopwatch: what it measured.
        returns: of every seed's episodes.
        packages: whose versions are worth keeping.
    """
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    names = (*packages, "numpy", "gymnasium", "mujoco")
    result = stopwatch.result() | {
        "returns": returns,
        "peak_rss_mb": peak / (2**20 if sys.platform == "darwin" else 2**10),
        "versions": {"python": platform.python_version()}
        | {name: metadata.version(name) for name in names},
    }
    Path(job.result).write_text(json.dumps(result))
