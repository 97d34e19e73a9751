"""Stores the metrics that the contract suite compares: tests/write_golden.py [ALGORITHM …]."""

from __future__ import annotations

import json
import sys

from contract import GOLDEN, mean_metrics
from leeward.algorithms import ALGORITHMS
from subjects import Subject


def write(subject: Subject) -> None:
    """One file, one line of it the means over ten updates of one seed, with seven digits."""
    rows = [
        {n: float(f"{v:.7g}") if isinstance(v, float) else v for n, v in row.items()}
        for row in mean_metrics(subject)
    ]
    lines = ",\n".join(" " + json.dumps(row) for row in rows)
    GOLDEN.mkdir(exist_ok=True)
    (GOLDEN / f"{subject}.json").write_text(f"[\n{lines}\n]\n", "utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:] or ALGORITHMS:
        for kind in ALGORITHMS[name].actions:
            write(Subject(ALGORITHMS[name], kind))
