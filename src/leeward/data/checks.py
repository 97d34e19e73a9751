"""`inspect`: is this data fit to learn from? Counts, returns, and findings by severity."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from leeward.data.alignment_checks import check_alignment
from leeward.data.dataset import Dataset
from leeward.data.episode_checks import check_episodes
from leeward.data.findings import Finding, steps_of
from leeward.data.registry import normalized_score
from leeward.data.value_checks import check_values
from leeward.types import Box

FORMAT = 1
"""Version of the JSON that `Report.to_json` gives."""

_ORDER = {"error": 0, "warning": 1, "info": 2}


class Report(NamedTuple):
    """What `inspect` saw."""

    name: str
    summary: dict[str, Any]
    """JSON values: `rows`, `transitions`, `episodes`, `returns`, `lengths`, …"""
    findings: tuple[Finding, ...]
    """Errors first, then warnings, then information."""
    notes: tuple[str, ...]
    """What was taken for granted when the data was read."""

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that stop training."""
        return tuple(found for found in self.findings if found.severity == "error")

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values; numbers that are not finite become null."""
        return {
            "format": FORMAT,
            "name": self.name,
            "summary": _finite(self.summary),
            "findings": [found.to_json() for found in self.findings],
            "notes": list(self.notes),
        }

    def lines(self) -> list[tuple[str, str]]:
        """(what, value) of the summary, for a table."""
        summary = self.summary
        ends = summary["ends"]
        rows = [
            ("rows", f"{summary['rows']:,}"),
            ("transitions", f"{summary['transitions']:,}"),
            ("episodes", f"{summary['episodes']:,}"),
            ("ends", f"{ends['terminations']:,} by the task, {ends['truncations']:,} cut"),
            ("observation", f"{summary['observation']['shape']} {summary['observation']['dtype']}"),
            ("action", _action_line(summary["action"])),
            ("episode length", _spread_line(summary["lengths"])),
            ("return", _spread_line(summary["returns"])),
            ("reward", _spread_line(summary["rewards"])),
        ]
        if "score" in summary:
            rows.append(("normalized score", _spread_line(summary["score"])))
        if "env" in summary:
            rows.append(("environment", summary["env"]))
        return rows


def inspect(dataset: Dataset) -> Report:
    """Looks at a data set and says what may go wrong when learning from it.

    Load it with `strict=False` to look at data that training refuses.

    Args:
        dataset: any data set.

    Returns:
        A report; rows in it count the recorded steps from 0, in the order in which they were read.
    """
    steps = steps_of(dataset)
    found = [
        *check_values(dataset, steps),
        *check_episodes(dataset, steps),
        *check_alignment(steps),
    ]
    found.sort(key=lambda one: _ORDER[one.severity])
    return Report(
        str(dataset.metadata.get("name", "the data set")),
        _summary(dataset),
        tuple(found),
        tuple(dataset.metadata.get("notes", ())),
    )


def _summary(dataset: Dataset) -> dict[str, Any]:
    recorded = dataset.recorded
    returns = dataset.episode_returns()
    summary: dict[str, Any] = {
        "rows": int(recorded.sum()),
        "transitions": dataset.transitions,
        "episodes": dataset.episodes,
        "ends": {
            "terminations": int((dataset.termination & recorded).sum()),
            "truncations": int((dataset.truncation & ~dataset.termination & recorded).sum()),
        },
        "observation": {
            "shape": list(dataset.observation.shape[1:]),
            "dtype": str(dataset.observation.dtype),
        },
        "action": _action(dataset),
        "lengths": _spread(dataset.episode_lengths()),
        "returns": _spread(returns),
        "rewards": _spread(dataset.reward[recorded]),
        "next_observations": "stored" if dataset.next_observation is not None else "next rows",
    }
    for key in ("source", "env", "d4rl_rows"):
        if dataset.metadata.get(key):
            summary[key] = dataset.metadata[key]
    score = normalized_score(dataset.metadata, returns)
    if score is not None and not dataset.clipped_rewards:
        summary["score"] = _spread(score)
    return summary


def _action(dataset: Dataset) -> dict[str, Any]:
    space = dataset.action_space
    action = dataset.action[dataset.recorded]
    if isinstance(space, Box):
        return {
            "kind": "continuous",
            "size": space.size,
            "low": list(space.low),
            "high": list(space.high),
            "smallest": action.min(axis=0).tolist(),
            "largest": action.max(axis=0).tolist(),
        }
    counts = np.bincount(action, minlength=space.size)
    return {"kind": "discrete", "size": space.size, "taken": counts.tolist()}


def _spread(values: np.ndarray) -> dict[str, float]:
    """Mean, deviation and quantiles of finite or other numbers."""
    values = values.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):  # infinite values are a finding of their own
        return {
            "mean": float(values.mean()),
            "std": float(values.std()),
            "min": float(values.min()),
            "median": float(np.median(values)),
            "max": float(values.max()),
        }


def _spread_line(spread: dict[str, float]) -> str:
    return (
        f"mean {spread['mean']:.4g}, median {spread['median']:.4g}, "
        f"from {spread['min']:.4g} to {spread['max']:.4g}"
    )


def _action_line(action: dict[str, Any]) -> str:
    if action["kind"] == "discrete":
        return f"one of {action['size']}"
    low, high = set(action["low"]), set(action["high"])
    if len(low) == len(high) == 1:
        return f"[{action['size']}] in [{low.pop():g}, {high.pop():g}]"
    return f"[{action['size']}] in a box of its own for each dimension"


def _finite(value: Any) -> Any:
    """`value` with numbers that JSON does not know as None."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
