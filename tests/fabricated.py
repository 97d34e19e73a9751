"""Run directories made by hand: what training would leave, with chosen numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np


def write_run(
    directory: Path,
    scores: Sequence[float] | Sequence[Sequence[float]],
    *,
    algorithm: str = "td3_bc",
    data: str = "made-up-v0",
    environment: str | None = "MadeUp-v0",
    config: dict[str, Any] | None = None,
    finished: bool = True,
    normalized: bool = True,
    metrics: Sequence[dict[str, float]] = (),
    rows: Sequence[dict[str, Any]] | None = None,
    **changes: Any,
) -> Path:
    """A run directory whose seed i has the scores [K] of its K evaluations.

    A run's return is ten times its score plus 5; each evaluation has two episodes, one above and
    one below. `scores` of one number a seed are one evaluation each. Changes are by path, such as
    data__hash.
    """
    rows = rows or [{"run": i, "seed": i} for i in range(len(scores))]
    saved: dict[str, Any] = {
        "format": 1,
        "algorithm": algorithm,
        "config": {"alpha": 2.5, "hidden": [8], **(config or {})},
        "steps": 1_000,
        "runs": rows,
        "options": {"eval_episodes": 2, "eval_every": 100, "best_fraction": 1.0},
        "environment": environment,
        "data": {
            "source": data,
            "options": {},
            "name": data,
            "hash": "0" * 64,
            "transitions": 5_000,
            "episodes": 50,
            "return_mean": 205.0,
            "notes": [],
            "findings": [],
        },
        "versions": {"leeward": "0", "python": "3.12", "mujoco": "4.0.0"},
    }
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = saved
        for parent in parents:
            place = place[parent]
        place[last] = value
    directory.mkdir(parents=True)
    if finished:
        (directory / "final").mkdir()
    (directory / "config.json").write_text(json.dumps(saved))
    lines = [
        line for row, own in zip(rows, scores, strict=True) for line in _lines(row, own, normalized)
    ]
    write_lines(directory / "evaluations.jsonl", lines)
    write_lines(
        directory / "metrics.jsonl",
        [
            {
                "phase": "train",
                "step": 10 * (k + 1),
                **row,
                **values,
                "time/updates_per_second": 9.0,
            }
            for k, values in enumerate(metrics)
            for row in rows
        ],
    )
    return directory


def _lines(row: dict[str, Any], scores: Any, normalized: bool) -> list[dict[str, Any]]:
    """One line an evaluation, every 100 updates."""
    lines = []
    for number, score in enumerate(np.atleast_1d(np.asarray(scores, float)).tolist(), 1):
        mean = 10.0 * score + 5.0
        lines.append(
            {
                "phase": "train",
                "step": 100 * number,
                **row,
                "returns": [mean - 1.0, mean + 1.0],
                "lengths": [10, 10],
                "return_mean": mean,
                "return_std": 1.0,
                "score_mean": score if normalized else None,
            }
        )
    return lines


def write_lines(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    """JSON lines."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
