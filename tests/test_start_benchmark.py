"""benchmarks/start.py on a few transitions, and its table."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """benchmarks/ is no package."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("start")


def test_everything_is_measured_and_the_last_run_is_shown(
    start: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "start.jsonl"
    assert start.main(["--transitions", "3000", "--rounds", "1", "--out", str(out)]) == 0
    lines = [json.loads(text) for text in out.read_text().splitlines()]
    assert [line["name"] for line in lines] == list(start.AIMS)
    assert [line.get("transitions") for line in lines] == [None, None, 3000, 3000, 3000]
    for line in lines:
        assert 0.0 < line["seconds"] < 600.0
        assert 5.0 < line["peak_mb"] < 10_000.0
        assert len(line["all_seconds"]) == 1
    older = lines[0] | {"date": "2020-01-01", "seconds": 99.0}
    out.write_text("".join(json.dumps(line) + "\n" for line in (older, *lines)))
    assert start.main(["--table", "--out", str(out)]) == 0
    text = out.with_suffix(".md").read_text()
    assert text in capsys.readouterr().out
    rows = [row for row in text.splitlines() if row.startswith("| ")][1:]
    assert len(rows) == 5
    assert rows[0].startswith(f"| `leeward --help` | {lines[0]['seconds']:.2f} | ")
    assert ", 3,000 transitions | " in rows[2]


def test_the_table_says_what_was_missed(start: ModuleType) -> None:
    line = {
        "seconds": 6.0,
        "all_seconds": [6.0],
        "peak_mb": 1600.4,
        "transitions": 1_000_000,
        "processor": "Some CPU",
        "cores": 2,
        "date": "2027-01-02",
        "time": "10:00:00",
    }
    text = start.table([line | {"name": start.LOAD}, line | {"name": start.TRAIN, "peak_mb": 99.0}])
    assert text.splitlines()[2:] == [
        "| load, 1,000,000 transitions | 6.00 | 1,600 | 5 s: missed |",
        "| train td3-bc, 100 updates, 1,000,000 transitions | 6.00 | 99 | 1,500 MB: reached |",
        "",
        "Medians of 1 processes; Some CPU, 2 cores, 2027-01-02.",
    ]
