"""Trains with Leeward, all seeds in one program: one row of benchmarks/compare.py."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import protocol
from protocol import Stopwatch

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
            job.data,
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
            **job.settings,
        )
        returns = [line["returns"] for line in run.evaluations()]
    protocol.write_result(job, stopwatch, returns, ("leeward", "jax", "jaxlib", "optax"))


if __name__ == "__main__":
    main()
