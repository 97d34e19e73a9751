"""docs/your-data.md from its first block to its last: a CSV log to a policy in onnxruntime."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leeward import cli
from pages import DOCS, blocks_of, run_python, shell_lines

PAGE = DOCS / "your-data.md"
LEFT_OUT = {
    ("pip", "install"): "tests use no network",
    ("leeward", "ope"): "half a minute of compilation; the page says that it is not run",
}


def log_columns(path: Path, first: int) -> np.ndarray:
    """Two columns of the rows that start a transition: all but every run's last, of 60."""
    rows = np.genfromtxt(path, delimiter=",", skip_header=1)
    return rows[rows[:, 1] < 59][:, first : first + 2]


def test_the_whole_story_runs_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    ran = []
    for block in blocks_of(PAGE):
        if block.language == "python":
            run_python(block, namespace)
            continue
        assert block.language == "sh"
        for line in shell_lines(block):
            command, *arguments = shlex.split(line)
            if (command, arguments[0]) in LEFT_OUT:
                continue
            assert command == "leeward"
            assert cli.main(arguments) == 0, f"{line}\n{capsys.readouterr().err}"
            ran.append(arguments[0])
    assert ran == ["inspect", "convert", "convert", "train", "train", "export"]
    assert 0.0 < namespace["after"] < namespace["before"]
    card = json.loads((tmp_path / "tank.onnx.json").read_text())
    assert card["algorithm"] == "td3_bc"
    assert (card["action"]["low"], card["action"]["high"]) == ([-1.0, -1.0], [1.0, 1.0])
    for kind, name, first in (("observation", "level", 2), ("action", "valve_in", 4)):
        described, column = card[kind], log_columns(tmp_path / "tank.csv", first)
        assert described["columns"] == [name, "inflow" if kind == "observation" else "valve_out"]
        np.testing.assert_allclose(described["data_low"], column.min(axis=0), rtol=1e-6)
        np.testing.assert_allclose(described["data_high"], column.max(axis=0), rtol=1e-6)
    assert not {"ranges", "observation_names", "action_names"} & set(card["data"])
    by_row = json.loads((tmp_path / "runs/tank/bc/final/policy.json").read_text())["data"]
    assert by_row["observation_names"] == ["level", "inflow"]  # of the table itself
