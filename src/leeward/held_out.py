"""Which of the settings that were trained together held-out episodes favor."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from leeward.job import Job

MEASURES = {"log_likelihood": 1.0, "squared_error": -1.0}
"""What is compared, the first that there is: +1 where more is better, −1 where less is."""


def favored(job: Job, numbers: Mapping[str, np.ndarray], without: Collection[int]) -> str | None:
    """One sentence on the swept settings, or None where nothing is swept or held out.

    Args:
        job: the runs.
        numbers: name → [N] what the last phase measured at its end.
        without: runs that diverged.
    """
    known = [name for name in MEASURES if f"held_out/{name}" in numbers]
    means: dict[str, list[float]] = {}
    for run in range(job.runs) if known else ():
        value = float(numbers[f"held_out/{known[0]}"][run])
        if run not in without and np.isfinite(value):
            means.setdefault(_named(job.settings[run]), []).append(value)
    if len(means) < 2:
        return None
    sign = MEASURES[known[0]]
    ranked = sorted(means, key=lambda name: -sign * float(np.mean(means[name])))
    shown = [f"{name} {np.mean(means[name]):.4g}" for name in ranked]
    seeds = len(means[ranked[0]])
    basis = "1 seed" if seeds == 1 else f"the mean over {seeds} seeds"
    return (
        f"held-out episodes favor {ranked[0]}, by {known[0].replace('_', ' ')} ({basis}): "
        + ", ".join(shown)
    )


def _named(setting: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value:g}" for name, value in setting.items())
