"""Every algorithm trained for 50 tiny updates a phase by the real engine, once a test session."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import leeward
from leeward.algorithms import ALGORITHMS
from leeward.config import to_json
from subjects import small_config, small_dataset

UPDATES = 50
CASES = [(name, kind) for name, algorithm in ALGORITHMS.items() for kind in algorithm.actions]
FOLDER = tempfile.TemporaryDirectory(prefix="leeward-tests-runs-")


def train(
    name: str,
    kind: str,
    directory: Path,
    on_metrics: Callable[[Any], None] | None = None,
    **changes: Any,
) -> None:
    """Two seeds, a line of metrics and a checkpoint every ten updates."""
    settings = to_json(small_config(ALGORITHMS[name], updates=UPDATES, **changes))
    leeward.train(
        name,
        small_dataset(kind),
        seeds=(0, 1),
        run_dir=directory,
        on_metrics=on_metrics,
        log_every=10,
        checkpoint_every=10,
        logger=(),
        quiet=True,
        **settings,
    )


@functools.cache
def whole_run(name: str, kind: str) -> Path:
    """The directory of the run with an algorithm's defaults."""
    directory = Path(FOLDER.name) / f"{name}-{kind}"
    train(name, kind, directory)
    return directory


def metrics(directory: Path) -> list[dict[str, Any]]:
    """The lines of metrics without what depends on the clock."""
    rows = map(json.loads, (directory / "metrics.jsonl").read_text("utf-8").splitlines())
    return [{n: v for n, v in row.items() if not n.startswith("time/")} for row in rows]
