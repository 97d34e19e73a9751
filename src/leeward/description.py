"""config.json: what a run directory says of how the run was made."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from leeward import run
from leeward.config import to_json
from leeward.data.checks import Report
from leeward.data.dataset import Dataset
from leeward.job import Job


def describe(
    job: Job, source: str | Path | Dataset, data_options: Mapping[str, Any], report: Report
) -> dict[str, Any]:
    """config.json: everything needed to repeat the run."""
    environment = job.environment if isinstance(job.environment, str) else None
    options = dataclasses.asdict(job.options)
    return {
        "format": run.FORMAT,
        "algorithm": job.algorithm.name,
        "config": to_json(job.config),
        "steps": job.steps,
        "runs": [
            {"run": i, "seed": seed, **setting}
            for i, (seed, setting) in enumerate(zip(job.seeds, job.settings, strict=True))
        ],
        "options": options,
        "environment": environment,
        "data": {
            "source": lasting(source),
            "options": dict(data_options),
            "name": job.dataset.metadata.get("name", "data"),
            "hash": job.dataset_hash,
            "transitions": job.dataset.transitions,
            "episodes": job.dataset.episodes,
            "return_mean": _return_mean(job.dataset),
            "notes": list(job.dataset.metadata.get("notes", [])),
            "findings": [found.to_json() for found in report.findings],
        },
        "versions": versions(),
    }


def _return_mean(dataset: Dataset) -> float | None:
    """Of the rewards as logged; None where these do not tell what episodes returned."""
    if dataset.clipped_rewards:
        return None
    return dataset.metadata.get("raw_return_mean", dataset.return_mean)


def versions() -> dict[str, str]:
    """What a run's numbers depend on."""
    packages = ("jax", "jaxlib", "numpy", "optax", "equinox", "gymnasium", "mujoco")
    own = {"leeward": metadata.version("leeward"), "python": platform.python_version()}
    return own | {name: metadata.version(name) for name in packages}


def lasting(source: str | Path | Dataset) -> str | None:
    """The source as a later process finds it from any folder; None for data made in Python."""
    if isinstance(source, Dataset):
        return None
    path = Path(source).expanduser()
    return str(path.absolute()) if path.exists() else str(source)
