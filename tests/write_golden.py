"""Stores the metrics that test_golden.py compares: python tests/write_golden.py [ALGORITHM …]."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from small_runs import CASES, metrics, whole_run

FOLDER = Path(__file__).parent / "algorithms" / "golden"


def write(name: str, kind: str) -> None:
    """One file, one line of it a line of metrics; numbers with seven digits."""
    rows = [
        {n: float(f"{v:.7g}") if isinstance(v, float) else v for n, v in row.items()}
        for row in metrics(whole_run(name, kind))
    ]
    lines = ",\n".join(" " + json.dumps(row) for row in rows)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}-{kind}.json").write_text(f"[\n{lines}\n]\n", "utf-8")


if __name__ == "__main__":
    chosen = sys.argv[1:] or sorted({name for name, _ in CASES})
    for name, kind in CASES:
        if name in chosen:
            write(name, kind)
