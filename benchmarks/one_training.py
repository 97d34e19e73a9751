"""One training on synthetic data, measured from inside its process; seeds.py and gpu.py start it.

python benchmarks/one_training.py '{"algorithm": "td3_bc", "settings": {"steps": 4000}}'
"""

from __future__ import annotations

import contextlib
import json
import math
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import leeward
from leeward import engine
from leeward.algorithms import get_algorithm
from leeward.data.dataset import Dataset
from leeward.data.sampling import fit_scaling, to_device
from leeward.options import option_names
from leeward.settings import make_config


class Job(NamedTuple):
    """What to train, as JSON has it."""

    algorithm: str
    settings: Mapping[str, Any]
    """Of the algorithm and the run; a float field may be a list."""
    seeds: int = 1
    transitions: int = 200_000
    pixels: bool = False
    """Frames of Pong's shapes in place of HalfCheetah's vectors."""
    side: int = 84
    """Rows and columns of a frame."""
    enough: float | None = None
    """Seconds after the last phase's first line at which training is broken off."""


class EnoughError(Exception):
    """Raised to break off a training that has been measured."""


class Times:
    """Notes when lines of metrics come; peak memory until then."""

    def __init__(self, enough: float | None, last_phase: str) -> None:
        self.enough, self.last_phase = enough, last_phase
        self.begun = time.perf_counter()
        self.lines: list[tuple[int, float]] = []
        self.peak_mb: float | None = None

    def note(self, row: Mapping[str, Any]) -> None:
        """`on_metrics` of a training."""
        if row["run"] != 0 or row["phase"] != self.last_phase:
            return
        now = time.perf_counter()
        self.lines.append((row["step"], now))
        self.peak_mb = peak_memory()
        if self.enough is not None and len(self.lines) > 1 and now > self.lines[0][1] + self.enough:
            raise EnoughError

    def rate(self) -> tuple[int, float]:
        """(updates, seconds) of one run between the first and the last line of the last phase."""
        if len(self.lines) < 2:
            raise ValueError(f"too short to measure: {len(self.lines)} lines of metrics")
        (first, begin), (end, finish) = self.lines[0], self.lines[-1]
        return end - first, finish - begin


def measure(job: Job) -> dict[str, Any]:
    """Trains, and tells updates a second of all runs together, memory and sizes."""
    data = synthetic(job)
    before = peak_memory()
    times = Times(job.enough, get_algorithm(job.algorithm).phases[-1].name)
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(EnoughError):
        leeward.train(
            job.algorithm,
            data,
            run_dir=Path(folder) / "run",
            seeds=range(job.seeds),
            on_metrics=times.note,
            quiet=True,
            logger=(),
            eval_every=0,
            checkpoint_every=10**9,
            **job.settings,
        )
    names = set(option_names())
    settings = {name: value for name, value in job.settings.items() if name not in names}
    config, swept = make_config(get_algorithm(job.algorithm), None, settings)
    runs = job.seeds * math.prod(len(values) for values in swept.values())
    updates, seconds = times.rate()
    device = jax.local_devices()[0]
    statistics = device.memory_stats() or {}
    return {
        "runs": runs,
        "updates_per_second": round(runs * updates / seconds, 2),
        "updates": updates,
        "seconds": round(seconds, 2),
        "first_line_seconds": round(times.lines[0][1] - times.begun, 2),
        "peak_mb": times.peak_mb,
        "peak_mb_saved": peak_memory(),
        "peak_mb_with_data_alone": before,
        "state_bytes": state_bytes(job.algorithm, config, data),
        "program_bytes": program_bytes(job.algorithm, config, data) if runs == 1 else None,
        "device": device.device_kind,
        "devices": len(jax.local_devices()),
        "peak_device_mb": _megabytes(statistics.get("peak_bytes_in_use")),
        "python": platform.python_version(),
        "jax": jax.__version__,
    }


def state_bytes(algorithm: str, config: Any, data: Dataset) -> int:
    """Bytes of everything that training keeps of one run."""
    init = get_algorithm(algorithm).init
    state = jax.eval_shape(lambda key: init(config, data.spec, key), jax.random.key(0))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


def program_bytes(algorithm: str, config: Any, data: Dataset) -> int:
    """Bytes that the compiled chunk of one run needs beyond the data: its state and scratch."""
    found = get_algorithm(algorithm)
    index, phase = len(found.phases) - 1, found.phases[-1]
    columns = to_device(data, fit_scaling(data, config.normalize_observations))
    one, key = engine.stack_configs(config, [{}]), engine.run_keys([0])
    state = engine.init_states(found.init, data.spec, one, key)
    means = engine.zero_means(phase, index, one, state, columns, key)
    step, length = jnp.int32(0), jnp.int32(1)
    lowered = engine.run_chunk.lower(phase, index, one, state, columns, key, means, step, length)
    own = sum(leaf.nbytes for leaf in jax.tree.leaves((one, state, means)))
    return own + lowered.compile().memory_analysis().temp_size_in_bytes


def synthetic(job: Job) -> Dataset:
    """Random episodes of 1,000 steps (ten where there are fewer transitions than 10,000)."""
    draw, count = np.random.default_rng(0), job.transitions
    length = min(1_000, count // 10)
    ends = np.arange(count) % length == length - 1
    reward = draw.normal(size=count).astype(np.float32)
    if job.pixels:
        return Dataset.from_arrays(
            draw.integers(0, 256, (count, job.side, job.side), np.uint8),
            draw.integers(0, 6, count),
            reward,
            np.zeros(count, bool),
            ends,
            action_count=6,
            metadata={"name": "synthetic-frames", "frame_stack": 4},
        )
    return Dataset.from_arrays(
        draw.normal(size=(count, 17)).astype(np.float32),
        draw.uniform(-0.9, 0.9, size=(count, 6)).astype(np.float32),
        reward,
        np.zeros(count, bool),
        ends,
        action_low=-1.0,
        action_high=1.0,
        metadata={"name": "synthetic-vectors"},
    )


def peak_memory() -> float | None:
    """This process's largest resident memory so far in MB, where the system tells it."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return _megabytes(1024 * int(line.split()[1]))


def _megabytes(number: int | None) -> float | None:
    return None if number is None else round(number / 1e6, 2)


def in_child(job: Job) -> dict[str, Any]:
    """`measure` in a process of its own, so that memory and compiled programs are its own."""
    done = subprocess.run(
        [sys.executable, __file__, json.dumps(job._asdict())],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    print(json.dumps(measure(Job(**json.loads(sys.argv[1])))))
