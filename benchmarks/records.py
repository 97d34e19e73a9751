"""Lines of measured results in a JSON lines file, and where they were measured."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from speed import processor

HERE = Path(__file__).parent


def surroundings() -> dict[str, Any]:
    """Where and when a row was measured."""
    commit = subprocess.run(
        ["git", "-C", str(HERE), "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
    )
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit.stdout.strip() or None,
    }


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The rows measured so far."""
    if not path.is_file():
        return []
    lines = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            lines.append(json.loads(line))
        except ValueError:
            raise SystemExit(f"{path}, line {number}, is not JSON: delete the line") from None
    return lines


def conclude(path: Path, make_table: Callable[[list[dict[str, Any]]], str]) -> int:
    """Writes the table of all rows beside them and prints it; 1 where there is none yet."""
    lines = read_lines(path)
    if not lines:
        print(f"{path} holds no row yet")
        return 1
    text = make_table(lines)
    path.with_suffix(".md").write_text(text)
    print(text)
    return 0


def append(path: Path, line: dict[str, Any]) -> None:
    """Adds one row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
