"""Which of the settings that were trained together held-out episodes favor."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from leeward.job import Job

MEASURES = {"log_likelihood": 1.0, "squared_error": -1.0}
"""What is compared, the first that there is: +1 where more is better, −1 where less is."""


class Choice(NamedTuple):
    """The settings that held-out episodes favor."""

    runs: tuple[int, ...]
    """Indices of the runs that have them, one a seed."""
    settings: Mapping[str, float]
    measure: str
    """By which, one of MEASURES."""
    text: str
    """All settings with their means, in one sentence."""

    def to_json(self) -> dict[str, Any]:
        """What `Run.favored` is read from."""
        return {"runs": list(self.runs), "settings": dict(self.settings), "measure": self.measure}


def favored(job: Job, numbers: Mapping[str, np.ndarray], without: Collection[int]) -> Choice | None:
    """The best of the swept settings, or None where nothing is swept or held out.

    Args:
        job: the runs.
        numbers: name → [N] what the last phase measured at its end.
        without: runs that diverged.
    """
    measure = next((name for name in MEASURES if f"held_out/{name}" in numbers), None)
    if measure is None:
        return None
    number = numbers[f"held_out/{measure}"]
    found: dict[str, list[int]] = {}
    for run in range(job.runs):
        if run not in without and np.isfinite(number[run]):
            found.setdefault(_named(job.settings[run]), []).append(run)
    if len(found) < 2:
        return None
    means = {name: float(number[runs].mean()) for name, runs in found.items()}
    best, *_ = ranked = sorted(means, key=lambda name: -MEASURES[measure] * means[name])
    shown = ", ".join(f"{name} {means[name]:.4g}" for name in ranked)
    runs = tuple(found[best])
    basis = "1 seed" if len(runs) == 1 else f"the mean over {len(runs)} seeds"
    return Choice(
        runs=runs,
        settings=job.settings[runs[0]],
        measure=measure,
        text=f"held-out episodes favor {best}, by {measure.replace('_', ' ')} ({basis}): {shown}; "
        f"run {runs[0]} is the one that is exported and loaded unless --run-index names another",
    )


def _named(setting: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value:g}" for name, value in setting.items())
