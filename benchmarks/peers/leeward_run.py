"""Trains with Leeward, all seeds in one program: one row of benchmarks/compare.py."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import protocol
from protocol import Job, Stopwatch

import leeward


def main() -> None:
    """Trains, evaluates and writes the result."""
    job = protocol.read_job()
    stopwatch = Stopwatch(job)

    def on_metrics(line: Mapping[str, Any]) -> None:
        if line["run"] == 0:
            stopwatch.after(line["step"])

    with tempfile.TemporaryDirectory() as folder:
        run = leeward.train(
            job.algorithm,
            load(job),
            env=job.env,
            seeds=job.seeds,
            run_dir=Path(folder) / "run",
            on_metrics=on_metrics,
            steps=job.updates,
            log_every=job.warm_up,
            eval_every=0 if job.probe else job.updates,
            eval_episodes=job.episodes,
            checkpoint_every=job.updates,
            logger=(),
            quiet=True,
            **own_settings(job.settings),
        )
        returns = [line["returns"] for line in run.evaluations()]
    protocol.write_result(job, stopwatch, returns, ("leeward", "jax", "jaxlib", "optax"))


def load(job: Job) -> leeward.Dataset:
    """The data set, its rewards scaled as all others' are."""
    dataset = leeward.load_dataset(job.data, env=job.env)
    ends = (dataset.termination | dataset.truncation)[dataset.recorded]
    scale = protocol.reward_scale(job.settings, dataset.reward[dataset.recorded], ends)
    return dataclasses.replace(dataset, reward=dataset.reward * scale)


def own_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are fields of the algorithm's `Config`."""
    return {name: value for name, value in settings.items() if name != "return_range"}


if __name__ == "__main__":
    main()
