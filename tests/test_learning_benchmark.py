"""benchmarks/learning.py: commands that the command understands, and its table."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import small_environments  # noqa: F401 (registers LeewardTest/Line-v0)
from leeward import cli

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def learning(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """benchmarks/ is no package."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("learning")


def recorded(folder: Path, **changes: Any) -> None:
    """What a row leaves: returns 0, 50 and 100 of a scale on which 200 is an expert's."""
    folder.mkdir(parents=True)
    facts = {
        "data": "hopper",
        "data_return": 80.0,
        "data_score": 40.0,
        "data_best_score": 60.0,
        "seconds": 120.0,
        "shared": False,
    }
    (folder / "facts.json").write_text(json.dumps(facts | changes))
    lines = [
        {"phase": "train", "step": step, "seed": 0, "return_mean": value, "score_mean": value / 2}
        for step, value in ((5_000, 0.0), (10_000, 50.0), (15_000, 100.0))
    ]
    (folder / "evaluations.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))


def test_the_command_understands_every_row(
    learning: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    for row in learning.ROWS:
        assert row.data in learning.ENVIRONMENTS
        line = ["train", row.algorithm, "inverteddoublependulum-replay-v5", *row.command[1:]]
        assert cli.main([*line, *learning.EPISODES, "--print-config"]) == 0
        assert json.loads(capsys.readouterr().out)["config"]["steps"] >= 10_000


def test_rows_stand_beside_the_random_policy_and_the_data(
    learning: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "RESULTS", tmp_path)
    recorded(tmp_path / "hopper-td3-bc", seconds=None, shared=True)
    recorded(tmp_path / "hopper-bc-10")
    text = learning.table({"Hopper-v4": -20.0})
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in text.splitlines()[2:]]
    assert [row[:8] for row in rows] == [
        ["hopper", "td3-bc", "1", "15,000", "50.0", "25.0", "-10.0", "40.0 (60.0)"],
        ["hopper", "bc --best-fraction 0.1", "1", "15,000", "50.0", "25.0", "-10.0", "40.0 (60.0)"],
    ]
    assert [row[9] for row in rows] == ["in parts (machine shared)", "2.0"]
    assert rows[1][8] == "110.9 (v2): arXiv 2110.06169, table 1"


def test_the_random_policy_is_measured_once(
    learning: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "RESULTS", tmp_path)
    monkeypatch.setattr(learning, "RANDOM_EPISODES", 3)
    monkeypatch.setattr(learning, "ENVIRONMENTS", {"line": "LeewardTest/Line-v0"})
    found = learning.random_returns()
    assert -12 * 4.0 < found["LeewardTest/Line-v0"] < 0.0
    monkeypatch.setattr(learning, "random_return", None)  # never called again
    assert learning.random_returns() == found
