"""Tiny training runs, and what they leave on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import leeward
from leeward.data.dataset import Dataset

SMALL = {"batch_size": 8, "hidden": (8,), "quiet": True, "logger": ()}


def lines(directory: Path, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    """A run's lines without what depends on the clock."""
    rows = [json.loads(line) for line in (directory / name).read_text().splitlines()]
    return [{n: v for n, v in row.items() if not n.startswith("time/")} for row in rows]


def weights(directory: Path, policy: str = "final") -> dict[str, np.ndarray]:
    """The arrays of a saved policy."""
    with np.load(directory / policy / "policy.npz", allow_pickle=False) as archive:
        return dict(archive)


def train(
    directory: Path, data: Dataset | Path, algorithm: str = "td3_bc", **settings: Any
) -> Path:
    """A tiny run; returns its directory."""
    leeward.train(algorithm, data, run_dir=directory, **(SMALL | {"steps": 20} | settings))
    return directory
