"""Updates a second of 1, 10 and 100 seeds as one program, for a machine with an accelerator.

TD3+BC and Fisher-BRC on vectors of HalfCheetah's shapes, CQL on frames of Pong's. Each case trains
through `leeward.train` in a process of its own for about --seconds after its first line of metrics,
synthetic data, no evaluation. One JSON line a case is appended as soon as it is measured, so that a
run cut short keeps what it has; a case that fails has a line with its error. With --tiny, networks
and data are so small that it runs anywhere: that tests the script, not the machine.

    python benchmarks/gpu.py --out gpu.jsonl
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from one_training import Job, in_child
from records import HERE, append, surroundings

SEEDS = (1, 10, 100)


class Row(NamedTuple):
    """One algorithm."""

    name: str
    job: Job
    log_every: tuple[int, ...]
    """Updates between lines, for each of SEEDS: a second or so each."""


ROWS = (
    Row("td3-bc", Job("td3_bc", {}), (2_000, 1_000, 200)),
    Row("fisher-brc", Job("fisher_brc", {"bc_pretraining_steps": 200}), (500, 200, 50)),
    Row("pixel cql", Job("discrete_cql", {}, transitions=20_000, pixels=True), (200, 50, 10)),
)
TINY = {"hidden": (8,), "batch_size": 4}
"""Settings that compile and train in seconds."""


def cases(options: argparse.Namespace) -> Iterator[tuple[str, Job]]:
    """What to measure, few seeds first."""
    for place, seeds in enumerate(SEEDS):
        for row in ROWS:
            if seeds not in options.seeds or (options.only and row.name not in options.only):
                continue
            settings: dict[str, Any] = {**row.job.settings, "steps": 10**9}
            settings |= {"log_every": row.log_every[place]}
            job = row.job._replace(seeds=seeds, settings=settings, enough=options.seconds)
            yield row.name, smaller(job) if options.tiny else job


def smaller(job: Job) -> Job:
    """The same with networks, data and lengths for a test of the script."""
    settings = {**job.settings, "steps": 6, "log_every": 2, **TINY}
    if "bc_pretraining_steps" in settings:
        settings |= {"bc_pretraining_steps": 2, "behavior_hidden": (8,)}
    return job._replace(settings=settings, transitions=200, side=36)


def main() -> None:
    """Measures case after case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=int, default=20, help="of every case")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, choices=SEEDS)
    parser.add_argument("--only", nargs="*", help="names of rows")
    parser.add_argument("--tiny", action="store_true", help="a quick test of the script")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "gpu.jsonl")
    options = parser.parse_args()
    for name, job in cases(options):
        line: dict[str, Any] = {"row": name, "seeds": job.seeds, "tiny": options.tiny}
        try:
            line |= in_child(job)
        except subprocess.CalledProcessError as error:
            line["error"] = f"exit code {error.returncode}"
        append(options.out, line | surroundings())
        print(line, flush=True)


if __name__ == "__main__":
    main()
