"""Many runs as one program: throughput and memory of TD3+BC, 8 seeds × 4 settings beside one run.

Each case trains through `leeward.train` in a process of its own, in turn, several rounds, on
synthetic data of HalfCheetah's shapes; the machine must be idle. Asked for: at least 95 % of one
run's updates a second, all runs together, and at most 1.3 times one run's memory for each.

Both are compiled before, so that the compiler's memory is not taken for theirs.

Memory for each run, beyond the data, is (peak of N runs − peak of one run) / (N − 1), the peaks
being the process's largest resident memory while it trains: what a further run costs. It is
compared with what one run's compiled program needs beyond the data, its state (networks, targets,
optimizers) and scratch, without anything that a process needs but once. Results are appended to
benchmarks/results/seeds.jsonl.

    python benchmarks/seeds.py --rounds 3
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from one_training import Job, in_child
from records import HERE, append, surroundings

ALPHAS = (1.0, 2.0, 2.5, 4.0)
CASES = {
    "1 run": Job("td3_bc", {"steps": 6_000, "log_every": 500}),
    "8 seeds × 4 settings": Job(
        "td3_bc", {"alpha": list(ALPHAS), "steps": 400, "log_every": 100}, seeds=8
    ),
}


def scaled(job: Job, scale: float) -> Job:
    """The same with another number of updates."""
    lengths = {name: max(1, round(scale * job.settings[name])) for name in ("steps", "log_every")}
    return job._replace(settings={**job.settings, **lengths})


def summary(found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The two ratios that were asked for, by medians over rounds."""
    one, many = (
        {
            name: statistics.median(result[name] for result in found[case])
            for name in ("updates_per_second", "peak_mb")
        }
        for case in CASES
    )
    runs, one_run = found["8 seeds × 4 settings"][0]["runs"], found["1 run"][0]
    state, program = (one_run[name] / 1e6 for name in ("state_bytes", "program_bytes"))
    more = (many["peak_mb"] - one["peak_mb"]) / (runs - 1)
    return {
        "row": "td3-bc, 32 runs as one program",
        "throughput_of_one_run": round(many["updates_per_second"] / one["updates_per_second"], 3),
        "memory_mb_each": round(more, 2),
        "state_mb_each": round(state, 2),
        "program_mb_of_one_run": round(program, 2),
        "memory_of_one_run": round(more / program, 2),
        "rounds": len(found["1 run"]),
    }


def main() -> None:
    """Measures both cases in turn and appends one line each, and one that compares them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the usual updates")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "seeds.jsonl")
    options = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in CASES}
    for job in CASES.values():
        in_child(scaled(job, 0.02))
    for _ in range(options.rounds):
        for name, job in CASES.items():
            found[name].append(in_child(scaled(job, options.scale)))
            print(name, found[name][-1], flush=True)
    for name, results in found.items():
        rates = sorted(result["updates_per_second"] for result in results)
        line = {"row": f"td3-bc, {name}", **results[-1]}
        line |= {"updates_per_second": statistics.median(rates)}
        line |= {"least": rates[0], "most": rates[-1], "rounds": len(rates)}
        line |= {"peak_mb": statistics.median(result["peak_mb"] for result in results)}
        append(options.out, line | surroundings())
    compared = summary(found)
    append(options.out, compared | surroundings())
    print(compared)


if __name__ == "__main__":
    main()
