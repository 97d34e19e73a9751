"""Tiny sweeps through the command, and what they leave."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from leeward.sweep.jobs import SweepJob

SMALL = (
    *("--settings", "batch_size=8", "hidden=[8]"),
    *("--eval-every", "0", "--log-every", "10", "--checkpoint-every", "200"),
)


def flags(npz: Path, place: Path, *more: str, algorithms: tuple[str, ...] = ("bc",)) -> list[str]:
    """Arguments of a small sweep."""
    line = ["sweep", "--algorithms", *algorithms, "--datasets", str(npz)]
    return [*line, "--sweep-dir", str(place), *SMALL, *more]


def started(arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    """The command in a process of its own, whose output goes to `log`."""
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "leeward", *arguments], stdout=file, stderr=file
        )


def attempts(place: Path) -> dict[str, list[dict[str, Any]]]:
    """Job → its starts."""
    return {
        file.stem.replace("+", "/"): [json.loads(line) for line in file.read_text().splitlines()]
        for file in sorted((place / "attempts").glob("*.jsonl"))
    }


def states(place: Path) -> dict[str, str]:
    """Job → its state in state.json."""
    jobs = json.loads((place / "state.json").read_text())["jobs"]
    return {name: standing["state"] for name, standing in jobs.items()}


def wait_for(condition: Callable[[], Any], process: subprocess.Popen[bytes], log: Path) -> Any:
    """The first true value of a condition, while the process runs."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        assert process.poll() is None, log.read_text()
        time.sleep(0.01)
    raise AssertionError(f"it never came to it: {log.read_text()}")


def steps(run: Path) -> list[int]:
    """The steps of a run's lines of metrics."""
    return [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def under_way(run: Path) -> bool:
    """Whether a run has a checkpoint, but is not at its end."""
    complete = run.glob("checkpoints/[!.]*/manifest.json")
    return any(complete) and not (run / "final").exists()


def waiting_jobs(count: int) -> list[SweepJob]:
    """Jobs of a sweep that was never begun: two runs of 100 + 1,000 updates each."""
    return [
        SweepJob(
            name=f"bc/set-{number}",
            algorithm="bc",
            source="made-up",
            data_hash="",
            data_options={},
            config={},
            options={},
            runs=[{"seed": 0}, {"seed": 1}],
            phases=[["behavior", 100], ["train", 1_000]],
        )
        for number in range(count)
    ]
